# Helpers shared by the folders' CMakeLists.txt.

# perdure_glob(out pattern...): the sources below the calling folder, again at every build.
function(perdure_glob out)
  list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" OUTPUT_VARIABLE patterns)
  file(GLOB found CONFIGURE_DEPENDS ${patterns})
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# perdure_register(name label...): what every test of the tree has in common.
# A test finds the command line and the tree through its environment, and shrinks its node sizes
# and repetitions when PERDURE_SAN=1: the programs of sanitizers and gcov are ten times slower.
function(perdure_register name)
  set(labels ${ARGN})
  set(environment "PERDURE_CLI=${PROJECT_BINARY_DIR}/perdure"
                  "PERDURE_SOURCE_DIR=${PROJECT_SOURCE_DIR}"
                  "PERDURE_BUILD_DIR=${PROJECT_BINARY_DIR}"
                  "PERDURE_CMAKE=${CMAKE_COMMAND}"
                  "PERDURE_CXX=${CMAKE_CXX_COMPILER}")
  if(PERDURE_SANITIZE)
    # Not the symbolizer of whatever LLVM comes first in PATH: older ones fail on our debug info.
    set(symbolizer "external_symbolizer_path=${PERDURE_ADDR2LINE}")
    list(APPEND environment PERDURE_SAN=1 "ASAN_OPTIONS=${symbolizer}" "TSAN_OPTIONS=${symbolizer}"
                            "UBSAN_OPTIONS=${symbolizer}:print_stacktrace=1")
  endif()
  if(PERDURE_COVERAGE)
    list(APPEND environment PERDURE_SAN=1)
  endif()
  if("nightly" IN_LIST labels)
    set(timeout 7200)
  elseif(PERDURE_COVERAGE)
    set(timeout 1200)
  else()
    set(timeout 300)
  endif()
  set_tests_properties("${name}" PROPERTIES
    LABELS "${labels}" ENVIRONMENT "${environment}" TIMEOUT ${timeout})
endfunction()

# The engines, by name, from their table: what runs on one at a time is registered for each.
set(engine_table "${PROJECT_SOURCE_DIR}/src/index/engine_table.cc")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${engine_table}")
file(STRINGS "${engine_table}" PERDURE_ENGINES REGEX "\\.engine = Engine::[a-z0-9_]+,")
list(TRANSFORM PERDURE_ENGINES REPLACE "^.*Engine::([a-z0-9_]+),.*$" "\\1")
if(NOT PERDURE_ENGINES)
  message(FATAL_ERROR "no row `.engine = Engine::NAME,` in ${engine_table}")
endif()
