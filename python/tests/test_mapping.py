"""Store as a MutableMapping, against dict, on every engine."""

import array
import collections.abc
import random

import numpy as np
import pytest

import perdure
from conftest import ORDERED


def filled(store, count=50):
    model = {b"key:%03d" % i: b"value %d" % i for i in range(count)}
    store.update(model)
    return model


def test_is_a_mutable_mapping(any_store):
    assert isinstance(any_store, collections.abc.MutableMapping)
    for name in collections.abc.MutableMapping.__abstractmethods__:
        assert hasattr(any_store, name)
    for name in ("get", "pop", "popitem", "clear", "update", "setdefault", "keys", "items",
                 "values", "__contains__", "__eq__"):
        assert callable(getattr(any_store, name))


def test_update_takes_what_dict_takes(any_store):
    class Row:  # as sqlite3.Row
        def keys(self):
            return ["a", "b"]

        def __getitem__(self, key):
            return key.upper().encode()

    any_store.update(Row(), c=b"C")
    assert dict(any_store) == {b"a": b"A", b"b": b"B", b"c": b"C"}
    assert any_store.set_many(Row()) == 0
    any_store.clear()
    any_store.update([("a", b"1")])
    any_store.update({"b": b"2"})
    assert dict(any_store) == {b"a": b"1", b"b": b"2"}


def test_union_and_copy_are_dicts(any_store):
    any_store.update(a=b"1", b=b"2")
    entries = {b"a": b"1", b"b": b"2"}
    assert any_store.copy() == entries
    assert any_store | {"b": b"3", "c": b"4"} == entries | {b"b": b"3", b"c": b"4"}
    assert {"b": b"3", "c": b"4"} | any_store == {b"b": b"2", b"c": b"4", b"a": b"1"}
    assert dict(any_store) == entries
    with pytest.raises(TypeError):
        any_store | [("a", b"1")]
    same = any_store
    same |= {"b": b"3"}
    assert same is any_store
    assert any_store["b"] == b"3"
    with pytest.raises(TypeError, match="perdure.open.*update"):
        perdure.Store.fromkeys(["a"])


def test_random_operations_as_dict(any_store):
    random.seed(7)
    model = {}

    def same(operation):
        """operation(mapping) gives the same result, or the same class of error, on both."""
        results = []
        for mapping in (any_store, model):
            try:
                results.append(operation(mapping))
            except Exception as error:
                results.append(type(error))
        assert results[0] == results[1]

    for step in range(1500):
        key = b"%d" % random.randrange(40)
        value = b"v%d" % step
        choice = random.randrange(10)
        if choice == 0:
            same(lambda m: m[key])
        elif choice <= 3:
            same(lambda m: m.__setitem__(key, value))
        elif choice == 4:
            same(lambda m: m.__delitem__(key))
        elif choice == 5:
            same(lambda m: m.pop(key))
        elif choice == 6:
            same(lambda m: m.pop(key, None))
        elif choice == 7:
            same(lambda m: m.setdefault(key, value))
        elif choice == 8:
            same(lambda m: m.update({key: value, b"u": value}))
        else:
            same(lambda m: (m.get(key), m.get(key, 5), key in m))
        same(len)
    assert dict(any_store) == model
    assert dict(any_store.items()) == model
    assert sorted(any_store.values()) == sorted(model.values())


def test_popitem_and_clear(any_store):
    model = filled(any_store)
    for _ in range(5):
        key, value = any_store.popitem()
        assert model.pop(key) == value
    assert dict(any_store) == model
    any_store.clear()
    assert len(any_store) == 0
    assert list(any_store) == []
    with pytest.raises(KeyError):
        any_store.popitem()


def test_update_forms(any_store):
    any_store.update({"a": b"1"}, b=b"2")
    any_store.update([("c", b"3")])
    any_store.update(((k, v) for k, v in [("d", b"4")]))
    any_store.update()
    assert dict(any_store) == {b"a": b"1", b"b": b"2", b"c": b"3", b"d": b"4"}


