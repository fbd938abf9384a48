"""SIGKILL at random moments: what was acknowledged is there, and batches are whole."""

import random
import time

import pytest

import perdure
from conftest import ENGINES, scale, start_script

LOADER = """
import struct

def value(i):
    return b"%d " % i * (i * 37 % 300)

store = perdure.open(sys.argv[1], engine=sys.argv[2])
ints = store.pool.int_map("ints", engine=sys.argv[2])
tags = store.pool.int_map("tags")
for i in range(int(sys.argv[3]), 10**9):
    store[b"key %d" % i] = value(i)
    if i % 3 == 0:
        with store.batch() as batch:
            batch["x"] = b"%d" % i
            batch["y"] = b"%d" % i
            batch.put(b"key %d" % i, value(i + 1))
    if i % 5 == 0:
        store.set_many({b"many %d" % (i + j): b"%d" % j for j in range(5)})
    if i % 7 == 0:
        store.discard(b"key %d" % (i - 3))
    ints.add(0)
    if store.versioned and i % 50 == 0:
        tags[i] = store.tag()
    os.write(1, struct.pack("<q", i))
"""


def value(i):
    return b"%d " % i * (i * 37 % 300)


def expected_key(i, last):
    """The value of key i after step `last`, which is at or above i."""
    if (i + 3) % 7 == 0 and i + 3 <= last:
        return None
    return value(i + 1) if i % 3 == 0 else value(i)


def verify(path, engine, first, last):
    """The steps up to `last` were acknowledged; step last + 1 may have happened in part."""
    with perdure.open(path) as store:
        assert store.engine == engine
        assert not store.pool.info()["clean"]
        next_step = last + 1
        for i in range(first, last + 1):
            found = store.get(b"key %d" % i)
            if (i + 3) == next_step and next_step % 7 == 0:
                assert found in (None, expected_key(i, last)), i
            else:
                assert found == expected_key(i, last), i
            if i % 5 == 0:
                assert store.get_many(b"many %d" % (i + j) for j in range(5)) == [
                    b"%d" % j for j in range(5)], i
        assert store.get(b"key %d" % next_step) in (None, value(next_step), value(next_step + 1))
        for key in (b"key %d" % (next_step + 1), b"many %d" % (next_step + 5)):
            assert key not in store
        # The batch of step last + 1 is whole or absent, with all its keys.
        x, y = store["x"], store["y"]
        assert x == y
        if int(x) == next_step:
            assert store[b"key %d" % next_step] == value(next_step + 1)
        else:
            assert x == b"%d" % (last // 3 * 3)
        count = store.pool.int_map("ints")[0]
        assert count - (last + 1) in (0, 1)
        if store.versioned:
            for i, tag in store.pool.int_map("tags").items():
                with store.at(tag) as version:
                    assert version.get(b"key %d" % i) == expected_key(i, i)
                    assert b"key %d" % (i + 1) not in version
        assert store.pool.check(deep=True)["ok"]
        # The next loader does the step that was cut off again.
        store.pool.int_map("ints")[0] = last + 1


@pytest.mark.parametrize("engine", ENGINES)
def test_acknowledged_writes_survive(path, disk_path, engine):
    rng = random.Random(engine)
    for place in (path, disk_path) if engine in ("phast", "clevel") else (path,):
        last = -1
        for _ in range(scale(2, 25)):
            loader = start_script(LOADER, place, engine, last + 1)
            read = loader.stdout.read(8)
            assert len(read) == 8
            wanted = rng.randrange(200)
            for _ in range(wanted):
                loader.stdout.read(8)
            time.sleep(rng.random() * 0.003)
            loader.kill()
            rest = loader.stdout.read()
            loader.communicate()
            last += 1 + wanted
            if len(rest) >= 8:
                end = len(rest) // 8 * 8
                assert int.from_bytes(rest[:8], "little") == last + 1
                last = int.from_bytes(rest[end - 8:end], "little")
            verify(place, engine, 0, last)


def test_arrays_survive(path):
    """Each entry of put_many() is whole; after it has returned all are there."""
    rng = random.Random(9)
    for _ in range(scale(3, 20)):
        loader = start_script("""
            import numpy as np
            pool = perdure.Pool(sys.argv[1])
            ints = pool.int_map(keys="int64")
            for i in range(10**9):
                keys = np.arange(1000) - 500 + 1000 * i
                ints.put_many(keys, keys.astype(np.uint64) * np.uint64(3))
                os.write(1, b"x")
            """, path)
        assert loader.stdout.read(1 + rng.randrange(20))
        loader.kill()
        loader.communicate()
        with perdure.Pool(path) as pool:
            ints = pool.int_map(keys="int64")
            count = len(ints)
            assert count >= 1000
            for key, number in ints.items():
                assert number == key * 3 % 2**64
            assert list(ints.keys()) == list(range(-500, -500 + count)) or count % 1000 != 0
            ints.clear()


def test_a_killed_child_leaves_the_pool_free(path):
    child = start_script("""
        store = perdure.open(sys.argv[1])
        store["a"] = b"1"
        print("ready", flush=True)
        time.sleep(60)
        """, path)
    assert child.stdout.readline() == b"ready\n"
    with pytest.raises(perdure.BusyError):
        perdure.open(path)
    child.kill()
    child.communicate()
    with perdure.open(path) as store:
        assert store["a"] == b"1"
        assert store.pool.info()["clean"] is False
    with perdure.open(path) as store:
        assert store.pool.info()["clean"] is True


def test_a_kill_in_a_callback(path):
    for call in ("store.read('a', kill)", "store.modify('a', kill)",
                 "store.set_many(pairs())", "store.batch().__exit__(None, kill(0), None)"):
        child = start_script("""
            store = perdure.open(sys.argv[1])
            store["a"] = b"1"

            def kill(view):
                os.kill(os.getpid(), signal.SIGKILL)

            def pairs():
                yield "b", b"2"
                kill(0)

            eval(sys.argv[2])
            """, path, call)
        child.communicate()
        assert child.returncode == -9
        with perdure.open(path) as store:
            assert store["a"] == b"1"
            assert store.pool.check(deep=True)["ok"]
