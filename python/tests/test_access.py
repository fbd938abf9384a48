"""Pools of other processes, read-only pools, copies, and a file that is cut short."""

import os
import pathlib
import signal
import time

import pytest

import perdure
from conftest import run_script, start_script


def test_busy(disk_path):
    with perdure.open(disk_path) as store:
        store["a"] = b"1"
        out = run_script("""
            try:
                perdure.open(sys.argv[1])
            except perdure.BusyError as error:
                print(sys.argv[2] in str(error), error.code)
            """, disk_path, os.getpid())
        assert out.split() == ["True", "busy"]
        with pytest.raises(perdure.BusyError):
            perdure.Pool(disk_path)  # the same process
        begin = time.monotonic()
        with pytest.raises(perdure.BusyError):
            perdure.open(disk_path, timeout=0.1)
        assert time.monotonic() - begin >= 0.1
        for wrong in (-1, float("nan"), 1e9):
            with pytest.raises(ValueError, match="timeout"):
                perdure.open(disk_path, timeout=wrong)
        assert store["a"] == b"1"
    perdure.open(disk_path).close()


def test_an_open_waits_for_the_other_process(disk_path):
    child = start_script("""
        store = perdure.open(sys.argv[1])
        store["a"] = b"1"
        print("open", flush=True)
        time.sleep(0.3)
        store.close()
        """, disk_path)
    assert child.stdout.readline() == b"open\n"
    with perdure.open(disk_path, timeout=60) as store:
        assert store["a"] == b"1"
    assert child.wait() == 0


def test_a_wait_can_be_interrupted(disk_path):
    with perdure.open(disk_path):
        child = start_script("""
            print("waits", flush=True)
            try:
                perdure.open(sys.argv[1], timeout=600)
            except KeyboardInterrupt:
                print("interrupted")
            """, disk_path)
        assert child.stdout.readline() == b"waits\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=60)[0] == b"interrupted\n"


def test_read_only_beside_the_owner(disk_path):
    child = start_script("""
        store = perdure.open(sys.argv[1], durability="buffered")
        store.update({f"k{i}": b"k%d:" % i for i in range(1000)})
        store.pool.sync()
        print("ready", flush=True)
        sys.stdin.readline()
        for i in range(0, 1000, 2):
            del store[f"k{i}"]
        store.update({f"n{i}": b"n%d:" % i for i in range(1000)})
        store.pool.sync()
        print("changed", flush=True)
        sys.stdin.readline()
        store.close()
        """, disk_path)
    try:
        assert child.stdout.readline() == b"ready\n"
        with perdure.open(disk_path, mode="read_only") as store:
            child.stdin.write(b"\n")
            child.stdin.flush()
            assert child.stdout.readline() == b"changed\n"
            assert dict(store) == {b"k%d" % i: b"k%d:" % i for i in range(1000)}
            assert all(store.get(f"k{i}") == b"k%d:" % i for i in range(1000))
        with perdure.open(disk_path, mode="read_only") as store:  # a later cut
            assert len(store) == 1500 and "k0" not in store and store["n0"] == b"n0:"
    finally:
        child.communicate(b"\n", timeout=30)
    assert child.returncode == 0
    with perdure.open(disk_path) as store:
        assert len(store) == 1500


def test_read_only_beside_an_owner_without_cuts(disk_path):
    child = start_script("""
        store = perdure.open(sys.argv[1], durability="process")
        print("ready", flush=True)
        sys.stdin.readline()
        """, disk_path)
    try:
        assert child.stdout.readline() == b"ready\n"
        with pytest.raises(perdure.BusyError, match=f"process {child.pid} .*`buffered`"):
            perdure.open(disk_path, mode="read_only")
    finally:
        child.communicate(b"\n", timeout=30)
    with perdure.open(disk_path, mode="read_only"):
        with pytest.raises(perdure.BusyError, match="read by this process"):
            perdure.open(disk_path)
    perdure.open(disk_path).close()


def test_read_only(disk_path):
    with perdure.Pool(disk_path) as pool:
        pool.store("s")["a"] = b"1"
        pool.int_map("i")[1] = 2
        pool.store("v", engine="pskiplist").tag()
    before = pathlib.Path(disk_path).read_bytes()
    with perdure.Pool(disk_path, mode="read_only") as pool:
        store, ints, versions = pool.store("s"), pool.int_map("i"), pool.store("v")
        assert store["a"] == b"1" and ints[1] == 2 and list(store.items()) == [(b"a", b"1")]
        for call in (lambda: store.put("b", b""), lambda: store.__delitem__("a"), store.clear,
                     lambda: store.insert("b", b""), lambda: store.set_many({"b": b""}),
                     lambda: store.delete_many(["a"]), lambda: store.replace("a", b""),
                     lambda: store.compare_and_set("a", b"1", b"2"), lambda: ints.put(2, 2),
                     lambda: ints.put_many([3], [4]), lambda: ints.erase_many([1]),
                     lambda: ints.add(1), lambda: pool.drop("s"), pool.compact, versions.tag,
                     lambda: versions.trim(1), lambda: store.modify("a", lambda old: b"x"),
                     lambda: store.delete_range(prefix="a")):
            with pytest.raises(perdure.ReadOnlyError):
                call()
        with pytest.raises(perdure.ReadOnlyError):
            with store.batch() as batch:
                batch["a"] = b"9"
        with pytest.raises(perdure.NotFoundError):
            pool.store("absent")
        assert pool.check(deep=True)["ok"]
        pool.sync()
    assert pathlib.Path(disk_path).read_bytes() == before


def test_untrusted(disk_path):
    """A copy made while the pool is in use lacks what was not written back."""
    copy = disk_path + ".copy"
    with perdure.open(disk_path, durability="process") as store:
        store["a"] = b"1"
        pathlib.Path(copy).write_bytes(pathlib.Path(disk_path).read_bytes())
    with pytest.raises(perdure.UntrustedError):
        perdure.open(copy)
    with perdure.open(copy, accept_untrusted=True) as store:
        assert store["a"] == b"1"
    perdure.open(copy).close()


def test_a_file_that_is_cut_short(disk_path):
    out = run_script("""
        store = perdure.open(sys.argv[1], durability="process", handle_sigbus=True)
        store.update((b"%d" % i, b"x" * 1000) for i in range(20000))
        store.sync()
        os.truncate(sys.argv[1], 1 << 20)
        for call in (lambda: list(store.items()), lambda: store.put("a", b"1"), store.sync,
                     lambda: store.get_many(b"%d" % i for i in range(20000)), store.close):
            try:
                call()
            except perdure.PoisonedError as error:
                print(error.code)
        print(store.closed)
        """, disk_path)
    assert out.split() == ["poisoned"] * 5 + ["True"]
