# The installed tree: bin/orrery, libraries, headers under include/orrery, and find_package(Orrery).
include(CMakePackageConfigHelpers)
