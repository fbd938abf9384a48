"""ObjectStore: values by a serializer, keys as str; what cannot be encoded or decoded."""

import collections.abc
import copy
import json
import os
import pickle
import threading

import numpy as np
import pytest

import perdure
from conftest import ENGINES

VALUES = {"text": "é\ud800", "list": [1, [2.5, None]], "dict": {"a": {"b": True}}, "false": False,
          "zero": 0, "empty": "", "number": 2**80}


@pytest.fixture(params=["json", "pickle", (pickle.dumps, pickle.loads)], ids=str)
def objects(request, path):
    with perdure.open(path, serializer=request.param, keys=str) as objects:
        yield objects


@pytest.fixture
def users(path):
    """With keys of bytes, and JSON."""
    with perdure.open(path, serializer="json") as users:
        yield users


def test_round_trip(objects, path):
    objects.update(VALUES)
    assert objects == VALUES and dict(objects) == VALUES and len(objects) == len(VALUES)
    assert list(objects) == sorted(VALUES) and isinstance(objects, collections.abc.MutableMapping)
    assert list(objects.items(prefix="e")) == [("empty", "")]
    assert list(objects.values(start="n", stop="u")) == [2**80, VALUES["text"]]
    assert list(objects.keys(reverse=True, limit=1)) == ["zero"]
    for key, value in VALUES.items():
        assert objects[key] == objects.get(key.encode()) == value and key in objects
    assert objects.get_many(["zero", "none", b"list"]) == [0, None, [1, [2.5, None]]]
    assert objects.copy() == objects | {} == {} | objects == VALUES
    assert objects | {b"zero": 1} == {**VALUES, "zero": 1}
    stored = dict(objects.store)
    assert all(type(value) is bytes for value in stored.values())
    objects.close()
    with perdure.open(path) as store:
        assert dict(store) == stored


def test_json_is_compact_and_plain(users):
    users["a"] = {"b": [1, "é"]}
    assert users.store["a"] == b'{"b":[1,"\\u00e9"]}'
    assert list(users) == [b"a"] and users[b"a"] == {"b": [1, "é"]}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_calls_of_a_dict(path, engine):
    with perdure.open(path, engine=engine, serializer="json", keys=str) as objects:
        assert objects.put("a", [1]) and not objects.put("a", [2])
        assert objects.insert("b", 1) and not objects.insert("b", 2)
        assert objects.replace("b", 3) and not objects.replace("c", 4)
        assert objects.setdefault("b", 5) == 3 and objects.setdefault("c", 6) == 6
        assert objects.pop("c") == 6 and objects.pop("c", 7) == 7
        with pytest.raises(KeyError):
            objects.pop("c")
        with pytest.raises(KeyError):
            objects["c"]
        with pytest.raises(KeyError):
            del objects["c"]
        assert objects.discard("b") and not objects.discard("b")
        assert objects.popitem() == ("a", [2])
        with pytest.raises(KeyError):
            objects.popitem()
        assert objects.set_many([("x", 1), ("y", 2)]) == 2 and objects.delete_many("xz") == 1
        objects |= {"z": 3}
        assert type(objects) is perdure.ObjectStore and objects == {"y": 2, "z": 3}
        objects.clear()
        assert not objects
        if objects.store.ordered:
            objects.update(a=1, b=2)
            assert objects.delete_range(start="b") == 1 and objects == {"a": 1}


def test_views_find_objects(objects):
    objects.update(VALUES)
    assert "list" in objects.keys() and b"list" in objects.keys(prefix="l")
    assert "list" not in objects.keys(prefix="z") and "zero" not in objects.keys(limit=2)
    assert "dict" in objects.keys(limit=2) and ("dict", VALUES["dict"]) in objects.items(limit=2)
    assert ("list", [1, [2.5, None]]) in objects.items() and ("list", []) not in objects.items()
    assert 2**80 in objects.values() and "none" not in objects.values()
    assert objects.keys() & {"zero", "none"} == {"zero"}
    assert len(objects.items(prefix="e")) == 1 and object() not in objects


