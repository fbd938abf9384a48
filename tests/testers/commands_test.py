"""perdure-torture and perdure-interleave as commands: what they print and how they end."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(os.environ.get("PERDURE_BUILD_DIR", "build/release"))


def run(program, *arguments):
    done = subprocess.run([BUILD / program, *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=280, check=False)
    values = dict(re.findall(r"^(?:phast|pskiplist)\.(\w+)=([\d.]+)$", done.stdout, re.M))
    return done, {name: float(value) for name, value in values.items()}


class CommandsTest(unittest.TestCase):
    def torture(self, *arguments):
        with tempfile.TemporaryDirectory(dir=BUILD) as folder:
            done, values = run("perdure-torture", "--dir", folder, *arguments)
            self.assertEqual(os.listdir(folder), [])
        return done, values

    def test_torture_sees_planted_bugs_and_then_loses_nothing(self):
        for mode, *durability in (("plain", ), ("lossless", ), ("lossy", ),
                                  ("plain", "--durability", "buffered")):
            done, values = self.torture("--mode", mode, "--cycles", "15", *durability)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(len(re.findall(r"^canary .*: red after", done.stdout, re.M)), 5)
            self.assertEqual(values["lost_acks"], 0)
            kills = values["lossy_kills"] if mode == "lossy" else values["plain_kills"]
            self.assertEqual(kills, 15)

    def test_torture_verifies_versions_where_an_engine_keeps_them(self):
        _, values = self.torture("--engine", "pskiplist", "--mode", "lossy", "--cycles", "30")
        self.assertEqual(values["keeps_versions"], 1)
        self.assertGreater(values["versions_verified"], 0)
        _, values = self.torture("--cycles", "1")
        self.assertEqual(values["keeps_versions"], 0)
        self.assertEqual(values["versions_verified"], 0)

    def test_torture_ends_with_1_where_something_is_lost(self):
        for planted in (["--mode", "plain", "--early-ack"],
                        ["--mode", "plain", "--early-ack", "--durability", "buffered"],
                        ["--engine", "pskiplist", "--mode", "plain", "--loose-versions"],
                        ["--mode", "lossy", "--keys", "integer",
                         "--mutant", "phast.insert.entry:drop_flush"]):
            done, values = self.torture("--cycles", "300", *planted)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertEqual(values["lost_acks"], 1)

    def test_interleave_runs_what_it_is_asked_for(self):
        done, values = run("perdure-interleave", "--only", "P1_LastSlotOfALeaf")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len(re.findall(r"^canary .*: red in", done.stdout, re.M)), 3)
        self.assertEqual(values["exhaustive_scenarios"], 1)
        self.assertGreater(values["schedules"], 1000)
        self.assertEqual(values["schedule_violations"], 0)

    def test_mistakes_in_the_arguments_end_with_2(self):
        for program in ("perdure-torture", "perdure-interleave"):
            for mistake in (["--no-such-option", "1"], ["--preset", "all"], ["--engine", "none"]):
                done, _ = run(program, *mistake)
                self.assertEqual(done.returncode, 2, f"{program} {mistake}")
                self.assertIn(program, done.stderr)
        done, _ = run("perdure-torture", "--engine", "phast", "--loose-versions")
        self.assertEqual(done.returncode, 2, "an engine without versions")


if __name__ == "__main__":
    unittest.main()
