"""Batches: all changes or none."""

import pytest

import perdure
from conftest import ENGINES


def test_changes_of_a_store(any_store):
    any_store.update(a=b"1", b=b"2", c=b"3")
    with any_store.batch() as batch:
        batch["a"] = b"10"
        batch.put("d", bytearray(b"4"))
        del batch["b"]
        batch.delete("absent")
        assert len(batch) == 4
        assert any_store["a"] == b"1"  # nothing before the commit
    assert dict(any_store) == {b"a": b"10", b"c": b"3", b"d": b"4"}
    assert len(batch) == 0


def test_get_sees_the_changes(any_store):
    any_store.update(a=b"1", b=b"2")
    with any_store.batch() as batch:
        batch["a"] = b"10"
        del batch["b"]
        assert batch.get("a") == b"10"
        assert batch.get("b") is None
        assert batch.get("b", default=b"none") == b"none"
        assert any_store["a"] == b"1"
        batch.clear()
        assert batch.get("a") == b"1"


def test_get_of_a_batch_of_a_pool(pool):
    store = pool.store("texts")
    numbers = pool.int_map("numbers")
    numbers[1] = 5
    with pool.batch() as batch:
        batch.put(numbers, 1, 6)
        batch.put(store, "a", b"x")
        assert batch.get(numbers, 1) == 6
        assert batch.get(numbers, 2) is None
        assert batch.get(store, "a") == b"x"
        with pytest.raises(TypeError):
            batch.get("a")


def test_the_last_change_of_a_key_counts(any_store):
    with any_store.batch() as batch:
        batch["a"] = b"1"
        batch["a"] = b"2"
        batch["b"] = b"1"
        del batch["b"]
        del batch["c"]
        batch["c"] = b"3"
    assert dict(any_store) == {b"a": b"2", b"c": b"3"}


def test_an_exception_discards(any_store):
    any_store["a"] = b"1"
    with pytest.raises(ZeroDivisionError):
        with any_store.batch() as batch:
            batch["a"] = b"2"
            batch["b"] = b"2"
            1 / 0
    assert len(batch) == 0
    batch.commit()
    assert dict(any_store) == {b"a": b"1"}


def test_require(any_store):
    any_store["a"] = b"1"

    def attempt(key, value):
        with any_store.batch() as batch:
            batch.require(key, value)
            batch["new"] = b"x"

    for key, value in [("a", b"2"), ("a", None), ("b", b""), ("b", b"1"), ("a", b"")]:
        with pytest.raises(perdure.ConflictError) as error:
            attempt(key, value)
        assert isinstance(error.value, perdure.Error)
        assert dict(any_store) == {b"a": b"1"}
    attempt("a", b"1")
    assert any_store.pop("new", None) == b"x"
    attempt("b", None)
    assert dict(any_store) == {b"a": b"1", b"new": b"x"}


def test_require_sees_the_state_before_the_batch(any_store):
    with pytest.raises(perdure.ConflictError):
        with any_store.batch() as batch:
            batch["a"] = b"1"
            batch.require("a", b"1")
    assert len(any_store) == 0


def test_commit_clear_and_reuse(any_store):
    batch = any_store.batch()
    batch["a"] = b"1"
    batch.clear()
    batch.commit()
    assert len(any_store) == 0
    batch["b"] = b"2"
    batch.commit()
    assert len(batch) == 0  # a second commit must not do it again
    del any_store["b"]
    batch.commit()
    assert len(any_store) == 0
    batch["b"] = b"2"
    batch.require("b", b"3")
    with pytest.raises(perdure.ConflictError):
        batch.commit()
    assert len(batch) == 2  # nothing was done, so it can be tried again
    any_store["b"] = b"3"
    batch.commit()
    assert dict(any_store) == {b"b": b"2"}
    with any_store.batch() as empty:
        pass
    assert len(empty) == 0


def test_arguments_are_copied(any_store):
    value = bytearray(b"before")
    with any_store.batch() as batch:
        batch["a"] = value
        value[:] = b"after!"
    assert any_store["a"] == b"before"


def test_across_maps(pool):
    stores = {engine: pool.store(engine, engine=engine) for engine in ENGINES}
    ints = pool.int_map("ints", keys="int64", values="float64")
    with pool.batch() as batch:
        for engine, store in stores.items():
            batch.put(store, "k", engine.encode())
        batch.put(ints, -3, 1.5)
        batch.delete(ints, 7)
        batch.require(ints, 9, None)
    assert {engine: store["k"] for engine, store in stores.items()} == {
        engine: engine.encode() for engine in stores}
    assert dict(ints.items()) == {-3: 1.5}
    with pytest.raises(perdure.ConflictError):
        with pool.batch() as batch:
            batch.require(ints, -3, 2.5)
            for store in stores.values():
                batch.delete(store, "k")
    assert all("k" in store for store in stores.values())
    with pool.batch() as batch:
        batch.require(ints, -3, 1.5)
        batch.delete(ints, -3)
        for store in stores.values():
            batch.delete(store, "k")
    assert [len(store) for store in stores.values()] + [len(ints)] == [0] * (len(ENGINES) + 1)