def test_modify_and_compare_and_set(objects):
    assert objects.modify("n", lambda old: old) is None and "n" not in objects
    assert objects.modify("n", lambda old: [old]) == [None]
    assert objects.compare_and_set("n", [None], [1]) and not objects.compare_and_set("n", [2], [3])
    assert not objects.compare_and_set("n", None, 1) and objects["n"] == [1]
    assert objects.compare_and_set("m", None, {"x": 1}) and not objects.compare_and_set("k", 1, 2)
    assert objects.compare_and_set("n", [1], None) and "n" not in objects
    assert objects.modify("m", lambda old: None) is None and len(objects) == 0

    def add():
        for _ in range(300):
            objects.modify("sum", lambda old: (old or 0) + 1)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert objects["sum"] == 1200


def test_objects_that_are_equal_to_nothing(path):
    """pop(), popitem() and modify() compare the bytes, so an array has no need to be compared."""
    with perdure.open(path, serializer="pickle") as objects:
        objects.update(a=np.zeros(3), b=float("nan"), c=np.ones(2))
        assert objects.pop("a").tolist() == [0, 0, 0] and objects.pop("b") != objects.get("b", 0)
        assert objects.modify("c", lambda old: old + 1).tolist() == [2, 2]
        assert objects.popitem()[1].tolist() == [2, 2] and len(objects) == 0


def test_batches(objects):
    objects["a"] = 1
    with objects.batch() as batch:
        batch.require("a", 1)
        batch.require("b", None)
        batch["b"] = [2]
        del batch["a"]
    assert objects == {"b": [2]}
    raw = objects.pool.store("raw")
    with objects.pool.batch() as batch:
        batch.put(objects, "c", {"x": 3})
        batch.put(raw, "c", b"3")
    assert objects["c"] == {"x": 3} and raw["c"] == b"3"
    with pytest.raises(perdure.ConflictError):
        with objects.batch() as batch:
            batch.require("b", [3])
            batch["d"] = 1
    with objects.batch() as batch:
        for call in (lambda: batch.put("d", None), lambda: batch.put("d")):
            with pytest.raises(TypeError):
                call()
    assert "d" not in objects


def test_none_is_no_value(objects):
    objects["a"] = [None]
    for call in (lambda: objects.put("a", None), lambda: objects.__setitem__("a", None),
                 lambda: objects.insert("b", None), lambda: objects.replace("a", None),
                 lambda: objects.update(a=None), lambda: objects.setdefault("b")):
        with pytest.raises(TypeError, match="None is no value"):
            call()
    assert objects == {"a": [None]}


def test_what_cannot_be_encoded_changes_nothing(users):
    users["a"] = 1
    for call in (lambda: users.put("a", object()), lambda: users.update({"b": 1, "a": {1}}),
                 lambda: users.modify("a", lambda old: b"bytes"), lambda: users.insert("b", 1j)):
        with pytest.raises(TypeError, match="JSON"):
            call()
    with pytest.raises(TypeError, match="JSON"), users.batch() as batch:
        batch["b"], batch["c"] = 1, object()
    assert users == {b"a": 1}
    with perdure.open(users.pool.path + "2", serializer=(str, eval)) as wrong:
        with pytest.raises(TypeError, match="str for a value of type int: it must return bytes"):
            wrong["a"] = 1


def test_a_serializer_without_a_result_deletes_nothing(path):
    results = [b"1"]
    pair = (lambda value: results.pop() if results else None, json.loads)
    with perdure.open(path, serializer=pair) as store:
        store["k"] = 1
        for call in (lambda: store.modify("k", lambda old: 2), lambda: store.put("k", 2),
                     lambda: store.compare_and_set("k", 1, 2), lambda: store.update(k=2),
                     lambda: store.batch().require("k", 2)):
            with pytest.raises(TypeError, match="NoneType"):
                call()
        assert store["k"] == 1


def test_a_serializer_may_use_a_buffer_again(path):
    shared = bytearray(1)

    def dumps(value):
        shared[0] = value
        return memoryview(shared)

    with perdure.open(path, serializer=(dumps, lambda data: data[0]), keys=str) as store:
        store.update(a=1, b=2, c=3)
        with store.batch() as batch:
            batch["d"], batch["e"] = 4, 5
        assert store == {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"null", pickle.dumps(1)], ids=repr)
