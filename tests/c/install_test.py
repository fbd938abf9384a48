"""Installs the build into an empty prefix. pkg-config then gives what a compiler of C99 or of C++23
needs: the first program of docs/c.md and the examples are built outside the tree, and run."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

CMAKE = os.environ.get("PERDURE_CMAKE", "cmake")
ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.environ.get("PERDURE_BUILD_DIR", str(ROOT / "build" / "release"))
STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1"]
COMPILERS = [name for name in ("cc", "clang-19") if shutil.which(name)]


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.prefix = cls.folder / "a prefix"
        subprocess.run([CMAKE, "--install", BUILD, "--prefix", str(cls.prefix)], check=True,
                       stdout=subprocess.DEVNULL)
        cls.libraries = next(cls.prefix.rglob("libperdure.so.0")).parent

    def run_command(self, *command, environment=None):
        done = subprocess.run(command, cwd=self.folder, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False,
                              env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, 0, f"{' '.join(map(str, command))}\n{done.stdout}")
        return done.stdout

    def pkg_config(self, *arguments, package="perdure"):
        printed = self.run_command(
            "pkg-config", *arguments, package,
            environment={"PKG_CONFIG_PATH": str(self.libraries / "pkgconfig")})
        return shlex.split(printed)

    def first_program(self):
        text = (ROOT / "docs" / "c.md").read_text(encoding="utf-8")
        source = self.folder / "first.c"
        source.write_text(re.search(r"```c\n(#include.*?)```", text, re.S)[1], encoding="utf-8")
        return source

    def build(self, compiler, source, program, *link):
        self.run_command(compiler, *STRICT, *self.pkg_config("--cflags"), str(source), "-o",
                         str(self.folder / program), *link)
        return str(self.folder / program)

    def test_a_program_links_the_shared_library(self):
        shared = {"LD_LIBRARY_PATH": str(self.libraries)}
        for compiler in COMPILERS:
            first = self.build(compiler, self.first_program(), "first",
                               *self.pkg_config("--libs"))
            self.assertEqual(self.run_command(first, environment=shared), "ada: 36\n")
            self.assertIn("libperdure.so.0", self.run_command("readelf", "-d", first))
        quick = self.build("cc", ROOT / "examples" / "quickstart.c", "quick",
                           *self.pkg_config("--libs"))
        self.assertIn("are there", self.run_command(quick, environment=shared))
        # The command line reads what C has written.
        cli = str(self.prefix / "bin" / "perdure")
        self.assertEqual(self.run_command(cli, "get", "users.perdure", "ada"), "36\n")

    def test_a_program_links_the_static_library(self):
        variable = self.pkg_config("--variable=static_libs")
        first = self.build("cc", self.first_program(), "static", *variable)
        self.assertEqual(self.run_command(first), "ada: 36\n")
        self.assertNotIn("libperdure", self.run_command("readelf", "-d", first))

    def test_a_static_program_is_linked_or_not_offered(self):
        static = self.pkg_config("--static", "--libs")
        if "-lpmem2" in self.pkg_config("--variable=static_libs"):
            self.assertEqual(static, self.pkg_config("--libs"))
        else:
            first = self.build("cc", self.first_program(), "whole", "-static", *static)
            self.assertEqual(self.run_command(first), "ada: 36\n")
            self.assertNotIn("NEEDED", self.run_command("readelf", "-d", first))

    def test_a_program_of_cpp_links_by_pkg_config(self):
        compilers = [name for name in ("g++", "clang++-19") if shutil.which(name)]
        self.assertTrue(compilers)
        for compiler in compilers:
            program = str(self.folder / f"quick-{compiler}")
            self.run_command(compiler, "-std=c++23", "-Wall", "-Wextra", "-Werror",
                             str(ROOT / "examples" / "quickstart.cc"), "-o", program,
                             *self.pkg_config("--cflags", "--libs", package="perdure-cpp"))
            self.assertIn("are there", self.run_command(program))
            self.assertNotIn("libperdure", self.run_command("readelf", "-d", program))

    def test_a_program_opens_the_library_while_it_runs(self):
        plugin = self.build("cc", ROOT / "examples" / "plugin.c", "plugin", "-ldl")
        self.assertEqual(self.run_command(plugin, str(self.libraries / "libperdure.so.0")),
                         "ada: 36\n")

    def test_a_cmake_project_of_c_finds_the_library(self):
        project = self.folder / "project"
        project.mkdir()
        shutil.copy(self.first_program(), project / "first.c")
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(first LANGUAGES C)\n"
            "set(CMAKE_C_STANDARD 99)\nfind_package(perdure REQUIRED)\n"
            "add_executable(first first.c)\ntarget_link_libraries(first PRIVATE perdure::c)\n",
            encoding="utf-8")
        self.run_command(CMAKE, "-G", "Ninja", "-S", str(project), "-B", str(project / "build"),
                         f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.run_command(CMAKE, "--build", str(project / "build"))
        self.assertEqual(self.run_command(str(project / "build" / "first")), "ada: 36\n")

    def test_the_version_is_that_of_the_header(self):
        header = (self.prefix / "include" / "perdure" / "version.h").read_text(encoding="utf-8")
        self.assertIn(f'"{self.pkg_config("--modversion")[0]}"', header)


if __name__ == "__main__":
    unittest.main()
