"""perdure/c.h compiles without a warning, as C99 to C17 and as C++11 to C++23. Its functions are
what the shared library exports, and nothing else."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PERDURE_BUILD_DIR", ROOT / "build" / "release"))
HEADER = ROOT / "include" / "perdure" / "c.h"
STRICT = ["-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Wundef", "-Werror"]
COMPILERS = {
    "c": [name for name in ("gcc", "clang-19", "clang") if shutil.which(name)][:2],
    "c++": [name for name in ("g++", "clang++-19", "clang++") if shutil.which(name)][:2],
}
SOURCE = """
#include <perdure/c.h>
#include <perdure/c.h>
perdure_pool_options pool_options = PERDURE_POOL_OPTIONS_INIT;
perdure_map_options map_options = PERDURE_MAP_OPTIONS_INIT;
perdure_check_options check_options = PERDURE_CHECK_OPTIONS_INIT;
perdure_range range = PERDURE_RANGE_INIT;
perdure_buffered_options buffered_options = PERDURE_BUFFERED_OPTIONS_INIT;
perdure_backup_options backup_options = PERDURE_BACKUP_OPTIONS_INIT;
perdure_restore_options restore_options = PERDURE_RESTORE_OPTIONS_INIT;
int code(void);
int code(void) { return perdure_status_name(PERDURE_BUSY)[0] + (int)sizeof(pool_options); }
"""


def compiled(language, compiler, standard, source):
    return subprocess.run(
        [compiler, f"-std={standard}", *STRICT, f"-I{ROOT}/include", "-fsyntax-only", "-x",
         language, "-"],
        input=source, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


class Header(unittest.TestCase):
    def test_it_compiles_without_a_warning(self):
        for language, standards in (("c", ("c99", "c11", "c17")), ("c++", ("c++11", "c++23"))):
            self.assertTrue(COMPILERS[language])
            for compiler in COMPILERS[language]:
                for standard in standards:
                    done = compiled(language, compiler, standard, SOURCE)
                    self.assertEqual(done.returncode, 0, f"{compiler} {standard}\n{done.stdout}")

    def test_a_struct_with_its_size_alone_asks_for_the_defaults(self):
        source = SOURCE + "perdure_range all = {.struct_size = sizeof(perdure_range)};\n"
        for compiler in COMPILERS["c"]:
            done = compiled("c", compiler, "c99", source)
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_the_library_exports_the_functions_of_the_header(self):
        listed = subprocess.run(
            ["nm", "-D", "--defined-only", "--no-demangle", str(BUILD / "libperdure.so")],
            text=True, stdout=subprocess.PIPE, check=True).stdout
        symbols = [line.split()[1:] for line in listed.splitlines()]
        exported = {name.split("@")[0] for kind, name in symbols if kind != "A"}
        self.assertEqual({kind for kind, name in symbols if kind != "A"}, {"T"})
        declared = re.findall(r"^PERDURE_API [^;(]*?\b(perdure_\w+)\(",
                              HEADER.read_text(encoding="utf-8"), re.M)
        self.assertGreater(len(declared), 80)
        self.assertEqual(sorted(declared), sorted(exported))

    def test_the_versions_agree(self):
        dynamic = subprocess.run(["readelf", "-dV", str(BUILD / "libperdure.so")], text=True,
                                 stdout=subprocess.PIPE, check=True).stdout
        self.assertIn("[libperdure.so.0]", dynamic)
        self.assertIn("PERDURE_0", dynamic)
        self.assertIn("NODELETE", dynamic)


if __name__ == "__main__":
    unittest.main()
