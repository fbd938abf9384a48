"""Recorded histories: the checker's own tests, and a few histories that it must accept or refuse.

Without Go, or without the module that the checker needs, only what the recorder says is looked at.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

GUARD = pathlib.Path(os.environ["PERDURE_BUILD_DIR"]) / "perdure-guard"
CHECKER = pathlib.Path(os.environ["PERDURE_SOURCE_DIR"]) / "testing" / "lin" / "porcupine"
GO = shutil.which("go")
SANITIZED = bool(os.environ.get("PERDURE_SAN"))
VERSIONED = ("--engine", "pskiplist")


def go(*arguments):
    # Fetches nothing: `make setup-go` and `make lin` do that.
    return subprocess.run([GO, *arguments], cwd=CHECKER, text=True, capture_output=True,
                          env={**os.environ, "GOFLAGS": "-mod=mod", "GOPROXY": "off"},
                          timeout=250, check=False)


def record(*arguments):
    return subprocess.run([str(GUARD), "lin", *arguments], text=True, capture_output=True,
                          timeout=250, check=False)


def figures(line):
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", line)}


class Histories(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="perdure-lin-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def record(self, *arguments):
        """Histories in the folder; what the recorder prints last."""
        done = record("--out", self.folder, "--pool", self.folder, *arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return figures(done.stdout.splitlines()[-1])


class Recorder(Histories):
    def test_says_what_has_to_be_seen(self):
        plain = record("--engine", "phast", "--canaries", "--planted").stdout.split()
        versioned = record(*VERSIONED, "--canaries", "--planted").stdout.split()
        self.assertIn("stale_read", plain)
        self.assertNotIn("early_tag", plain)
        self.assertIn("early_tag", versioned)
        self.assertIn("pskiplist.tag.limit:drop_flush", versioned)

    def test_versions_are_recorded(self):
        found = self.record(*VERSIONED, "--histories", "2", "--ops", "5000")
        self.assertGreater(found["tags"], 0)
        self.assertGreater(found["version_reads"], found["tags"])
        found = self.record("--histories", "2", "--ops", "5000")
        self.assertEqual(found["tags"] + found["version_reads"], 0)

    def test_trims_are_judged(self):
        found = self.record(*VERSIONED, "--histories", "4", "--ops", "20000")
        self.assertGreater(found["trims"], 0)
        self.assertGreater(found["reads_of_trimmed"], 0)

    @unittest.skipIf(SANITIZED, "processes that are killed take too long")
    def test_versions_of_killed_processes_are_recorded(self):
        found = self.record(*VERSIONED, "--crashes", "12")
        self.assertGreater(found["tags"], 0)
        self.assertGreater(found["version_reads"], found["tags"])


@unittest.skipIf(GO is None or go("list", "-deps", ".").returncode != 0,
                 "no Go, or not the module that the checker needs: make setup-go lin")
class Checker(Histories):
    @unittest.skipIf(SANITIZED, "nothing of it is instrumented")
    def test_checker(self):
        done = go("test", "./...")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def assert_judged(self, expected):
        program = pathlib.Path(self.folder) / "porcupine"
        built = go("build", "-o", str(program), ".")
        self.assertEqual(built.returncode, 0, built.stderr)
        histories = map(str, sorted(pathlib.Path(self.folder).glob("*.lin")))
        judged = subprocess.run([str(program), "-expect", expected, *histories], text=True,
                                capture_output=True, timeout=250, check=False)
        self.assertEqual(judged.returncode, 0, judged.stdout)

    def test_right_histories(self):
        self.record(*VERSIONED, "--histories", "4", "--ops", "10000")
        if not SANITIZED:
            self.record(*VERSIONED, "--crashes", "12")
        self.assert_judged("ok")

    def test_canaries(self):
        for canary in record(*VERSIONED, "--canaries").stdout.split():
            with self.subTest(canary):
                self.record(*VERSIONED, "--histories", "2", "--ops", "30000", "--canary", canary)
                self.assert_judged("illegal")


if __name__ == "__main__":
    unittest.main()
