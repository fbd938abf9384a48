"""What is not allowed does not compile, and the compiler's error states the rule."""

import os
import pathlib
import subprocess
import unittest

COMPILER = os.environ.get("PERDURE_CXX", "g++")
ROOT = pathlib.Path(__file__).resolve().parents[2]


class RefusedTypes(unittest.TestCase):
    def test_an_older_standard_is_named(self):
        refused = subprocess.run(
            [COMPILER, "-std=c++20", "-fsyntax-only", f"-I{ROOT}/include", "-x", "c++", "-"],
            input="#include <perdure/perdure.h>\n", text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False)
        self.assertNotEqual(refused.returncode, 0)
        first = next(line for line in refused.stdout.splitlines() if "error" in line)
        self.assertIn("-std=c++23", first)

    def compile(self, *calls):
        source = "".join(["#include <array>\n#include <perdure/perdure.h>\n",
                          "void open(perdure::Pool& pool) {\n",
                          *(f"  (void)pool.{call}(\"m\");\n" for call in calls), "}\n"])
        return subprocess.run(
            [COMPILER, "-std=c++23", "-fsyntax-only", f"-I{ROOT}/include", "-x", "c++", "-"],
            input=source, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def test_the_error_states_the_rule(self):
        refused = self.compile("map<int, std::array<double, 2>>", "ordered_map<double, int>",
                               "versioned_map<std::array<char, 17>, int>")
        self.assertNotEqual(refused.returncode, 0)
        rule = "static assertion failed: a "
        self.assertEqual(refused.stdout.count(rule), 3, refused.stdout)
        self.assertIn("at most 15 bytes; use std::string_view for larger ones", refused.stdout)
        self.assertEqual(refused.stdout.count("a key is an integer or enum of at most 8 bytes"), 2,
                         refused.stdout)


if __name__ == "__main__":
    unittest.main()
