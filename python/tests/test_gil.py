"""Long calls release the GIL."""

import threading
import time

import numpy as np
import pytest

import perdure
from conftest import scale


def progress_during(call):
    """Runs call() in a thread. Returns the longest pause of this one, and how long it took."""
    done = threading.Event()

    def work():
        gate.wait()
        call()
        done.set()

    gate = threading.Barrier(2)
    thread = threading.Thread(target=work)
    thread.start()
    gate.wait()
    begin = last = time.perf_counter()
    longest = 0.0
    while not done.is_set():
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
        time.sleep(0.0005)
    thread.join()
    return longest, time.perf_counter() - begin


@pytest.mark.parametrize("name", ["sync", "set_many", "get_many", "count", "delete_range", "commit",
                                  "check", "find_many", "put_many", "big value", "close", "open"])
def test_the_gil_is_released(disk_path, name):
    """A long call does not stop another thread for most of its time."""
    store = perdure.open(disk_path)
    ints = store.pool.int_map()
    count = scale(150_000, 1_000_000)
    if name in ("count", "delete_range", "check", "open", "get_many"):
        keys = [b"%d" % i for i in range(count)]
        store.set_many((key, b"x" * 30) for key in keys)
    elif name in ("sync", "close"):
        store["big"] = b"x" * (200 << 20)
    words = np.random.default_rng(1).permutation(count * 8).astype(np.uint64)
    if name == "find_many":
        ints.put_many(words, words)
    batch = store.batch()
    if name == "commit":
        for i in range(count // 3):
            batch[b"%d" % i] = b"x"
    pairs = [(b"%d" % i, b"x" * 30) for i in range(count)] if name == "set_many" else None
    value = b"x" * (400 << 20) if name == "big value" else b""

    calls = {
        "sync": store.sync, "set_many": lambda: store.set_many(pairs),
        "get_many": lambda: store.get_many(keys), "count": lambda: len(store.keys(prefix="1")),
        "delete_range": store.delete_range, "commit": batch.commit,
        "check": lambda: store.pool.check(deep=True), "find_many": lambda: ints.find_many(words),
        "put_many": lambda: ints.put_many(words, words),
        "big value": lambda: store.put("v", value), "close": store.close,
        "open": lambda: perdure.open(disk_path).close(),
    }
    if name == "open":
        store.close()
    # set_many() reads the objects of its caller first. On a busy machine that takes about half of
    # one call, but not of each.
    attempts = 3 if name == "set_many" else 1
    longest, total = min((progress_during(calls[name]) for _ in range(attempts)),
                         key=lambda times: times[0] / times[1])
    store.close()
    if total > 0.03:  # else the call is too short to tell
        assert longest < max(0.5 * total, 0.03), f"stopped for {longest:.3f} s of {total:.3f} s"
