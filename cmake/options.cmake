# Options of the configuration, and the settings of every target (perdure_build).

option(PERDURE_TESTS "Build tests, testing/ and examples" ${PROJECT_IS_TOP_LEVEL})
set(PERDURE_TOOLS ${PROJECT_IS_TOP_LEVEL} CACHE STRING "Build the command line and the benchmark \
harness: ON, OFF, or AUTO: if the libraries that they need are found")
set_property(CACHE PERDURE_TOOLS PROPERTY STRINGS AUTO ON OFF)
option(PERDURE_WERROR "Turn warnings into errors" ${PROJECT_IS_TOP_LEVEL})
option(PERDURE_LIBPMEM2 "Use libpmem2, if it is found, to recognize eADR" ON)
option(PERDURE_COMPARE "Build perdure-compare (needs RocksDB, LMDB, libcuckoo, oneTBB)" OFF)
option(PERDURE_PYTHON "Build the Python package (needs nanobind)" OFF)
set(PERDURE_MPI AUTO CACHE STRING "Build perdure::mpi: ON, OFF, or AUTO: if MPI is found")
set_property(CACHE PERDURE_MPI PROPERTY STRINGS AUTO ON OFF)
option(PERDURE_UNITY "Compile the sources of the command line together" ON)
option(PERDURE_FUZZ "Build fuzz/ with libFuzzer (clang)" OFF)
option(PERDURE_COVERAGE "Instrument for gcov" OFF)
set(PERDURE_COHERENCE OFF CACHE STRING "Build perdure-coherence with a library whose accesses it \
sees: OFF, ON, or shared: what threads write often shares lines with what others read")
set_property(CACHE PERDURE_COHERENCE PROPERTY STRINGS OFF ON shared)
set(PERDURE_SANITIZE "" CACHE STRING "Empty, address (with undefined) or thread")
set_property(CACHE PERDURE_SANITIZE PROPERTY STRINGS "" address thread)

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
  endif()
  # No debug information: it takes a tenth of the compile time and most of the size.
  set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  # Decided once, because a ccache that is installed later would change every command and rebuild
  # all.
  if(NOT DEFINED PERDURE_CCACHE)
    find_program(PERDURE_CCACHE ccache)
  endif()
  if(PERDURE_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    # ccache caches units with precompiled headers only with this sloppiness. DEPEND: it compares
    # the files that a unit includes. Without it, it compares their text after preprocessing, and
    # returns a precompiled header from before a change of a comment; g++ then reads that file a
    # second time, in spite of its #pragma once. The namespace leaves such results of earlier
    # commits behind.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        env CCACHE_NAMESPACE=perdure CCACHE_DEPEND=1
        CCACHE_SLOPPINESS=pch_defines,time_macros "${PERDURE_CCACHE}")
  endif()
endif()

if(PERDURE_TOOLS STREQUAL "AUTO")
  find_package(CLI11 QUIET)
  find_package(fmt QUIET)
  find_package(nlohmann_json QUIET)
  if(CLI11_FOUND AND fmt_FOUND AND nlohmann_json_FOUND)
    set(PERDURE_TOOLS ON)
  else()
    set(PERDURE_TOOLS OFF)
    message(STATUS "No command line: CLI11, fmt or nlohmann_json is missing")
  endif()
endif()

# A wheel has no libraries of the machine that it is built on.
set(PERDURE_FMT fmt::fmt)
if(SKBUILD)
  set(PERDURE_FMT fmt::fmt-header-only)
endif()

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)

find_package(Threads REQUIRED)

# Every target of this tree links perdure_build privately, so users do not see it.
add_library(perdure_build INTERFACE)
target_compile_features(perdure_build INTERFACE cxx_std_23)
# Also the root, so that includes read "testing/..." and "bench/..." outside src/.
target_include_directories(perdure_build INTERFACE "${PROJECT_SOURCE_DIR}/src"
                                                   "${PROJECT_SOURCE_DIR}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  # The baseline of every machine since 2009 (SSE4.2, POPCNT). Code that needs more uses target
  # attributes and asks cpuid, so that one binary runs everywhere. Prefetches for writing are hints;
  # processors that do not know them skip them.
  target_compile_options(perdure_build INTERFACE -march=x86-64-v2 -mprfchw)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  target_compile_options(perdure_build INTERFACE -march=armv8-a+crc)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_definitions(perdure_build INTERFACE _GLIBCXX_ASSERTIONS)
endif()
