"""A rank of a distributed store is killed: mpirun reports it, and the next run opens every pool at
an agreed version. kill_worker.cc does the work and says what is checked.
"""

import os
import re
import subprocess
import tempfile
import unittest

MPIEXEC = os.environ["PERDURE_MPIEXEC"].split()
WORKER = os.environ["PERDURE_MPI_WORKER"]
LONG = "PERDURE_LONG" in os.environ


class KillTest(unittest.TestCase):
    def start(self, ranks, *arguments):
        return subprocess.run(MPIEXEC + [str(ranks), WORKER, *map(str, arguments)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
                              check=False)

    def kill_and_check(self, ranks, rank, kind, number, fatal_open=0):
        with self.subTest(ranks=ranks, rank=rank, kind=kind, number=number), \
                tempfile.TemporaryDirectory() as folder:
            killed = self.start(ranks, "run", folder, rank, kind, number)
            self.assertNotEqual(killed.returncode, 0, killed.stderr)
            self.assertRegex(killed.stderr, "signal 9|Killed")  # the loss is reported
            self.assertNotIn("wrong", killed.stderr)
            if fatal_open:
                self.start(ranks, "check", folder, (rank + 1) % ranks, "call", fatal_open)
            checked = self.start(ranks, "check", folder, 0, "call", 0)
            self.assertEqual(checked.returncode, 0, checked.stderr)
            self.assertIn("whole", checked.stdout)

    def calls(self, ranks):
        """MPI calls of rank 0 in a run that nobody ends, which then is as it should be."""
        with tempfile.TemporaryDirectory() as folder:
            done = self.start(ranks, "run", folder, 0, "call", 0)
            self.assertEqual(done.returncode, 0, done.stderr)
            checked = self.start(ranks, "check", folder, 0, "call", 0)
            self.assertEqual(checked.returncode, 0, checked.stderr)
            return int(re.search(r"calls (\d+)", done.stdout)[1])

    def sweep(self, ranks, kills):
        last = self.calls(ranks)
        steps = range(1, last + 1) if LONG else range(ranks, last + 1, max(1, last // kills))
        for i, call in enumerate(steps):
            # Some of them are killed again while they open.
            again = 18 + i if i % 3 == 0 else 0
            self.kill_and_check(ranks, i % ranks, "call", call, fatal_open=again)

    def test_one_of_two_is_killed_in_its_calls(self):
        self.sweep(2, 6)

    def test_one_of_three_is_killed_in_its_calls(self):
        self.sweep(3, 5)

    def test_one_of_seven_is_killed_in_its_calls(self):
        self.sweep(7, 2)

    def test_one_of_four_is_killed_between_its_writes(self):
        for i, action in enumerate((1, 20, 41, 42, 163, 164, 246)):
            self.kill_and_check(4, i % 4, "action", action)

    def test_the_only_one_is_killed(self):
        self.kill_and_check(1, 0, "action", 60)
        self.kill_and_check(1, 0, "call", 20)


if __name__ == "__main__":
    unittest.main()
