# Instrumentation. It is added to perdure_build, so no target can be left out: a sanitizer that sees
# half of a program reports false errors about the other half.

if(PERDURE_SANITIZE STREQUAL "address")
  # vptr needs RTTI, and the library is built without it.
  set(flags -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all)
  target_compile_definitions(perdure_build INTERFACE PERDURE_ASAN=1)
elseif(PERDURE_SANITIZE STREQUAL "thread")
  set(flags -fsanitize=thread)
  target_compile_definitions(perdure_build INTERFACE PERDURE_TSAN=1)
elseif(PERDURE_SANITIZE)
  message(FATAL_ERROR "PERDURE_SANITIZE is '${PERDURE_SANITIZE}'; use address or thread")
endif()
if(PERDURE_SANITIZE)
  list(APPEND flags -fno-omit-frame-pointer)
  # Debug keeps the checks of the C++ library. -O1 keeps the tests short.
  set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")
  find_program(PERDURE_ADDR2LINE addr2line REQUIRED)  # for file and line in reports
endif()
if(PERDURE_FUZZ)
  list(APPEND flags -fsanitize=fuzzer-no-link)
endif()
if(PERDURE_COVERAGE)
  list(APPEND flags --coverage)
  add_library(perdure_coverage STATIC "${PROJECT_SOURCE_DIR}/cmake/coverage_exit.cc")
  target_link_libraries(perdure_build INTERFACE perdure_coverage)
  # Required by name, because its callers may come after the library.
  target_link_options(perdure_build INTERFACE LINKER:--wrap=_exit LINKER:--undefined=__wrap__exit)
endif()
set(PERDURE_INSTRUMENT_FLAGS ${flags})  # for sources in C, which do not link perdure_build
target_compile_options(perdure_build INTERFACE ${flags})
target_link_options(perdure_build INTERFACE ${flags})

# Tests that build an outside project against this tree cannot link an instrumented library.
if(PERDURE_SANITIZE OR PERDURE_FUZZ OR PERDURE_COVERAGE)
  set(PERDURE_INSTRUMENTED ON)
endif()
