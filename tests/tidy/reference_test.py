# test: uninstrumented
"""Every public name has a comment that Doxygen understands. `make docs` fails otherwise."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A member with data needs no comment if its name says what it is.
DATA = re.compile(r"warning: Member .* \(variable\) of .* is not documented\.$")


@unittest.skipUnless(shutil.which("doxygen"), "doxygen is not installed")
class ReferenceTest(unittest.TestCase):
    def complaints(self, inputs):
        """What Doxygen says of these files or folders."""
        with tempfile.TemporaryDirectory() as folder:
            options = (ROOT / "scripts/docs/Doxyfile").read_text() + f"""
OUTPUT_DIRECTORY = {folder}
WARN_LOGFILE = {folder}/log
HTML_OUTPUT = html
"""
            if inputs:
                options += f"INPUT = {inputs}\n"
            subprocess.run(["doxygen", "-"], input=options, text=True, cwd=ROOT, check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            log = pathlib.Path(folder, "log").read_text().splitlines()
        return [line for line in log if not DATA.search(line)]

    def test_the_headers(self):
        self.assertEqual(self.complaints(""), [])

    def test_a_name_without_a_comment_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            header = pathlib.Path(folder, "planted.h")
            header.write_text("// A file.\n#pragma once\n\nnamespace perdure {\n\n// A class.\n"
                              "class Planted {\n public:\n  // Described.\n  int g();\n\n"
                              "  int f();\n\n  int data = 0;\n};\n\n}  // namespace perdure\n")
            complaints = self.complaints(header)
        self.assertEqual(len(complaints), 1, complaints)
        self.assertIn("f()", complaints[0])


if __name__ == "__main__":
    unittest.main()
