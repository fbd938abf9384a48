# One set for g++ and clang. It has warnings that find bugs, and none about style.

add_library(perdure_warnings INTERFACE)
target_compile_options(perdure_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wcast-qual -Wformat=2 -Wundef
  # Option structs are written as {.max_size = n}; the other fields have defaults.
  -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 at -O3 reports these inside libstdc++ (concatenation of std::string, std::expected).
  # clang compiles the same code without warnings.
  target_compile_options(perdure_warnings INTERFACE
    -Wno-restrict -Wno-stringop-overflow -Wno-maybe-uninitialized)
endif()
if(PERDURE_WERROR)
  target_compile_options(perdure_warnings INTERFACE -Werror)
endif()
target_link_libraries(perdure_build INTERFACE perdure_warnings)