def test_what_cannot_be_decoded(users, data):
    users.store.update(a=data, b=b"2")
    for call in (lambda: users["a"], lambda: users.get("a"), lambda: users.get_many(["b", "a"]),
                 lambda: list(users.values()), lambda: list(users.items()), lambda: users.pop("a"),
                 lambda: users.popitem(), lambda: users.modify("a", lambda old: 1),
                 lambda: users.compare_and_set("a", 1, 2), lambda: users.setdefault("a", 1),
                 lambda: users.copy(), lambda: ("a", 1) in users.items()):
        with pytest.raises(perdure.DecodeError) as raised:
            call()
        error = pickle.loads(pickle.dumps(raised.value))
        assert str(error).startswith(users.pool.path) and "'a'" in str(error)
        assert "serializer" in str(error) and error.code == "decode"
        assert isinstance(error, (perdure.Error, ValueError))
    # The rest works, and the value stays until it is replaced.
    assert users.store["a"] == data and list(users) == [b"a", b"b"] and len(users) == 2
    assert users["b"] == 2 and users.replace("a", 1) and users["a"] == 1


def test_keys_that_are_no_text(path):
    with perdure.open(path, keys=str) as objects:
        objects["é"] = b"bytes as they are"
        assert objects["é"] == objects.get("é".encode()) == b"bytes as they are"
        with pytest.raises(TypeError):
            objects["a"] = "text"
        objects.store[b"\xff"] = b""
        for call in (lambda: list(objects), lambda: dict(objects.items()),
                     lambda: objects.keys() | {"a"}):
            with pytest.raises(perdure.DecodeError, match="xff"):
                call()
        assert list(objects.values()) == [b"bytes as they are", b""] and objects[b"\xff"] == b""


@pytest.mark.parametrize("serializer", [
    "", "JSON", "msgpack", b"json", 1, json, (json.dumps,), (json.dumps, 1), [repr, eval]], ids=str)
def test_wrong_serializers(path, serializer):
    with pytest.raises(perdure.InvalidArgumentError, match='serializer is "json", "pickle" or'):
        perdure.open(path, serializer=serializer)
    assert not os.path.exists(path)


@pytest.mark.parametrize("keys", ["str", int, None, bytearray])
def test_wrong_keys(path, keys):
    with pytest.raises(perdure.InvalidArgumentError, match="keys is bytes or str"):
        perdure.open(path, keys=keys)
    with perdure.Pool(path) as pool:
        with pytest.raises(perdure.InvalidArgumentError, match="keys is bytes or str"):
            pool.store("a", keys=keys)
        assert pool.maps() == []


def test_of_a_pool_and_its_end(pool):
    one, two = pool.store("m", serializer="json"), pool.store("m", serializer="json", keys=str)
    one["a"] = {"x": 1}
    assert two == {"a": {"x": 1}} and type(pool.store("m")) is perdure.Store
    two.close()
    assert two.closed and not one.closed and not pool.closed
    with pytest.raises(perdure.ClosedError):
        two["a"]
    assert "ObjectStore" in repr(one) and "'m'" in repr(one)
    for copied in (lambda: pickle.dumps(one), lambda: copy.copy(one)):
        with pytest.raises(TypeError):
            copied()
    with pytest.raises(TypeError):
        hash(one)


def test_versions_are_those_of_the_store(path):
    with perdure.open(path, engine="pskiplist", serializer="json") as objects:
        objects["a"] = 1
        version = objects.store.tag()
        objects["a"] = 2
        assert json.loads(objects.store.at(version)["a"]) == 1 and objects["a"] == 2


def test_a_batch_reads_its_objects(path):
    with perdure.open(path, serializer="json", keys=str) as objects:
        objects["a"] = {"n": 1}
        with objects.batch() as batch:
            batch["b"] = [1, 2]
            assert batch.get("a") == {"n": 1}
            assert batch.get("b") == [1, 2]
            assert batch.get("c", default="none") == "none"
        with objects.pool.batch() as batch:
            batch.put(objects, "a", 7)
            assert batch.get(objects, "a") == 7
        assert objects["a"] == 7