def test_setdefault_returns_bytes(any_store):
    assert any_store.setdefault("k") == b""
    assert any_store["k"] == b""
    assert any_store.setdefault("m", bytearray(b"x")) == b"x"
    assert any_store.setdefault("m", b"other") == b"x"


def test_single_key_calls(any_store):
    assert any_store.put("a", b"1") is True  # inserted
    assert any_store.put("a", b"2") is False  # replaced
    assert any_store.insert("a", b"3") is False
    assert any_store["a"] == b"2"
    assert any_store.insert("b", b"3") is True
    assert any_store.replace("c", b"4") is False
    assert "c" not in any_store
    assert any_store.replace("b", b"4") is True
    assert any_store["b"] == b"4"
    assert any_store.discard("b") is True
    assert any_store.discard("b") is False


def test_compare_and_set(any_store):
    assert any_store.compare_and_set("k", None, b"1")
    assert not any_store.compare_and_set("k", None, b"2")
    assert not any_store.compare_and_set("k", b"0", b"2")
    assert any_store["k"] == b"1"
    assert any_store.compare_and_set("k", b"1", b"2")
    assert any_store["k"] == b"2"
    assert not any_store.compare_and_set("k", b"1", None)
    assert any_store.compare_and_set("k", b"2", None)
    assert "k" not in any_store


def test_modify(any_store):
    assert any_store.modify("n", lambda old: (old or b"") + b"x") == b"x"
    assert any_store.modify("n", lambda old: (old or b"") + b"x") == b"xx"
    assert any_store["n"] == b"xx"
    seen = []
    assert any_store.modify("n", lambda old: seen.append(old)) is None
    assert seen == [b"xx"]
    assert "n" not in any_store
    assert any_store.modify("n", lambda old: None) is None


def test_many(any_store):
    assert any_store.set_many({"a": b"1", "b": b"2"}) == 2
    assert any_store.set_many([("b", b"3"), (b"c", b"4")]) == 1  # one was new
    assert any_store.get_many(["c", "x", b"b"]) == [b"4", None, b"3"]
    assert any_store.get_many(iter(["a"])) == [b"1"]
    assert any_store.delete_many(["a", "x", "a"]) == 1
    assert any_store.get_many([]) == []
    assert dict(any_store) == {b"b": b"3", b"c": b"4"}
    count = 3000  # more than a batch of the library
    assert any_store.set_many((b"%d" % i, b"v%d" % i) for i in range(count)) == count
    assert any_store.get_many(b"%d" % i for i in range(count)) == [
        b"v%d" % i for i in range(count)]
    assert any_store.delete_many(b"%d" % i for i in range(count)) == count
    assert len(any_store) == 2


def test_keys_as_str_and_bytes(any_store):
    any_store["ä€"] = b"1"
    assert any_store["ä€".encode()] == b"1"
    assert "ä€" in any_store and "ä€".encode() in any_store
    any_store[bytearray(b"ba")] = b"2"
    any_store[memoryview(b"mv")] = b"3"
    assert sorted(any_store) == sorted([b"ba", b"mv", "ä€".encode()])
    assert all(type(key) is bytes for key in any_store)


@pytest.mark.parametrize("value", [
    b"", b"\0", b"a\0b", b"x" * 15, b"y" * 4096, bytearray(b"bytearray"), memoryview(b"view"),
    memoryview(b"0123456789")[2:5], array.array("i", [1, 2, 3]), np.arange(10, dtype="<i4"),
    np.arange(6.0).reshape(2, 3), np.zeros(0),
], ids=lambda value: type(value).__name__)
def test_kinds_of_values(any_store, value):
    raw = memoryview(value).tobytes()
    any_store["k"] = value
    assert any_store["k"] == raw
    assert type(any_store["k"]) is bytes
    assert any_store.compare_and_set("k", value, b"next")
    assert any_store.set_many([("m", value)]) == 1
    assert any_store["m"] == raw
    found, seen = any_store.read("m", bytes)
    assert (found, seen) == (True, raw)


