"""The power of some ranks' machines fails, and all ranks are killed. The pools have durability
`buffered`, so those ranks fall back to their last durable cut. The next open must find everything
that a collective has returned for. power_worker.cc does the work and says what is checked.

What a power failure takes of a pool is its live image. Without it the open goes back to the last
durable cut, as after a restart of the machine.
"""

import glob
import itertools
import os
import shutil
import tempfile
import unittest

from ranks import start

WORKER = os.environ["PERDURE_MPI_WORKER"]
LONG = "PERDURE_LONG" in os.environ
RANKS = 3
SUBSETS = [subset for size in range(1, RANKS + 1)
           for subset in itertools.combinations(range(RANKS), size)]
ALL = SUBSETS[-1]
OPEN, TAG, TAG_AGAIN, ROLLBACK, TAG_AFTER, TRIM, WRITE, LAST_TAG = range(8)
STEPS = range(TAG, LAST_TAG + 1)


class PowerTest(unittest.TestCase):
    def setUp(self):
        # A real disk: tmpfs has no durability `buffered`.
        self.disk = tempfile.TemporaryDirectory(dir=os.environ["PERDURE_BUILD_DIR"])
        self.addCleanup(self.disk.cleanup)
        self.begin("first")

    def begin(self, name, pools_of_rank=1, copies=False):
        """A new store."""
        self.pools_of_rank = pools_of_rank
        self.copies = copies
        self.lost = None  # the rank whose disk was lost since the last run
        self.folder = os.path.join(self.disk.name, name)
        os.mkdir(self.folder)
        self.failed = ()

    def run_until(self, rank, kind, step, n):
        """Runs on what the last run has left, which is checked, and until rank dies."""
        failed = "".join(map(str, self.failed)) or "none"
        pools = str(RANKS * self.pools_of_rank)
        environment = {} if self.pools_of_rank == 1 else {"PERDURE_MPI_POOLS": pools}
        if self.copies:
            environment["PERDURE_MPI_COPIES"] = "1"
        if self.lost is not None:
            environment["PERDURE_MPI_LOST"] = str(self.lost)
        done = start(WORKER, RANKS, self.folder, failed, rank, kind, step, n, **environment)
        told = f"rank {rank}, step {step}, {kind} {n}; failed before: {failed}\n{done.stderr}"
        self.assertNotIn("wrong", done.stderr, told)
        if n:
            self.assertRegex(done.stderr, r"process rank \d\b[\s\S]*signal 9", told)
        else:
            self.assertEqual(done.returncode, 0, told)
        # A run that died in its open leaves the same state to check.
        self.failed = self.failed if step == OPEN and n else ()
        self.lost = self.lost if step == OPEN and n else None

    def lose_disk(self, rank):
        """Its pool, and the copy of the pool of the rank before it."""
        for file in (f"rank-{rank:05}", f"copy-{(rank + RANKS - 1) % RANKS:05}"):
            for path in glob.glob(f"{self.folder}/store/{file}.perdure*"):
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        self.lost = rank

    def fail_power(self, subset, step):
        for rank in subset:
            for i in range(self.pools_of_rank):
                pool = rank * self.pools_of_rank + i
                images = glob.glob(f"{self.folder}/store/rank-{pool:05}.perdure-live*")
                self.assertTrue(step == OPEN or len(images) == 2, images)
                copy = (rank + RANKS - 1) % RANKS
                if self.copies:
                    images += glob.glob(f"{self.folder}/store/copy-{copy:05}.perdure-live*")
                for image in images:
                    os.remove(image)
        self.failed = tuple(sorted({*self.failed, *subset}))

    def trial(self, rank, kind, step, n, subset):
        self.run_until(rank, kind, step, n)
        self.fail_power(subset, step)

    def finish(self):
        self.run_until(0, "wait", OPEN, 0)

    def test_the_power_fails_while_a_store_is_made(self):
        subsets = SUBSETS if LONG else [(1,), ALL]
        moments = [*((OPEN, "wait", n) for n in (1, 2, 3)), (TAG, "put", 2)]
        for (step, kind, n), subset in itertools.product(moments, subsets):
            self.begin(f"{step}-{n}-{subset}")
            self.trial(1, kind, step, n, subset)
            self.finish()

    def test_the_power_fails_before_a_cut(self):
        for step, n in [(step, 1) for step in STEPS] + [(ROLLBACK, 2)]:
            # Twice: what the first trial leaves of a tag must not become a part of the second one.
            for rank in (2, 0):
                for subset in SUBSETS if LONG else [(rank,)]:
                    self.trial(rank, "wait", step, n, subset)
        self.finish()

    def test_the_power_fails_between_the_cuts_of_two_pools_of_a_rank(self):
        self.begin("two-pools", pools_of_rank=2)
        for step in STEPS if LONG else (TAG, ROLLBACK, TRIM, LAST_TAG):
            for n in (1, 2, 3, 4) if step == ROLLBACK else (1, 2):
                for subset in SUBSETS if LONG else [(1,)]:
                    self.trial(1, "wait", step, n, subset)
        self.finish()

    def test_a_node_is_lost(self):
        self.begin("copies", copies=True)
        for i, step in enumerate(STEPS):
            rank = i % RANKS
            for n in (1, 2, 3, 4) if LONG else (1 + i % 2,):
                # Of no other machine, of one, or of all.
                for subset in SUBSETS if LONG else [(), ((rank + 1) % RANKS,), ALL][i % 3:][:1]:
                    self.trial(rank, "wait", step, n, subset)
                    self.lose_disk(rank)
                    if i % 2:  # and again while it is made anew
                        self.trial((rank + 2) % RANKS, "wait", OPEN, 1 + i, ())
        self.finish()

    def test_the_power_fails_after_a_collective(self):
        for i, step in enumerate(STEPS):  # the one before it
            for subset in SUBSETS if LONG else [SUBSETS[i % len(SUBSETS)], ALL]:
                self.trial(i % RANKS, "put", step, 5, subset)
        self.finish()

    def test_the_power_fails_in_an_agreement(self):
        moments = [(step, n) for step in STEPS for n in (1, 2)]
        for i, (step, n) in enumerate(moments):
            for subset in SUBSETS if LONG else [SUBSETS[-1 - i % len(SUBSETS)]]:
                self.trial(i % RANKS, "call", step, n, subset)
        self.finish()

    def test_the_power_fails_again_in_the_next_open(self):
        before = [(ROLLBACK, 1), (TAG, 1), (TRIM, 1), (ROLLBACK, 2)]
        moments = itertools.product(before if LONG else before[:2], range(1, 6),
                                    SUBSETS if LONG else [None])
        for i, ((step, n), again, subset) in enumerate(moments):
            rank = i % RANKS
            # After a kill alone the open finds what is in no cut yet.
            self.trial(rank, "wait", step, n, () if i % 2 else ((rank + 1) % RANKS,))
            self.trial(rank, "wait", OPEN, again, subset or (rank,))
        self.finish()


if __name__ == "__main__":
    unittest.main()
