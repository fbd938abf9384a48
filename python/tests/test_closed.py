"""Closed objects, and callbacks and iterables that misbehave."""

import gc

import pytest

import perdure
from conftest import run_script


def calls_of_a_store(store):
    return {
        "getitem": lambda: store["a"], "setitem": lambda: store.__setitem__("a", b""),
        "delitem": lambda: store.__delitem__("a"), "contains": lambda: "a" in store,
        "len": lambda: len(store), "iter": lambda: list(store), "get": lambda: store.get("a"),
        "put": lambda: store.put("a", b""), "insert": lambda: store.insert("b", b""),
        "replace": lambda: store.replace("a", b""), "discard": lambda: store.discard("a"),
        "pop": lambda: store.pop("a"), "pop default": lambda: store.pop("a", 1),
        "popitem": lambda: store.popitem(), "setdefault": lambda: store.setdefault("a", b""),
        "update": lambda: store.update(a=b""), "clear": lambda: store.clear(),
        "cas": lambda: store.compare_and_set("a", None, b""),
        "read": lambda: store.read("a", bytes), "modify": lambda: store.modify("a", lambda v: v),
        "get_many": lambda: store.get_many(["a"]), "set_many": lambda: store.set_many({"a": b""}),
        "delete_many": lambda: store.delete_many(["a"]), "keys": lambda: list(store.keys()),
        "values": lambda: list(store.values()), "items": lambda: list(store.items()),
        "len of keys": lambda: len(store.keys()), "in keys": lambda: "a" in store.keys(),
        "in items": lambda: ("a", b"") in store.items(), "bool": lambda: bool(store),
        "range": lambda: list(store.keys(prefix="a")), "reversed": lambda: list(reversed(store)),
        "len of range": lambda: len(store.keys(prefix="a")),
        "delete_range": lambda: store.delete_range(prefix="a"), "at": lambda: store.at(),
        "tag": lambda: store.tag(), "versions": lambda: store.versions(),
        "history": lambda: store.history("a"), "diff": lambda: store.diff(1, 1),
        "trim": lambda: store.trim(1), "rollback": lambda: store.rollback(1),
        "commit": lambda: commit(store),
    }


def commit(store):
    with store.batch() as batch:
        batch["a"] = b""


def calls_of_a_pool(pool):
    return {
        "store": lambda: pool.store(), "int_map": lambda: pool.int_map(), "maps": pool.maps,
        "drop": lambda: pool.drop("a"), "sync": pool.sync, "compact": pool.compact,
        "check": pool.check, "stats": pool.stats, "info": pool.info,
        "batch": lambda: pool.batch().commit(),
    }


def calls_of_ints(ints):
    return {
        "getitem": lambda: ints[1], "setitem": lambda: ints.__setitem__(1, 1),
        "delitem": lambda: ints.__delitem__(1), "contains": lambda: 1 in ints,
        "len": lambda: len(ints), "iter": lambda: list(ints), "get": lambda: ints.get(1),
        "put": lambda: ints.put(1, 1), "insert": lambda: ints.insert(1, 1),
        "discard": lambda: ints.discard(1), "add": lambda: ints.add(1),
        "find_many": lambda: ints.find_many([1]), "put_many": lambda: ints.put_many([1], [1]),
        "erase_many": lambda: ints.erase_many([1]), "pop": lambda: ints.pop(1, 0),
        "popitem": lambda: ints.popitem(), "clear": lambda: ints.clear(),
        "update": lambda: ints.update({1: 1}), "setdefault": lambda: ints.setdefault(1, 1),
        "items": lambda: list(ints.items()), "values": lambda: list(ints.values()),
        "reversed": lambda: list(reversed(ints)),
    }


def all_raise(calls, error_class):
    for name, call in calls.items():
        try:
            result = call()
        except error_class:
            continue
        except Exception as error:
            pytest.fail(f"{name}: {error!r}")
        pytest.fail(f"{name} returned {result!r}")