def test_empty_key_and_long_key(any_store):
    any_store[""] = b"empty"
    assert any_store[b""] == b"empty"
    longest = b"k" * 65535
    any_store[longest] = b"long"
    assert any_store[longest] == b"long"
    assert sorted(any_store) == [b"", longest]
    with pytest.raises(perdure.InvalidArgumentError):
        any_store[longest + b"k"] = b"too long"
    assert any_store.get(longest + b"k") is None
    assert longest + b"k" not in any_store
    del any_store[b""]
    assert list(any_store) == [longest]


def test_values_of_megabytes(any_store, path):
    value = random.Random(1).randbytes(3_000_001)
    any_store["big"] = value
    assert any_store["big"] == value
    any_store["big"] = value[::-1]
    assert any_store.get("big") == value[::-1]
    assert next(iter(any_store.values())) == value[::-1]
    engine = any_store.engine
    any_store.close()
    with perdure.open(path) as again:
        assert again.engine == engine
        assert again["big"] == value[::-1]


def test_keyerror_carries_the_key(any_store):
    for call in (lambda: any_store["gone"], lambda: any_store.__delitem__("gone"),
                 lambda: any_store.pop("gone")):
        with pytest.raises(KeyError) as error:
            call()
        assert error.value.args == ("gone",)


def test_read(any_store):
    any_store["k"] = b"value"

    def look(view):
        assert isinstance(view, memoryview) and view.readonly
        return view.nbytes, view[0]

    assert any_store.read("k", look) == (True, (5, ord("v")))
    assert any_store.read("absent", look) == (False, None)
    with pytest.raises(TypeError):
        any_store.read("k", lambda view: view.__setitem__(0, 1))
    assert any_store["k"] == b"value"
    assert any_store.read("k", lambda view: np.frombuffer(view, "u1").sum()) == (
        True, sum(b"value"))


def test_equality_and_truth(any_store):
    assert not any_store  # empty
    any_store["a"] = b"1"
    assert any_store
    assert any_store == any_store and any_store == {b"a": b"1"}  # by content, as all mappings
    assert any_store != {b"a": b"2"} and any_store != {} and any_store != 1
    with pytest.raises(TypeError):
        hash(any_store)
    assert any_store.name in repr(any_store) and any_store.engine in repr(any_store)


def test_reopen_keeps_everything(any_store, path):
    model = filled(any_store)
    engine = any_store.engine
    any_store.close()
    with perdure.open(path) as again:
        assert (again.engine, dict(again)) == (engine, model)
        assert again.ordered == (engine in ORDERED)
        assert again.versioned == (engine == "pskiplist")


def test_ranges_need_an_order(unordered_store):
    filled(unordered_store)
    for view in (unordered_store.keys(prefix="k"), unordered_store.items(start="a"),
                 unordered_store.values(limit=1), unordered_store.keys(reverse=True)):
        with pytest.raises(perdure.UnsupportedError):
            list(view)
        with pytest.raises(perdure.UnsupportedError):
            len(view)
    with pytest.raises(perdure.UnsupportedError):
        list(reversed(unordered_store))
    with pytest.raises(perdure.UnsupportedError):
        unordered_store.delete_range(prefix="k")
    assert len(unordered_store) == 50


def test_unordered_iteration_and_changes(unordered_store):
    model = filled(unordered_store)
    for key in unordered_store:  # all keys were read when the iteration began
        del unordered_store[key]
    assert len(unordered_store) == 0
    unordered_store.update(model)
    for key, value in unordered_store.items():
        assert model.pop(key) == value
    assert model == {}


def test_ordered_iteration_and_changes(ordered_store):
    filled(ordered_store)
    for key in ordered_store:
        del ordered_store[key]
    assert len(ordered_store) == 0
    filled(ordered_store)
    seen = []
    for key in ordered_store.keys():
        seen.append(key)
        ordered_store[b"a" + key] = b""  # in front of the position
    assert seen == sorted(set(seen))
    assert [key for key in seen if key.startswith(b"key")] == [b"key:%03d" % i for i in range(50)]
