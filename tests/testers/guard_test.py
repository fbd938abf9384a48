"""perdure-guard as a program: what its commands print, how they end, and what they find."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["PERDURE_BUILD_DIR"])
PROGRAM = BUILD / "perdure-guard"


def run(*arguments, **environment):
    env = {k: v for k, v in os.environ.items() if k != "PERDURE_REPLAY"}
    return subprocess.run([str(PROGRAM), *arguments], text=True, capture_output=True,
                          env={**env, **environment}, timeout=280, check=False)


def figures(text):
    found = re.findall(r"^(?:phast|pskiplist)\.(\w+)=(-?[\d.]+)$", text, re.M)
    return {name: float(value) for name, value in found}


class GuardTest(unittest.TestCase):
    def right(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def torture(self, *arguments):
        with tempfile.TemporaryDirectory(dir=BUILD) as folder:
            text = self.right("torture", "--dir", folder, *arguments)
            self.assertEqual(os.listdir(folder), [])
        return text

    def test_every_command_finds_its_planted_faults_and_runs(self):
        commands = re.findall(r"^  (\w+)", self.right("--help"), re.M)[:-2]
        self.assertIn("explore", commands)
        for check in ("canary", "smoke"):
            checked = re.findall(r"^(\w+) .*: right, ", self.right(check), re.M)
            self.assertEqual(list(dict.fromkeys(checked)), commands)

    def test_mistakes_are_named(self):
        for arguments in ("", "roof", "smoke roof", "explore x", "explore --preset huge",
                          "explore --part roof", "explore --engine steam", "explore --seed -1",
                          "explore --jobs 0", "explore --jobs", "explore --mutant phast.roof:none",
                          "explore --replay nothing", "explore --replay fast.phast.nothing:1:p1.i0",
                          "explore --replay fast.phast.words:1:p1.i999999", "torture --preset all",
                          "torture --engine phast --loose-versions", "lin", "lin --canary roof"):
            done = run(*arguments.split())
            self.assertEqual(done.returncode, 2, (arguments, done.stdout, done.stderr))
            self.assertRegex(done.stderr, r"(?m)^perdure-guard.*: .*; see perdure-guard.* --help$")

    def test_replays_find_what_was_found(self):
        mutant = {"explore": "phast.update.value:drop_flush",
                  "interleave": "level.erase.token:drop_fence"}
        for red in ("explore --part engine --only words --jobs 1",
                    "interleave --engine level --only InsertAndEraseAbsent --jobs 1"):
            command = red.split()[0]
            done = run(*red.split(), "--mutant", mutant[command])
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            name, again = re.findall(r"replay: PERDURE_REPLAY='(\S+)' (\S.*)$",
                                     done.stdout + done.stderr, re.M)[-1]
            replayed = run(*again.split()[1:], PERDURE_REPLAY=name)
            self.assertEqual(replayed.returncode, 1, replayed.stdout + replayed.stderr)
            if command == "explore":
                self.assertIn("1 images judged, 1 violations", replayed.stdout)
            right = run(*red.split(), PERDURE_REPLAY=name)  # the same image without the mutant
            self.assertNotEqual(right.returncode, 1, right.stdout + right.stderr)

    def test_explore_prints_figures(self):
        found = figures(self.right("explore", "--part", "engine", "--only", "page", "--jobs", "2"))
        self.assertGreater(found["crash_images"], 0)
        self.assertEqual(found["violations"] + found["leaks"], 0)
        self.assertGreater(found["sites"], found["sites_crossed"])
        self.assertGreater(found["canary_seconds"], 0)

    def test_explore_lists_its_explorations(self):
        names = self.right("explore", "--list", "--preset", "nightly").split()
        self.assertEqual(len(names), len(set(names)))
        for name in ("nightly.heap.batch", "nightly.pool.shrink_page",
                     "nightly.phast.sequences.sparse.15"):
            self.assertIn(name, names)

    def test_interleave_runs_what_it_is_asked_for(self):
        text = self.right("interleave", "--only", "UpsertAndFindThere")
        self.assertEqual(len(re.findall(r"^canary .*: red in", text, re.M)), 3)
        self.assertEqual(figures(text)["exhaustive_scenarios"], 2)
        self.assertGreater(figures(text)["schedules"], 1000)

    def test_torture_sees_planted_bugs_and_then_loses_nothing(self):
        for life in ("plain", "lossless", "plain --durability buffered"):
            text = self.torture("--cycles", "15", "--mode", *life.split())
            self.assertEqual(len(re.findall(r"^canary .*: red after", text, re.M)), 5)
            self.assertEqual(figures(text)["lost_acks"], 0)
            self.assertEqual(figures(text)["plain_kills"], 15)

    def test_torture_verifies_versions_where_an_engine_keeps_them(self):
        values = figures(self.torture("--engine", "pskiplist", "--cycles", "30"))
        self.assertEqual(values["keeps_versions"], 1)
        self.assertGreater(values["versions_verified"], 0)
        values = figures(self.torture("--cycles", "1"))
        self.assertEqual(values["keeps_versions"] + values["versions_verified"], 0)


if __name__ == "__main__":
    unittest.main()
