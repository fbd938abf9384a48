# test: uninstrumented
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
            if os.path.exists(f"{prefix}/include/perdure/mpi.h"):
                self.assertTrue(os.access(f"{prefix}/bin/perdure-mpi", os.X_OK))
                self.component_mpi(prefix, temporary)

    def component_mpi(self, prefix, temporary):
        """A project without perdure::mpi needs no MPI; a project with it can link it."""
        project = pathlib.Path(temporary) / "with_mpi"
        project.mkdir()
        (project / "main.cc").write_text(
            "#include <perdure/mpi.h>\n"
            "using perdure::mpi::IntegerStore;\n"
            "int main() { return IntegerStore::open(MPI_COMM_WORLD, \"x\") ? 1 : 0; }\n",
            encoding="utf-8")
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(with_mpi LANGUAGES CXX)\n"
            "find_package(perdure REQUIRED COMPONENTS ${components})\n"
            "add_executable(main main.cc)\ntarget_link_libraries(main PRIVATE perdure::mpi)\n",
            encoding="utf-8")

        def configure(folder, *options):
            return subprocess.run(
                [CMAKE, "-G", "Ninja", "-S", str(project), "-B", f"{temporary}/{folder}",
                 f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={COMPILER}", *options],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

        none = "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON"
        unasked = configure("unasked", none).stdout  # perdure is found, and has no mpi
        self.assertNotIn("perdure_FOUND", unasked)
        self.assertIn("perdure::mpi", unasked)
        refused = configure("refused", none, "-Dcomponents=mpi")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("mpi", refused.stdout)
        asked = configure("asked", "-Dcomponents=mpi")
        self.assertEqual(asked.returncode, 0, asked.stdout)
        self.run_command(CMAKE, "--build", f"{temporary}/asked")
        # open() reports that MPI has not been initialised.
        self.run_command(f"{temporary}/asked/main", cwd=temporary)


if __name__ == "__main__":
    unittest.main()
