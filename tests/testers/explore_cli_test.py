"""perdure-explore as a program: green, red under a mutant, and a printed replay finds the same."""

import os
import pathlib
import re
import subprocess
import unittest

PROGRAM = pathlib.Path(os.environ["PERDURE_BUILD_DIR"]) / "testing" / "perdure-explore"


def run(*arguments, **environment):
    env = {k: v for k, v in os.environ.items() if k != "PERDURE_REPLAY"}
    return subprocess.run([str(PROGRAM), *arguments], text=True, capture_output=True,
                          env={**env, **environment}, timeout=250, check=False)


def figures(text):
    return dict(line.split("=") for line in text.splitlines())


class Explore(unittest.TestCase):
    def test_prints_figures(self):
        done = run("--part", "engine", "--only", "page", "--jobs", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = figures(done.stdout)
        self.assertGreater(int(found["phast.crash_images"]), 0)
        self.assertEqual(found["phast.violations"], "0")
        self.assertEqual(found["phast.leaks"], "0")
        self.assertGreater(int(found["phast.sites"]), int(found["phast.sites_crossed"]))
        self.assertGreater(float(found["phast.canary_seconds"]), 0)

    def test_mutant_is_red_and_replays(self):
        red = ("--part", "engine", "--only", "words", "--mutant", "phast.update.value:drop_flush")
        done = run(*red, "--jobs", "1")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertGreater(int(figures(done.stdout)["phast.violations"]), 0)
        lines = [line for line in done.stderr.splitlines() if "replay:" in line
                 and "canary" not in line]
        name, command = re.search(r"PERDURE_REPLAY='(\S+)' (\S.*)$", lines[-1]).groups()
        again = run(*command.split()[1:], PERDURE_REPLAY=name)
        self.assertEqual(again.returncode, 1, again.stdout + again.stderr)
        self.assertIn("1 images judged, 1 violations", again.stdout)
        right = run("--replay", name)  # the same image without the mutant
        self.assertNotEqual(right.returncode, 1, right.stderr)

    def test_mistakes_are_named(self):
        for arguments in (["--preset", "huge"], ["--part", "roof"], ["--engine", "steam"], ["x"],
                          ["--seed", "-1"], ["--jobs", "0"], ["--replay", "nothing"],
                          ["--replay", "fast.phast.nothing:1:p1.i0"],
                          ["--replay", "fast.phast.words:1:p1.i999999"]):
            done = run(*arguments)
            self.assertEqual(done.returncode, 2, (arguments, done.stdout, done.stderr))
            self.assertIn("perdure-explore [", done.stderr)

    def test_lists_its_explorations(self):
        done = run("--list", "--preset", "nightly")
        self.assertEqual(done.returncode, 0)
        names = done.stdout.split()
        self.assertEqual(len(names), len(set(names)))
        for name in ("nightly.heap.batch", "nightly.pool.shrink_page",
                     "nightly.phast.sequences.sparse.15"):
            self.assertIn(name, names)


if __name__ == "__main__":
    unittest.main()
