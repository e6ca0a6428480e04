# Language level and warnings, for every target of the project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(ORRERY_CCACHE ccache)
if(ORRERY_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${ORRERY_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER "${ORRERY_CCACHE}")
endif()

# Linking is a tenth of a build; lld takes a fraction of what ld takes.
find_program(ORRERY_LLD ld.lld)
if(ORRERY_LLD)
  add_link_options(-fuse-ld=lld)
endif()

add_library(orrery_warnings INTERFACE)
target_compile_options(orrery_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual -Wundef
  -Wcast-align -Wimplicit-fallthrough)

option(ORRERY_COMPILE_TOGETHER "Compile several files of a target at once (OFF: rebuilds less after a change)" ON)

# For what runs once or once a command: -O3 would take a third longer to compile, for nothing.
set(ORRERY_BUILD_QUICKLY $<$<CONFIG:Release>:-O1>)

if(ORRERY_SANITIZE)
  add_compile_options(-fsanitize=${ORRERY_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ORRERY_SANITIZE})
endif()
if(ORRERY_COVERAGE)
  add_compile_options(--coverage)
  add_link_options(--coverage)
endif()
if(ORRERY_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang" OR NOT ORRERY_SANITIZE)
    message(FATAL_ERROR "ORRERY_BUILD_FUZZERS needs clang and ORRERY_SANITIZE: use the preset asan-ubsan")
  endif()
  # Coverage feedback from the libraries too; the sanitizers' runtime takes it where there is no fuzzer.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
