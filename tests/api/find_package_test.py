"""Installs the build into an empty prefix and builds a project outside the tree against it."""

import os
import pathlib
import subprocess
import tempfile
import unittest

CMAKE = os.environ.get("PERDURE_CMAKE", "cmake")
COMPILER = os.environ.get("PERDURE_CXX", "g++")
ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.environ.get("PERDURE_BUILD_DIR", str(ROOT / "build" / "release"))


class FindPackage(unittest.TestCase):
    def run_command(self, *command, cwd=None):
        done = subprocess.run(command, cwd=cwd, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 0, f"{' '.join(command)}\n{done.stdout}")
        return done.stdout

    def test_an_outside_project_builds_and_runs(self):
        with tempfile.TemporaryDirectory() as temporary:
            prefix = f"{temporary}/prefix"
            build = f"{temporary}/build"
            self.run_command(CMAKE, "--install", BUILD, "--prefix", prefix)
            self.run_command(
                CMAKE, "-G", "Ninja", "-S", str(ROOT / "tests" / "api" / "outside_project"),
                "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={COMPILER}",
                "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
            self.run_command(CMAKE, "--build", build)
            self.assertIn("found", self.run_command(f"{build}/outside", cwd=temporary))


if __name__ == "__main__":
    unittest.main()
