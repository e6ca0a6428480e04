# The installed tree: bin/orrery, libraries, headers under include/orrery, and find_package(Orrery). It can be
# moved as a whole: nothing in it names its own place.
include(CMakePackageConfigHelpers)
set(ORRERY_INSTALL_CMAKEDIR "${CMAKE_INSTALL_LIBDIR}/cmake/Orrery")

if(TARGET orrery)
  install(TARGETS orrery RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT orrery_runtime)
endif()

# Folders whose headers are public, and their libraries.
set(orrery_public_folders common pcie firmware systemc_models qemu_bridge fabric)
set(orrery_public_targets orrery_systemc orrery_plugin)
foreach(library common pcie pcie_modules firmware rnic models server qemu_bridge relay launcher fabric instance_link)
  if(TARGET orrery_${library})
    list(APPEND orrery_public_targets orrery_${library})
  endif()
endforeach()

install(TARGETS ${orrery_public_targets} EXPORT OrreryTargets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT orrery_development
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT orrery_development)
foreach(folder ${orrery_public_folders})
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/orrery"
    COMPONENT orrery_development FILES_MATCHING PATTERN "*.h")
endforeach()
install(EXPORT OrreryTargets NAMESPACE Orrery:: DESTINATION "${ORRERY_INSTALL_CMAKEDIR}" COMPONENT orrery_development)

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/OrreryConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/OrreryConfig.cmake" INSTALL_DESTINATION "${ORRERY_INSTALL_CMAKEDIR}"
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_BINDIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/OrreryConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/OrreryConfig.cmake" "${PROJECT_BINARY_DIR}/OrreryConfigVersion.cmake"
  DESTINATION "${ORRERY_INSTALL_CMAKEDIR}" COMPONENT orrery_development)

install(DIRECTORY "${PROJECT_SOURCE_DIR}/examples" DESTINATION "${CMAKE_INSTALL_DATADIR}/orrery"
  COMPONENT orrery_development)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT orrery_runtime)
