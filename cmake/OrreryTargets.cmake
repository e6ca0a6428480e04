# orrery_compile_together(target): the target's files are compiled sixteen at a time, since most of a file's time goes
# to the libraries' headers. compile_commands.json, and the target <target>_files (in no build by itself), have each
# file by itself: for clang-tidy, for editors, and to see that a file includes what it uses. Files with options of
# their own stay by themselves. Not for hot paths: g++ inlines less in a larger unit (the IOMMU's walks took 1.2 times
# as long).
function(orrery_compile_together target)
  if(NOT ORRERY_COMPILE_TOGETHER)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  get_target_property(libraries ${target} LINK_LIBRARIES)
  add_library(${target}_files OBJECT EXCLUDE_FROM_ALL ${sources})
  target_link_libraries(${target}_files PRIVATE ${libraries})
  foreach(property COMPILE_DEFINITIONS COMPILE_OPTIONS INCLUDE_DIRECTORIES COMPILE_FEATURES)
    set_target_properties(${target}_files PROPERTIES ${property} "$<TARGET_PROPERTY:${target},${property}>")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16 EXPORT_COMPILE_COMMANDS OFF)
endfunction()

# orrery_library(name SOURCES … LINK … [TOGETHER] [QUICKLY]): a static library target of one folder, alias Orrery::name.
# TOGETHER: its files are compiled together. QUICKLY: that, and with ORRERY_BUILD_QUICKLY, since no hot path is in it.
function(orrery_library name)
  cmake_parse_arguments(ARG "TOGETHER;QUICKLY" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(orrery_${name} STATIC ${ARG_SOURCES})
  add_library(Orrery::${name} ALIAS orrery_${name})
  set_target_properties(orrery_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(orrery_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/orrery>)
  target_compile_features(orrery_${name} PUBLIC cxx_std_20)
  target_link_libraries(orrery_${name} PUBLIC ${ARG_LINK} PRIVATE $<BUILD_INTERFACE:orrery_warnings> ${ARG_PRIVATE_LINK})
  if(ARG_QUICKLY)
    target_compile_options(orrery_${name} PRIVATE ${ORRERY_BUILD_QUICKLY})
  endif()
  if(ARG_QUICKLY OR ARG_TOGETHER)
    orrery_compile_together(orrery_${name})
  endif()
endfunction()

# orrery_test(name SOURCES … LINK … [LABEL quick|guest|full] [TIMEOUT s] [PREFIX p]): a GoogleTest program;
# every TEST is a ctest of its own process, its name behind the prefix. Each file has a namespace of its own, so that they compile together.
function(orrery_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT;PREFIX" "SOURCES;LINK" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL quick)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gmock GTest::gtest_main orrery_warnings)
  target_compile_options(${name} PRIVATE ${ORRERY_BUILD_QUICKLY})
  list(LENGTH ARG_SOURCES count)
  if(count GREATER 1)
    orrery_compile_together(${name})
  endif()
  gtest_discover_tests(${name} TEST_PREFIX "${ARG_PREFIX}" PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT} DISCOVERY_TIMEOUT 60)
endfunction()

# orrery_bench(name SOURCES … LINK …): a Google Benchmark program.
function(orrery_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} benchmark::benchmark_main orrery_warnings)
endfunction()

# orrery_fuzz_test(name SOURCES … LINK …): a fuzz target (LLVMFuzzerTestOneInput) with its kept corpus in
# corpus/<name>/. Under every compiler: <name>_corpus replays the corpus (label quick). With
# ORRERY_BUILD_FUZZERS (clang), or with ORRERY_FUZZ_BUILD_DIR naming a build that has it: <name>_10s (label fuzz)
# and <name>_60s (label full) search for new inputs; an input that fails is written to <build>/fuzz/<name>/.
function(orrery_fuzz_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  set(corpus "${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name}")
  add_executable(${name}_replay ${ARG_SOURCES})
  target_link_libraries(${name}_replay PRIVATE ${ARG_LINK} fuzz_replay_main orrery_warnings)
  target_compile_options(${name}_replay PRIVATE ${ORRERY_BUILD_QUICKLY})
  add_test(NAME ${name}_corpus COMMAND ${name}_replay "${corpus}")
  set_tests_properties(${name}_corpus PROPERTIES LABELS quick TIMEOUT 60)
  if(ORRERY_BUILD_FUZZERS)
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE ${ARG_LINK} orrery_warnings)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    if(NOT TARGET fuzzers)
      add_custom_target(fuzzers)
    endif()
    add_dependencies(fuzzers ${name})
    set(program $<TARGET_FILE:${name}>)
  elseif(ORRERY_FUZZ_BUILD_DIR)
    set(program "${ORRERY_FUZZ_BUILD_DIR}/tests/fuzz/${name}")
  else()
    return()
  endif()
  foreach(seconds 10 60)
    set(found "${PROJECT_BINARY_DIR}/fuzz/${name}/${seconds}s")
    file(MAKE_DIRECTORY "${found}")
    add_test(NAME ${name}_${seconds}s
      COMMAND ${program} -max_total_time=${seconds} -timeout=10 -rss_limit_mb=1024 -print_final_stats=1
              "-artifact_prefix=${found}/" "${found}" "${corpus}")
  endforeach()
  set_tests_properties(${name}_10s PROPERTIES LABELS fuzz TIMEOUT 60)
  set_tests_properties(${name}_60s PROPERTIES LABELS full TIMEOUT 150)
endfunction()
