# test: uninstrumented
"""perdure-compare-bulk: a short run of all stores that are built, each with its checks; what it
leaves behind; and the mistakes that it names."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

PROGRAM = pathlib.Path(os.environ["PERDURE_BUILD_DIR"]) / "perdure-compare-bulk"


def run(*options):
    return subprocess.run([PROGRAM, *options], text=True, capture_output=True, check=False)


class CompareBulk(unittest.TestCase):
    def setUp(self):
        # Not in /tmp, which may be in memory: `buffered` is for disks.
        folder = tempfile.TemporaryDirectory(dir=os.environ["PERDURE_BUILD_DIR"])
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_all_stores(self):
        done = run("--records", "2000", "--turns", "1", "--dir", self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        table = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()
                 if line.startswith("|")]
        stores = table[0][2:]
        self.assertIn("perdure", stores)
        self.assertEqual(len(table), 2 + 21)
        for row in table[2:]:
            self.assertEqual(len(row), 2 + len(stores), row)
            for figure in row[2:]:
                self.assertRegex(figure, re.compile(r"^[0-9.]+$"))
                self.assertGreater(float(figure), 0, row)
        self.assertEqual(os.listdir(self.folder), [])

    def test_mistakes(self):
        for options, named in ((("--engines", "redb"), "redb"), (("--records", "10"), "1000"),
                               (("--dir", self.folder + "/none"), "none"),
                               (("--turns", "0"), "turns")):
            done = run("--dir", self.folder, *options)
            self.assertNotEqual(done.returncode, 0, options)
            self.assertIn(named, done.stderr, options)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_folder_of_another_program_is_left(self):
        other = pathlib.Path(self.folder) / "perdure-bulk.perdure.d"
        other.mkdir()
        done = run("--records", "2000", "--engines", "perdure", "--dir", self.folder)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("left as it is", done.stderr)
        self.assertTrue(other.exists())


if __name__ == "__main__":
    unittest.main()
