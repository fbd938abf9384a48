"""A rank of a distributed store is killed: mpirun reports it, and the next run opens every pool at
an agreed version. kill_worker.cc does the work and says what is checked.
"""

import glob
import os
import re
import tempfile
import unittest

from ranks import start

WORKER = os.environ["PERDURE_MPI_WORKER"]
LONG = "PERDURE_LONG" in os.environ


def scratch():
    """Memory where there is some to spare; else the default. As scratch() of support.h."""
    try:
        stat = os.statvfs("/dev/shm")
    except OSError:
        return None
    free = stat.f_bavail * stat.f_bsize
    return "/dev/shm" if free > 512 << 20 and os.access("/dev/shm", os.W_OK) else None


class KillTest(unittest.TestCase):
    copies = False    # the store has copies of its pools
    restores = False  # opens take them for lost pools

    def start(self, ranks, *arguments, late=None):
        environment = {} if late is None else {"PERDURE_MPI_LATE": str(late)}
        if self.copies:
            environment["PERDURE_MPI_COPIES"] = "1"
        if self.restores:
            environment["PERDURE_MPI_LOST"] = "1"
        return start(WORKER, ranks, *arguments, **environment)

    def kill_and_check(self, ranks, rank, kind, number, fatal_open=0, late=None,
                       programs=("run", "check"), opened_by=0, lost=None):
        run, check = programs
        self.restores = False
        with self.subTest(run=run, ranks=ranks, rank=rank, kind=kind, number=number, late=late), \
                tempfile.TemporaryDirectory(dir=scratch()) as folder:
            killed = self.start(ranks, run, folder, rank, kind, number, late=late)
            self.assertNotEqual(killed.returncode, 0, killed.stderr)
            # mpirun reports the loss. It knows the rank and its signal.
            self.assertRegex(killed.stderr, rf"process rank {rank}\b[\s\S]*signal 9")
            self.assertNotIn("wrong", killed.stderr)
            if opened_by:
                self.start(opened_by, "open", folder, opened_by - 1, "call", fatal_open)
                opened = self.start(opened_by, "open", folder, 0, "call", 0)
                self.assertIn("opened", opened.stdout, opened.stderr)
            if lost is not None:
                self.lose(folder, lost)
            if fatal_open and not opened_by:
                self.start(ranks, check, folder, (rank + 1) % ranks, "call", fatal_open)
            checked = self.start(ranks, check, folder, 0, "call", 0)
            self.assertEqual(checked.returncode, 0, checked.stderr)
            self.assertIn("whole", checked.stdout)

    def calls(self, ranks, programs=("run", "check")):
        """MPI calls of rank 0 in a run without a kill, whose store is then checked."""
        with tempfile.TemporaryDirectory(dir=scratch()) as folder:
            done = self.start(ranks, programs[0], folder, 0, "call", 0)
            self.assertEqual(done.returncode, 0, done.stderr)
            checked = self.start(ranks, programs[1], folder, 0, "call", 0)
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

    def test_one_of_three_is_killed_while_all_write(self):
        programs = ("write", "check-write")
        last = self.calls(3, programs)
        steps = range(1, last + 1) if LONG else range(last - 8, last + 1, 3)
        for i, call in enumerate(steps):
            self.kill_and_check(3, i % 3, "call", call, programs=programs)
        self.kill_and_check(3, 1, "action", 7, programs=programs)

    def test_one_of_three_is_killed_while_others_write_its_keys(self):
        programs = ("route", "check-route")
        last = self.calls(3, programs)
        parts = 40 if LONG else 6
        for i in range(1, parts):
            # Ranks do not make the same number of calls.
            self.kill_and_check(3, i % 3, "call", last * 4 * i // (5 * parts), programs=programs)
        for action in (2, 61, 299):
            self.kill_and_check(3, action % 3, "action", action, programs=programs)

    def test_another_number_of_ranks_opens_it_after_a_kill(self):
        last = self.calls(4)
        steps = range(1, last + 1) if LONG else [7, 11, *range(last // 3, last, last // 3)]
        for i, call in enumerate(steps):
            # Every second run is killed again while it opens.
            self.kill_and_check(4, i % 4, "call", call, opened_by=(2, 7, 3)[i % 3],
                                fatal_open=(0, 12 + i)[i % 2])
        self.kill_and_check(4, 2, "action", 164, opened_by=1)

    def test_one_of_three_is_killed_with_copies(self):
        self.copies = True
        last = self.calls(3)
        steps = range(1, last + 1) if LONG else range(17, last + 1, last // 3)
        for i, call in enumerate(steps):
            self.kill_and_check(3, i % 3, "call", call, fatal_open=(0, 12 + i % 20)[i % 2])

    def lose(self, folder, pool):
        for file in glob.glob(f"{folder}/store/rank-{pool:05}.perdure*"):
            os.remove(file)
        self.restores = True

    def last_of(self, ranks, folder, call=0):
        """The last version that a run has found that has tagged thrice; None if it was refused."""
        done = self.start(ranks, "tag", folder, ranks - 1, "call", call)
        found = re.search(r"last (\d+)", done.stdout)
        return int(found[1]) if found else None

    def test_a_rank_is_killed_while_a_store_begins_to_keep_copies(self):
        # The next run has no such option. Then a pool is lost: it comes back with all versions, or
        # the open refuses, but no version is taken back.
        for call in range(1, 60) if LONG else (34, 40, 43):
            with self.subTest(call=call), tempfile.TemporaryDirectory(dir=scratch()) as folder:
                self.copies = self.restores = False
                self.assertEqual(self.last_of(2, folder), 0)
                self.copies = True
                self.last_of(2, folder, call)
                self.copies = False
                last = self.last_of(2, folder)
                self.assertGreaterEqual(last, 3)
                self.lose(folder, call % 2)
                self.assertIn(self.last_of(2, folder), (None, last + 3))

    def test_a_pool_is_lost_with_one_of_three(self):
        self.copies = True
        last = self.calls(3)
        steps = range(1, last + 1) if LONG else range(9, last + 1, last // 4)
        for i, call in enumerate(steps):
            # Some are killed again while they make it from its copy.
            self.kill_and_check(3, i % 3, "call", call, fatal_open=(0, 12 + i % 25)[i % 2],
                                programs=("run", "check-lost"), lost=(i + i // 3) % 3)
        self.kill_and_check(3, 1, "action", 164, programs=("run", "check-lost"), lost=1)

    def test_one_of_four_is_killed_between_its_writes(self):
        for i, action in enumerate((1, 20, 41, 42, 163, 164, 246)):
            self.kill_and_check(4, i % 4, "action", action)

    def test_one_is_killed_when_another_has_not_left_the_collective_before(self):
        for action in (82, 164, 205, 246):
            self.kill_and_check(3, 1, "action", action, late=0)

    def test_the_only_one_is_killed(self):
        self.kill_and_check(1, 0, "action", 60)
        self.kill_and_check(1, 0, "call", 20)


if __name__ == "__main__":
    unittest.main()
