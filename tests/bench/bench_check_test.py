"""The statistics of scripts/bench_check.py on known samples, planted slowdowns and plain noise; the
load it refuses; and the mistakes that it names."""

import contextlib
import io
import os
import pathlib
import random
import subprocess
import sys
import unittest
from unittest import mock

ROOT = pathlib.Path(os.environ.get("PERDURE_SOURCE_DIR",
                                   pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(ROOT / "scripts"))
import bench_check  # noqa: E402
import bench_load  # noqa: E402
import bench_stats as stats  # noqa: E402

TURNS = 15


def ratios(generator, factor, noise, turns=TURNS):
    """As of two runs a turn, each of which is off by up to half of `noise`."""
    def run(speed):
        return speed * (1 + generator.uniform(-noise / 2, noise / 2))
    return [run(factor) / run(1) for _ in range(turns)]


class Interval(unittest.TestCase):
    def test_ranks_of_the_table(self):
        # Printed tables of the binomial distribution with p = 1/2.
        for n, k in ((5, 0), (6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (20, 6), (25, 8), (30, 10)):
            self.assertEqual(stats.interval_rank(n), k, n)

    def test_known_sample(self):
        values = [i / 100 for i in range(101, 116)]
        generator = random.Random(1)
        generator.shuffle(values)
        self.assertEqual(stats.median_interval(values), (1.08, 1.04, 1.12))

    def test_too_few_values_decide_nothing(self):
        median, lower, upper, verdict = stats.judge_ratios([0.5] * 5)
        self.assertEqual((median, verdict), (0.5, stats.UNRESOLVED))
        self.assertTrue(lower < 0 and upper > 1)

    def test_covers_the_median_as_often_as_it_says(self):
        generator = random.Random(2)
        covered = 0
        for _ in range(2000):
            _, lower, upper = stats.median_interval([generator.expovariate(1)
                                                     for _ in range(TURNS)])
            covered += lower <= 0.6931 <= upper
        self.assertGreater(covered, 2000 * 0.95)
        self.assertLess(covered, 2000 * 0.98)


class Verdicts(unittest.TestCase):
    def test_bounds(self):
        self.assertEqual(stats.verdict(0.90, 0.949), stats.FAIL)
        self.assertEqual(stats.verdict(0.90, 0.95), stats.UNRESOLVED)
        self.assertEqual(stats.verdict(0.949, 1.2), stats.UNRESOLVED)
        self.assertEqual(stats.verdict(0.95, 1.0), stats.OK)

    def test_planted_slowdown_fails(self):
        generator = random.Random(3)
        for _ in range(200):
            verdict = stats.judge_ratios(ratios(generator, 0.9, 0.06))[3]
            self.assertEqual(verdict, stats.FAIL)

    def test_slowdown_in_much_noise_is_not_called_ok(self):
        generator = random.Random(4)
        verdicts = [stats.judge_ratios(ratios(generator, 0.9, 0.12))[3] for _ in range(500)]
        self.assertLess(verdicts.count(stats.OK), 5)
        self.assertGreater(verdicts.count(stats.FAIL), 250)

    def test_tree_against_itself_passes(self):
        generator = random.Random(5)
        for _ in range(500):
            self.assertNotEqual(stats.judge_ratios(ratios(generator, 1, 0.12))[3], stats.FAIL)

    def test_one_slow_turn_decides_nothing(self):
        sample = [1.0] * 14 + [0.3]
        self.assertEqual(stats.judge_ratios(sample)[3], stats.OK)


class Counts(unittest.TestCase):
    def test_rise(self):
        before = {"a": 1.0, "b": 1.0, "c": 0.0, "gone": 1.0}
        after = {"a": 1.02, "b": 1.03, "c": 0.01, "new": 9.0}
        self.assertEqual(stats.risen_counts(before, after), [("b", 1.0, 1.03), ("c", 0.0, 0.01)])

    def test_ledger(self):
        text = "# a comment\nphast.insert.fences=1.05\n\nlevel.find.lines = 5\n"
        self.assertEqual(stats.parse_ledger(text),
                         {"phast.insert.fences": 1.05, "level.find.lines": 5})
        for wrong in ("phast.insert.fences", "phast.insert.fences=many"):
            with self.assertRaisesRegex(ValueError, "line 2: 'phast"):
                stats.parse_ledger("# \n" + wrong)


class FakeMachine:
    """A clock that stands still but for sleeps, and others that use so much of it."""

    def __init__(self, others):
        self.others = list(others)
        self.now = self.used = 0.0

    def sleep(self, seconds):
        self.now += seconds
        self.used += seconds * (self.others.pop(0) if len(self.others) > 1 else self.others[0])

    def watch(self, force=False):
        return bench_load.Watch(force, busy=lambda: self.used, own=lambda: 0.0,
                                clock=lambda: self.now, sleep=self.sleep)


class Load(unittest.TestCase):
    def test_idle(self):
        FakeMachine([0.02]).watch().require_idle()
        FakeMachine([1.5, 0.02]).watch().require_idle()  # what ran has ended

    def test_busy(self):
        with self.assertRaisesRegex(bench_load.BusyMachine, "processes use 1.50 processors"):
            FakeMachine([1.5]).watch().require_idle()
        FakeMachine([1.5]).watch(force=True).require_idle()

    def test_disturbed_turn_is_repeated(self):
        machine = FakeMachine([0.9, 0.0, 0.0])
        watch = machine.watch()
        turns = []
        watch.undisturbed(lambda: (machine.sleep(1), turns.append(1)))
        self.assertEqual((len(turns), watch.repeated), (2, 1))

    def test_disturbed_for_good(self):
        machine = FakeMachine([0.9, 0.0] * 100)  # a turn, a look
        with self.assertRaises(bench_load.BusyMachine):
            machine.watch().undisturbed(lambda: machine.sleep(1))

    def test_own_time_is_not_others(self):
        watch = bench_load.Watch(False, busy=iter([10.0, 14.0]).__next__,
                                 own=iter([1.0, 4.5]).__next__, clock=iter([0.0, 2.0]).__next__)
        self.assertEqual(watch.others(lambda: "done"), ("done", 0.25))

    def test_proc_stat(self):
        text = "cpu  100 20 30 9999 40 5 6 7 0 0\ncpu0 1 2 3\n"
        self.assertAlmostEqual(bench_load.busy_seconds(text) * bench_load.TICKS, 168)


class Turns(unittest.TestCase):
    """Whole comparisons, of programs that are made up."""

    def setUp(self):
        self.calls = []
        self.speeds = {"base": {"read": 1.0, "update": 1.0}, "tree": {"read": 1.0, "update": 1.0}}
        self.fences = {"base": 1.0, "tree": 1.0}
        self.generator = random.Random(6)
        patched = mock.patch.object(bench_check, "bench", self.bench)
        patched.start()
        self.addCleanup(patched.stop)

    def bench(self, program, options):
        self.calls.append((program, options))
        counts = dict.fromkeys(bench_check.COUNTS, 0.0)
        return {phase: {"mops": speed * self.generator.uniform(0.97, 1.03), **counts,
                        "fences_per_op": self.fences[program]}
                for phase, speed in self.speeds[program].items()}

    def compare(self):
        """(whether it fails, what it prints)."""
        runs = {"phast": "of phast", "level": "of level"}
        comparison = bench_check.Comparison("base", "tree", runs, FakeMachine([0]).watch(True))
        comparison.run(TURNS)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            return comparison.report(), out.getvalue()

    def test_equal_programs_take_turns(self):
        failed, text = self.compare()
        self.assertFalse(failed, text)
        self.assertEqual(len(self.calls), 2 * 2 * TURNS)
        of_phast = [program for program, options in self.calls if options == "of phast"]
        self.assertEqual(of_phast[:6], ["base", "tree", "tree", "base", "base", "tree"])
        self.assertIn("4 rows: 4 ok, 0 unresolved, 0 failed", text)

    def test_slower_phase_fails_after_more_turns(self):
        self.speeds["tree"]["update"] = 0.9
        failed, text = self.compare()
        self.assertTrue(failed)
        self.assertEqual(len(self.calls), 2 * 2 * 2 * TURNS)
        self.assertRegex(text, r"phast update +0\.[89]\d\d .* FAIL")
        self.assertIn("4 rows: 2 ok, 0 unresolved, 2 failed", text)

    def test_risen_count_fails(self):
        self.fences["tree"] = 1.05
        failed, text = self.compare()
        self.assertTrue(failed)
        self.assertIn("phast read, fences: 1 per operation before, 1.05 now   FAIL", text)

    def test_repeated_phases_are_one(self):
        counts = dict.fromkeys(bench_check.COUNTS, 2.0)
        phases = [{"name": "read", "operations": 4_000_000, "seconds": 1.0, **counts},
                  {"name": "read", "operations": 4_000_000, "seconds": 3.0, **counts}]
        self.assertEqual(bench_check.merged(phases), {"read": {"mops": 2.0, **counts}})


class Base(unittest.TestCase):
    def chosen(self, wanted, changes):
        replies = {"status": changes, "rev-parse": "abc\n"}
        with mock.patch.object(bench_check, "git",
                               side_effect=lambda *words: replies[words[0]]) as asked:
            bench_check.base_commit(wanted)
        return asked.call_args.args[-1]

    def test_default(self):
        self.assertEqual(self.chosen(None, ""), "HEAD~1^{commit}")
        self.assertEqual(self.chosen(None, " M src/a.cc\n"), "HEAD^{commit}")
        self.assertEqual(self.chosen("v1", " M src/a.cc\n"), "v1^{commit}")


class Arguments(unittest.TestCase):
    def refused(self, *arguments):
        done = subprocess.run([sys.executable, ROOT / "scripts" / "bench_check.py", *arguments],
                              text=True, capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr

    def test_mistakes(self):
        self.assertIn("use 15 or more", self.refused("--turns", "14"))
        self.assertIn("no --base", self.refused("--self", "2", "--base", "HEAD"))
        self.assertIn("usage", self.refused("--no-such-option"))

    @unittest.skipUnless((ROOT / ".git").exists(), "an unpacked archive has no commits")
    def test_unknown_commit(self):
        said = self.refused("--base", "no_such_commit")
        self.assertRegex(said, "no commit 'no_such_commit'|MiB are free")


if __name__ == "__main__":
    unittest.main()
