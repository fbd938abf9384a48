"""The libraries of perdure for C++ and C, without the command line:

  conan create packaging/conan -s compiler.cppstd=23
"""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load


class Perdure(ConanFile):
    name = "perdure"
    description = "Crash-consistent indexes in a memory-mapped file"
    license = "Apache-2.0"
    topics = ("index", "key-value", "persistent-memory", "database")
    package_type = "static-library"  # beside it the C library, as a shared one
    settings = "os", "arch", "compiler", "build_type"

    @property
    def _tree(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        header = load(self, os.path.join(self._tree, "include", "perdure", "version.h"))
        self.version = re.search(r'PERDURE_VERSION "(.*)"', header)[1]

    def export_sources(self):
        for name in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*"):
            copy(self, name, self._tree, self.export_sources_folder)

    def validate(self):
        if self.settings.os != "Linux" or self.settings.arch != "x86_64":
            raise ConanInvalidConfiguration("perdure needs Linux on x86-64")
        check_min_cppstd(self, 23)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for option in ("TESTS", "TOOLS", "MPI", "LIBPMEM2", "WERROR"):
            toolchain.cache_variables[f"PERDURE_{option}"] = "OFF"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        # perdure's own CMake package, so that the targets are those of the documents.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "perdure")]
