# orrery_library(name SOURCES … LINK …): a static library target of one folder, alias Orrery::name.
function(orrery_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(orrery_${name} STATIC ${ARG_SOURCES})
  add_library(Orrery::${name} ALIAS orrery_${name})
  set_target_properties(orrery_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(orrery_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/orrery>)
  target_compile_features(orrery_${name} PUBLIC cxx_std_20)
  target_link_libraries(orrery_${name} PUBLIC ${ARG_LINK} PRIVATE $<BUILD_INTERFACE:orrery_warnings> ${ARG_PRIVATE_LINK})
endfunction()

# orrery_test(name SOURCES … LINK … [LABEL quick|guest|full] [TIMEOUT s]): a GoogleTest program;
# every TEST is a ctest of its own process.
function(orrery_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;LINK" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL quick)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gmock GTest::gtest_main orrery_warnings)
  target_compile_options(${name} PRIVATE ${ORRERY_BUILD_QUICKLY})
  gtest_discover_tests(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT} DISCOVERY_TIMEOUT 60)
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
  add_executable(${name}_replay ${ARG_SOURCES} "${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cpp")
  target_link_libraries(${name}_replay PRIVATE ${ARG_LINK} orrery_warnings)
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
