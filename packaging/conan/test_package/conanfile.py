"""Builds a program in C++ and one in C with the package, and runs them."""

import os

from conan import ConanFile
from conan.tools.cmake import CMake, cmake_layout


class TestPackage(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeToolchain", "CMakeDeps"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        for program in ("cpp_program", "c_program"):
            self.run(os.path.join(self.cpp.build.bindir, program), cwd=self.build_folder)
