// Children of tests end with _exit(), which would lose what gcov counted in them. Linked into every
// program of a coverage build, in which the linker sends _exit() here.
extern "C" {
void __gcov_dump();                   // NOLINT: libgcov's name
[[noreturn]] void __real__exit(int);  // NOLINT: the linker's names
[[noreturn]] void __wrap__exit(int);  // NOLINT
}

void __wrap__exit(int status) {  // NOLINT
  __gcov_dump();
  __real__exit(status);
}
