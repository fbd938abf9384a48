# Helpers shared by the folders' CMakeLists.txt.

# perdure_glob(out pattern...): the sources below the calling folder, searched again at every build.
function(perdure_glob out)
  list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" OUTPUT_VARIABLE patterns)
  file(GLOB found CONFIGURE_DEPENDS ${patterns})
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# perdure_precompiled(target header library...): compiles a header once for all targets that say
# target_precompile_headers(... REUSE_FROM target). Those targets need the same options.
function(perdure_precompiled target header)
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${target}.cc" CONTENT "")
  add_library(${target} OBJECT EXCLUDE_FROM_ALL "${CMAKE_CURRENT_BINARY_DIR}/${target}.cc")
  target_precompile_headers(${target} PRIVATE "${PROJECT_SOURCE_DIR}/${header}")
  target_link_libraries(${target} PUBLIC ${ARGN} perdure_build)
endfunction()

# perdure_light(target...): compiles with -O1. Compiling these targets takes longer than running
# them.
function(perdure_light)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endforeach()
endfunction()

# perdure_test(name "label;..." command argument...): registers a test. The command may be a target.
# tests/timed.sh counts its processor time, for scripts/budgets.py. A test finds the command line
# and the tree through its environment. With PERDURE_SAN=1 it shrinks its node sizes and
# repetitions, because programs of sanitizers and gcov are ten times slower.
function(perdure_test name labels command)
  if(TARGET "${command}")
    get_target_property(of_this_machine ${command} IMPORTED)
    if(of_this_machine)
      set(command $<TARGET_FILE:${command}>)
    else()
      set(command ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${command}>)
    endif()
  endif()
  add_test(NAME "${name}" COMMAND bash "${PROJECT_SOURCE_DIR}/tests/timed.sh" "${name}" ${command}
                                  ${ARGN})
  set(environment "PERDURE_CLI=${PROJECT_BINARY_DIR}/perdure"
                  "PERDURE_SOURCE_DIR=${PROJECT_SOURCE_DIR}"
                  "PERDURE_BUILD_DIR=${PROJECT_BINARY_DIR}"
                  "PERDURE_TEST_TIMES=${PROJECT_BINARY_DIR}/test_times.txt"
                  "PERDURE_CMAKE=${CMAKE_COMMAND}"
                  "PERDURE_CXX=${CMAKE_CXX_COMPILER}")
  if(PERDURE_SANITIZE)
    # Not the symbolizer of the first LLVM in PATH, because older ones fail on this debug
    # information.
    set(symbolizer "external_symbolizer_path=${PERDURE_ADDR2LINE}")
    list(APPEND environment PERDURE_SAN=1 "ASAN_OPTIONS=${symbolizer}" "TSAN_OPTIONS=${symbolizer}"
                            "UBSAN_OPTIONS=${symbolizer}:print_stacktrace=1")
  endif()
  if(PERDURE_COVERAGE)
    list(APPEND environment PERDURE_SAN=1)
  endif()
  if("nightly" IN_LIST labels)
    set(timeout 7200)
  elseif(PERDURE_COVERAGE OR CMAKE_CROSSCOMPILING)
    set(timeout 1200)
  else()
    set(timeout 300)
  endif()
  set_tests_properties("${name}" PROPERTIES
    LABELS "${labels}" ENVIRONMENT "${environment}" TIMEOUT ${timeout})
endfunction()

# The names of the engines, from their table. Tests that run on one engine are registered for each.
set(engine_table "${PROJECT_SOURCE_DIR}/src/index/engines.def")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${engine_table}")
file(STRINGS "${engine_table}" PERDURE_ENGINES REGEX "^PERDURE_ENGINE\\([a-z0-9_]+\\)$")
list(TRANSFORM PERDURE_ENGINES REPLACE "^PERDURE_ENGINE.([a-z0-9_]+).$" "\\1")
if(NOT PERDURE_ENGINES)
  message(FATAL_ERROR "no line PERDURE_ENGINE(name) in ${engine_table}")
endif()
