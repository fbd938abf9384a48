# test: uninstrumented
"""scripts/nightly.py: a wrong step stops nothing, and a run that was stopped goes on."""

import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import nightly  # noqa: E402


class NightlyTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.ran = self.folder / "ran"
        self.ran.touch()

    def step(self, word, status=0):
        return f"echo {word} >> {self.ran}; echo of {word}; exit {status}"

    def night(self, steps, commit="c1", again=False):
        """Runs the steps as a new process would. Returns the states, and what was run."""
        before = len(self.ran.read_text().split())
        night = nightly.Night(self.folder / "nightly", commit)
        rows = nightly.run(steps, night, again, say=lambda _: None)
        return [state for _, state, _ in rows], self.ran.read_text().split()[before:]

    def test_a_wrong_step_does_not_stop_the_others_and_is_run_again(self):
        steps = {"a b": self.step("one"), "c": self.step("two", 3), "d": self.step("three")}
        self.assertEqual(self.night(steps),
                         (["right", "WRONG (3)", "right"], ["one", "two", "three"]))
        self.assertEqual((self.folder / "nightly/a-b.txt").read_text(), "of one\n")
        self.assertEqual(self.night(steps),
                         (["right, earlier", "WRONG (3)", "right, earlier"], ["two"]))
        self.assertEqual(self.night(steps, again=True)[1], ["one", "two", "three"])

    def test_results_are_of_one_commit_and_one_command(self):
        self.night({"a": self.step("one")})
        self.assertEqual(self.night({"a": self.step("two")}), (["right"], ["two"]))
        self.assertEqual(self.night({"a": self.step("two")}, "c2"), (["right"], ["two"]))
        for _ in range(2):  # a checkout with changes
            self.assertEqual(self.night({"a": self.step("two")}, None), (["right"], ["two"]))

    def test_the_steps_exist(self):
        targets = set(re.findall(r"^([\w-]+)(?:[ \w-]*):", (ROOT / "Makefile").read_text(), re.M))
        commands = " && ".join(nightly.STEPS.values()).split(" && ")
        self.assertGreater(len(commands), len(nightly.STEPS) - 1)
        for command in commands:
            words = command.split()
            if words[0] == "make":
                self.assertLessEqual(set(words[1:]), targets, command)
            elif words[0].startswith("scripts/"):
                self.assertTrue((ROOT / words[0]).exists(), command)


if __name__ == "__main__":
    unittest.main()
