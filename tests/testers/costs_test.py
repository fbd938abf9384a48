"""What an operation of each engine costs, counted by the simulator: write-backs, fences,
allocations and lines must not rise by more than 2 % above tests/budgets/costs.txt."""

import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(os.environ["PERDURE_SOURCE_DIR"])
PROGRAM = pathlib.Path(os.environ["PERDURE_BUILD_DIR"]) / "testing" / "perdure-costs"
LEDGER = ROOT / "tests" / "budgets" / "costs.txt"
sys.path.insert(0, str(ROOT / "scripts"))
import bench_stats as stats  # noqa: E402
from engines import ENGINES  # noqa: E402

REWRITE = ("if the change is meant, say why in the commit and rewrite the ledger:\n"
           "  build/release/testing/perdure-costs > tests/budgets/costs.txt")
OPERATIONS = ("insert", "find", "find_missing", "update", "erase")
FIGURES = ("writebacks", "fences", "allocations", "lines")


def risen(ledger, figures):
    return stats.risen_counts(ledger, figures, stats.SIMULATED_SLACK)


class Costs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        done = subprocess.run([PROGRAM], text=True, capture_output=True, timeout=250, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{PROGRAM}: exit status {done.returncode}\n{done.stderr}")
        cls.figures = stats.parse_ledger(done.stdout)
        cls.ledger = stats.parse_ledger(LEDGER.read_text())

    def test_no_figure_rises(self):
        rises = risen(self.ledger, self.figures)
        listed = "\n".join(f"  {name}: {before:g} in the ledger, {after:g} now"
                           for name, before, after in rises)
        self.assertFalse(rises, f"costs rose by more than 2 %:\n{listed}\n{REWRITE}")

    def test_a_rise_of_any_figure_is_seen(self):
        for name, value in self.figures.items():
            more = {**self.figures, name: value * 1.03 + 0.001}
            self.assertEqual([rise[0] for rise in risen(self.figures, more)], [name])

    def test_ledger_names_every_figure(self):
        self.assertEqual(self.ledger.keys(), self.figures.keys(), REWRITE)

    def test_every_engine_is_there(self):
        engines = {name.split(".")[0] for name in self.figures}
        self.assertEqual(engines, set(ENGINES))
        for engine in engines:
            for operation in OPERATIONS:
                for figure in FIGURES:
                    self.assertIn(f"{engine}.{operation}.{figure}", self.figures)

    def test_what_must_cost_something_does(self):
        for name, value in self.figures.items():
            _, operation, figure = name.split(".")
            if operation in ("insert", "update", "erase") and figure in ("writebacks", "fences"):
                self.assertGreaterEqual(value, 1, name)
            if operation in ("find", "find_missing", "scan") and figure != "lines":
                self.assertEqual(value, 0, name)


if __name__ == "__main__":
    unittest.main()
