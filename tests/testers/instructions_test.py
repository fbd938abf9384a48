# test: uninstrumented
"""How many instructions an operation of each engine takes, counted by callgrind: not more than 2 %
above tests/budgets/instructions.txt, of the skiplists 20 %, whose towers are random."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["PERDURE_SOURCE_DIR"])
PROGRAM = pathlib.Path(os.environ["PERDURE_BUILD_DIR"]) / "testing" / "perdure-instructions"
LEDGER = ROOT / "tests" / "budgets" / "instructions.txt"
CALLS = 2048  # of each operation: instructions.cc
sys.path.insert(0, str(ROOT / "scripts"))
import bench_stats as stats  # noqa: E402
from engines import ENGINES  # noqa: E402

REWRITE = ("if the change is meant, say why in the commit and rewrite the ledger:\n"
           "  tests/testers/instructions_test.py write")
HEADER = """\
# Instructions of one call of the C++ API, counted by callgrind (testing/engines/instructions.cc).
# tests/testers/instructions_test.py compares them; with the argument `write` it writes them.
"""
OPERATIONS = ("get", "missing", "put", "insert", "erase")
SKIPLISTS = ("as", "ascs", "pskiplist")


def counted():
    """Returns {engine.kind.operation: instructions of a call}."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        subprocess.run(["valgrind", "--tool=callgrind", "--instr-atstart=no",
                        f"--callgrind-out-file={folder}/out", PROGRAM, f"{folder}/pool"],
                       text=True, capture_output=True, timeout=250, check=True)
        figures = {}
        for part in pathlib.Path(folder).glob("out.*"):
            text = part.read_text()
            name = re.search(r"^desc: Trigger: Client Request: (\S+)$", text, re.M)
            total = re.search(r"^(?:totals|summary): (\d+)", text, re.M)
            if name and total:
                figures[name[1]] = int(total[1]) / CALLS
        return figures


def risen(ledger, figures):
    rises = []
    for name, before in ledger.items():
        slack = 1.2 if name.split(".")[0] in SKIPLISTS else 1.02
        if figures.get(name, 0) > before * slack + 1:
            rises.append((name, before, figures[name]))
    return rises


@unittest.skipUnless(shutil.which("valgrind") and PROGRAM.exists(), "valgrind is not installed")
class Instructions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.figures = counted()
        cls.ledger = stats.parse_ledger(LEDGER.read_text())

    def test_no_figure_rises(self):
        rises = risen(self.ledger, self.figures)
        listed = "\n".join(f"  {name}: {before:.1f} in the ledger, {after:.1f} now"
                           for name, before, after in rises)
        self.assertFalse(rises, f"operations take more instructions:\n{listed}\n{REWRITE}")

    def test_a_rise_of_any_figure_is_seen(self):
        for name, value in self.figures.items():
            more = {**self.figures, name: value * 1.25 + 2}
            self.assertEqual([rise[0] for rise in risen(self.figures, more)], [name])

    def test_ledger_names_every_figure(self):
        names = {f"{engine}.{kind}.{operation}" for engine in ENGINES
                 for kind in ("words", "strings") for operation in OPERATIONS}
        self.assertEqual(self.figures.keys(), names)
        self.assertEqual(self.ledger.keys(), names, REWRITE)


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        LEDGER.write_text(HEADER + "".join(f"{name}={value:.1f}\n"
                                           for name, value in sorted(counted().items())))
    else:
        unittest.main()
