# One set for g++ and clang, strict where a warning finds bugs and silent where it only argues.

add_library(perdure_warnings INTERFACE)
target_compile_options(perdure_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wcast-qual -Wformat=2 -Wundef
  # Option structs are meant to be written as {.max_size = n}, the rest by default.
  -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 at -O3 reports these inside libstdc++ (std::string concatenation, std::expected); clang
  # checks the same code without.
  target_compile_options(perdure_warnings INTERFACE
    -Wno-restrict -Wno-stringop-overflow -Wno-maybe-uninitialized)
endif()
if(PERDURE_WERROR)
  target_compile_options(perdure_warnings INTERFACE -Werror)
endif()
target_link_libraries(perdure_build INTERFACE perdure_warnings)
