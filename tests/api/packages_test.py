# test: uninstrumented
"""Each file that is installed belongs to one Debian package, or to none on purpose. The other
recipes in packaging/ have the version of the headers, and options that exist."""

import fnmatch
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

CMAKE = os.environ.get("PERDURE_CMAKE", "cmake")
ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PERDURE_BUILD_DIR", str(ROOT / "build" / "release")))
PACKAGING = ROOT / "packaging"


def patterns():
    """name of a list -> its patterns; "not-installed" is one of them."""
    lists = [*PACKAGING.glob("debian/*.install"), PACKAGING / "debian" / "not-installed"]
    return {path.stem: path.read_text(encoding="utf-8").split() for path in lists}


def owners(path, lists):
    """The lists that a path is in: itself, or a folder above it. What is left out on purpose is in
    no other list."""
    found = [name for name, globs in lists.items()
             if any(fnmatch.fnmatch(path, one) or path.startswith(one + "/")
                    or fnmatch.fnmatch(path, one + "/*") for one in globs)]
    return ["not-installed"] if "not-installed" in found else found


def installed():
    """The files of the build, under the names that Debian gives their folders."""
    cache = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
    libraries = re.search(r"^CMAKE_INSTALL_LIBDIR:\w+=(.*)$", cache, re.M)[1]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([CMAKE, "--install", str(BUILD), "--prefix", folder, "--component",
                        "Unspecified"], check=True, stdout=subprocess.DEVNULL)
        names = [str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*")
                 if not path.is_dir()]
    return ["usr/" + re.sub(rf"^{re.escape(libraries)}/", "lib/any/", name) for name in names]


class Packages(unittest.TestCase):
    def test_each_installed_file_is_in_one_package(self):
        names, lists = installed(), patterns()
        self.assertIn("usr/include/perdure/c.h", names)
        wrong = {name: found for name in names if len(found := owners(name, lists)) != 1}
        self.assertEqual(wrong, {}, "add them to a list in packaging/debian")
        used = {found for name in names for found in owners(name, lists)}
        self.assertLessEqual({"libperdure0", "libperdure-dev", "perdure-tools"}, used)

    def test_a_file_in_no_package_or_in_two_is_found(self):
        lists = patterns()
        self.assertEqual(owners("usr/bin/perdure-new", lists), [])
        self.assertEqual(owners("usr/lib/any/libperdure_new.a", lists), [])
        lists["perdure-tools"].append("usr/include/perdure/c.h")
        self.assertEqual(len(owners("usr/include/perdure/c.h", lists)), 2)

    def test_the_port_has_the_version_of_the_headers(self):
        port = json.loads((PACKAGING / "vcpkg" / "vcpkg.json").read_text(encoding="utf-8"))
        header = (ROOT / "include" / "perdure" / "version.h").read_text(encoding="utf-8")
        self.assertIn(f'"{port["version-semver"]}"', header)

    def test_the_options_exist(self):
        known = (ROOT / "cmake" / "options.cmake").read_text(encoding="utf-8")
        recipes = ["debian/rules", "vcpkg/portfile.cmake", "conan/conanfile.py"]
        for recipe in recipes:
            text = (PACKAGING / recipe).read_text(encoding="utf-8")
            options = re.findall(r"-D(PERDURE_\w+)", text)
            options += [f"PERDURE_{name}" for listed in re.findall(r"for option in \((.*)\):", text)
                        for name in re.findall(r"\w+", listed)]
            self.assertGreaterEqual(len(options), 3, recipe)
            for option in options:
                self.assertRegex(known, rf"\b{option}\b", recipe)


if __name__ == "__main__":
    unittest.main()