@pytest.mark.parametrize("engine", ["pskiplist", "phast", "clevel"])
def test_after_close(path, engine):
    store = perdure.open(path, engine=engine)
    ints = store.pool.int_map()
    store["a"] = b"1"
    ints[1] = 1
    calls = {**calls_of_a_store(store), **{f"ints {name}": call for name, call
                                           in calls_of_ints(ints).items()}}
    views = [store.keys(), store.items(), ints.values()]
    batch = store.batch()
    batch["a"] = b"2"
    store.close()
    assert store.closed and store.pool.closed and ints.closed
    all_raise(calls, perdure.ClosedError)
    all_raise(calls_of_a_pool(store.pool), perdure.ClosedError)
    all_raise({str(i): lambda view=view: list(view) for i, view in enumerate(views)},
              perdure.ClosedError)
    all_raise({"commit": batch.commit, "sync": store.sync}, perdure.ClosedError)
    for thing in (store, store.pool, ints, *views):
        assert "closed" in repr(thing)
    assert issubclass(perdure.ClosedError, ValueError)  # as of a closed file
    store.close()
    store.pool.close()
    with perdure.open(path) as again:
        assert dict(again) == {b"a": b"1"}


def test_closed_store_of_an_open_pool(pool):
    store = pool.store("s", engine="pskiplist")
    store["a"] = b"1"
    calls = calls_of_a_store(store)
    iterator = iter(store)
    store.close()
    assert store.closed and not pool.closed
    all_raise(calls, perdure.ClosedError)
    try:
        assert list(iterator) == [b"a"]  # an iterator may outlive the handle
    except perdure.ClosedError:
        pass
    assert dict(pool.store("s")) == {b"a": b"1"}


HOLDERS = ["iter(store)", "iter(store.items())", "iter(store.values(prefix='1'))",
           "reversed(store)", "iter(version)", "iter(version.items())", "version", "store.keys()",
           "version.keys()", "iter(ints)", "iter(ints.items())", "ints", "store.batch()"]


@pytest.mark.parametrize("then", ["store.close()", "store.close(); del store, ints, version",
                                  "del store, ints, version", ""])
def test_what_outlives_a_pool(path, then):
    """Iterators, views, versions and batches that live longer than their pool, in every order."""
    run_script("""
        import gc
        for number, expression in enumerate(sys.argv[3:]):
            store = perdure.open(f"{sys.argv[1]}{number}", engine="pskiplist")
            store.update((b"%d" % i, b"x" * 100) for i in range(2000))
            version, ints = store.at(store.tag()), store.pool.int_map()
            ints.update({i: i for i in range(2000)})
            held = eval(expression)
            walk = iter(held) if hasattr(held, "__iter__") else None
            if walk:
                next(walk)
            exec(sys.argv[2])
            gc.collect()
            if walk:
                closed = "close" in sys.argv[2]
                try:
                    count = sum(1 for _ in walk)
                    print(expression, count, file=sys.stderr)
                    assert not closed and count > 500
                except perdure.ClosedError:
                    assert closed
            if "ints" in globals():
                del ints
            del held, walk
            gc.collect()
        """, path, then, *HOLDERS)


def test_the_with_block_closes_after_an_error(path):
    with pytest.raises(ZeroDivisionError):
        with perdure.open(path) as store:
            store["a"] = b"1"
            1 / 0
    assert store.closed
    with perdure.open(path) as store:
        assert store["a"] == b"1"


class Custom(Exception):
    pass


def test_callbacks_that_raise(any_store):
    any_store["a"] = b"1"

    def fail(*arguments):
        raise Custom("from the callback")

    for call in (lambda: any_store.read("a", fail), lambda: any_store.modify("a", fail),
                 lambda: any_store.modify("b", fail)):
        with pytest.raises(Custom):
            call()
    with pytest.raises(KeyboardInterrupt):
        any_store.read("a", lambda view: (_ for _ in ()).throw(KeyboardInterrupt))
    any_store["a"] = b"2"  # no lock was left
    assert dict(any_store) == {b"a": b"2"}


