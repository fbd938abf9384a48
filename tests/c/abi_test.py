"""The ABI of the C library is that of the baseline, tests/c/perdure.abi: abidiff compares types,
functions and their sizes.

    PERDURE_BUILD_DIR=build/release python3 tests/c/abi_test.py --write     write the baseline anew

A change that only adds is written into the baseline. Another one also raises the number of the
library's name, SOVERSION in src/c/CMakeLists.txt, once there is a release.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PERDURE_BUILD_DIR", ROOT / "build" / "release"))
BASELINE = ROOT / "tests" / "c" / "perdure.abi"
# The library again, without optimisation and with debug information, which has the types.
LIBRARY = BUILD / "tests" / "c" / "libc_abi.so"


def write(path):
    """Writes what the header promises: types of other headers stay opaque."""
    with tempfile.TemporaryDirectory() as headers:
        shutil.copy(ROOT / "include" / "perdure" / "c.h", headers)
        subprocess.run(
            ["abidw", "--headers-dir", headers, "--drop-private-types",
             "--exported-interfaces-only", "--no-corpus-path", "--no-comp-dir-path",
             "--no-show-locs", "--no-elf-needed", "--type-id-style", "hash", "--out-file",
             str(path), str(LIBRARY)], check=True)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(f"path='{ROOT}/", "path='../../"), encoding="utf-8")


def difference(before, after):
    done = subprocess.run(["abidiff", str(before), str(after)], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


class Abi(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.now = pathlib.Path(temporary.name) / "now.abi"
        write(self.now)

    def test_the_abi_is_that_of_the_baseline(self):
        status, printed = difference(BASELINE, self.now)
        self.assertEqual(status, 0, f"{printed}\nIf that is meant: {__doc__}")

    def test_a_change_is_noticed(self):
        text = self.now.read_text(encoding="utf-8")
        for before, after in (
                ("perdure_u64_get'", "perdure_u64_gone'"),                  # a function
                ("<data-member access='public' layout-offset-in-bits='64'>",  # a field
                 "<data-member access='public' layout-offset-in-bits='96'>"),
                ("name='PERDURE_PUT' value='0'", "name='PERDURE_PUT' value='7'"),  # a number
        ):
            changed = text.replace(before, after)
            self.assertNotEqual(text, changed, before)
            planted = self.now.with_name("planted.abi")
            planted.write_text(changed, encoding="utf-8")
            self.assertNotEqual(difference(self.now, planted)[0], 0, before)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write(BASELINE)
    else:
        unittest.main()