def test_many_changes(any_store, path):
    count = 5000
    with any_store.batch() as batch:
        for i in range(count):
            batch[b"%d" % i] = b"v%d" % i
        assert len(batch) == count
    assert len(any_store) == count
    any_store.close()
    with perdure.open(path) as again:
        assert dict(again) == {b"%d" % i: b"v%d" % i for i in range(count)}


def test_in_a_map_with_versions_a_batch_is_in_one_version(versioned):
    before = versioned.tag()
    with versioned.batch() as batch:
        batch["a"] = b"1"
        batch["b"] = b"2"
    after = versioned.tag()
    assert dict(versioned.at(before)) == {}
    assert dict(versioned.at(after)) == {b"a": b"1", b"b": b"2"}
    assert len({versioned.history(key)[0][0] for key in "ab"}) == 1


def test_wrong_arguments(store, pool_of_two):
    pool, one, ints = pool_of_two
    batch = store.batch()
    for call in (lambda: batch.put("a"), lambda: batch.put(), lambda: batch.put("a", b"1", b"2"),
                 lambda: batch.delete(), lambda: batch.delete("a", "b"), lambda: batch.require("a"),
                 lambda: batch.put(1, b"x"), lambda: batch.put("a", "str"),
                 lambda: batch.put("a", None), lambda: batch.delete(None),
                 lambda: batch.require("a", 5), lambda: batch.put(None, b"")):
        with pytest.raises(TypeError):
            call()
    wide = pool.batch()
    for call in (lambda: wide.put("a", b"1"), lambda: wide.put(None, "a", b"1"),
                 lambda: wide.put("map", "a", b"1"), lambda: wide.put(pool, "a", b"1"),
                 lambda: wide.put(one, 1, b"1"), lambda: wide.put(ints, "a", 1),
                 lambda: wide.put(ints, 1, b"x"), lambda: wide.put(ints, 1, None),
                 lambda: wide.__setitem__("a", b"1"), lambda: wide.__delitem__("a")):
        with pytest.raises(TypeError):
            call()
    for call in (lambda: wide.put(ints, -1, 1), lambda: wide.put(ints, 2**64, 1),
                 lambda: wide.put(ints, 1, 2**64), lambda: wide.delete(ints, -1)):
        with pytest.raises(OverflowError):
            call()
    # A call that raised has added nothing, and spoils nothing.
    assert len(batch) == 0 and len(wide) == 0
    batch["a"] = b"1"
    batch.commit()
    wide.put(ints, 1, 2)
    wide.commit()
    assert dict(store) == {b"a": b"1"} and dict(ints.items()) == {1: 2} and len(one) == 0


@pytest.fixture
def pool_of_two(disk_path):
    with perdure.Pool(disk_path) as pool:
        yield pool, pool.store("one"), pool.int_map("ints")


def test_a_map_of_another_pool(store, pool_of_two):
    pool, one, _ = pool_of_two
    with pytest.raises(perdure.InvalidArgumentError):
        with pool.batch() as batch:
            batch.put(one, "a", b"1")
            batch.put(store, "a", b"1")
    assert len(one) == 0 and len(store) == 0


def test_too_long(store):
    with pytest.raises(perdure.InvalidArgumentError):
        with store.batch() as batch:
            batch["a"] = b"1"
            batch[b"k" * 65536] = b"2"
    assert len(store) == 0


def test_closed(path, pool_of_two):
    pool, one, _ = pool_of_two
    batch = pool.batch()
    batch.put(one, "a", b"1")
    pool.close()
    with pytest.raises(perdure.ClosedError):
        batch.commit()
    with pytest.raises(perdure.ClosedError):
        batch.put(one, "b", b"1")
    batch.clear()
    del batch
    with perdure.Pool(pool.path) as again:
        assert len(again.store("one")) == 0


def test_commit_from_a_callback(store):
    store["a"] = b"1"
    batch = store.batch()
    batch["b"] = b"2"
    with pytest.raises(perdure.InvalidArgumentError):
        store.read("a", lambda view: batch.commit())
    assert dict(store) == {b"a": b"1"}
    batch.commit()
    assert dict(store) == {b"a": b"1", b"b": b"2"}