def test_callbacks_of_read_may_read_only(any_store):
    any_store.update(a=b"1", b=b"2")
    pool = any_store.pool
    for call in (lambda: any_store.put("c", b""), lambda: any_store.discard("a"),
                 lambda: any_store.set_many({"c": b""}), any_store.clear, any_store.close,
                 pool.close, pool.sync, pool.compact, pool.check, lambda: pool.store("other"),
                 lambda: pool.drop("default"), lambda: pool.int_map(), pool.stats,
                 lambda: any_store.modify("a", lambda old: b"9"), lambda: commit(any_store)):
        with pytest.raises(perdure.InvalidArgumentError) as error:
            any_store.read("a", lambda view: call())
        assert not isinstance(error.value, perdure.ClosedError)
        assert dict(any_store) == {b"a": b"1", b"b": b"2"}
    nested = any_store.read("a", lambda view: (bytes(view), any_store.read("b", bytes),
                                               any_store["b"], "a" in any_store, len(any_store)))
    assert nested == (True, (b"1", (True, b"2"), b"2", True, 2))


def test_a_callback_of_modify_may_do_anything(any_store):
    any_store["a"] = b"1"

    def once(old):
        if old == b"1":
            any_store["a"] = b"2"  # another change: it is called again
        return old + b"x"

    assert any_store.modify("a", once) == b"2x"
    with pytest.raises(TypeError):
        any_store.modify("a", lambda old: "text")
    with pytest.raises(perdure.ClosedError):
        any_store.modify("a", lambda old: any_store.close() or b"3")


@pytest.mark.parametrize("keep", [
    "lambda view: view", "lambda view: view[1:3]", "lambda view: memoryview(view)",
    "lambda view: view.cast('c')", "lambda view: view.toreadonly()", "lambda view: iter(view)",
    "lambda view: np.frombuffer(view, 'u1')", "lambda view: np.asarray(view)[::2]",
    "lambda view: [view[:5], view[5:]]",
])
def test_a_callback_that_keeps_its_view(path, keep):
    """read() raises BufferError, or the kept view cannot be used. In neither case a crash."""
    out = run_script("""
        import numpy as np
        kept = []
        store = perdure.open(sys.argv[1])
        store["a"] = b"A" * 5000
        refused = False
        try:
            store.read("a", lambda view: kept.append(eval(sys.argv[2])(view)))
        except BufferError:
            refused = True
        for i in range(200):
            store["a"] = b"B" * 5000

        def use():
            for thing in kept[0] if isinstance(kept[0], list) else kept:
                return bytes(thing)

        for step in (lambda: None, store.close):
            try:
                step()
                data = use()
            except (ValueError, BufferError):
                refused = True
        if not refused:
            print("used after the callback", data[:10])
        """, path, keep)
    assert out == ""


def test_iterables_that_misbehave(any_store):
    any_store["a"] = b"1"

    def pairs(last):
        yield "b", b"2"
        last()
        yield "c", b"3"

    def fail():
        raise Custom

    for call in (lambda: any_store.set_many(pairs(fail)), lambda: any_store.update(pairs(fail)),
                 lambda: any_store.get_many(key for key, _ in pairs(fail)),
                 lambda: any_store.delete_many(key for key, _ in pairs(fail))):
        with pytest.raises(Custom):
            call()
    assert any_store["a"] == b"1"
    any_store.set_many(pairs(lambda: any_store.put("d", b"4")))
    any_store.set_many(pairs(lambda: any_store.get_many(["a"])))
    assert {key: any_store[key] for key in "abcd"} == {"a": b"1", "b": b"2", "c": b"3", "d": b"4"}
    any_store.delete_many(key for key, _ in pairs(any_store.clear))
    with pytest.raises(perdure.ClosedError):
        any_store.set_many(pairs(any_store.close))


def test_close_while_iterating(path):
    with perdure.open(path) as store:
        store.update((b"%d" % i, b"") for i in range(5000))
        with pytest.raises(perdure.ClosedError):
            for _ in store.items():
                store.close()
    with perdure.open(path) as store:
        assert len(store) == 5000
