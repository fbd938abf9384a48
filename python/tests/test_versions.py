"""Versions of a store of the engine pskiplist."""

import collections.abc
import gc

import pytest

import perdure
from conftest import ENGINES


@pytest.fixture
def three(versioned):
    """Versions v1: a, b; v2: b changed, c; v3: a deleted. The open version has d."""
    versioned.update(a=b"1", b=b"2")
    v1 = versioned.tag()
    versioned.update(b=b"20", c=b"3")
    v2 = versioned.tag()
    del versioned["a"]
    v3 = versioned.tag()
    versioned["d"] = b"4"
    return versioned, v1, v2, v3


CONTENT = [{b"a": b"1", b"b": b"2"}, {b"a": b"1", b"b": b"20", b"c": b"3"},
           {b"b": b"20", b"c": b"3"}]


def test_at(three):
    store, *versions = three
    for version, content in zip(versions, CONTENT):
        view = store.at(version)
        assert isinstance(view, collections.abc.Mapping)
        assert not isinstance(view, collections.abc.MutableMapping)
        assert view.version == version
        assert dict(view) == content and len(view) == len(content)
        assert list(view) == sorted(content) and list(reversed(view)) == sorted(content)[::-1]
        assert list(view.items()) == sorted(content.items())
        assert list(view.values()) == [content[key] for key in sorted(content)]
        for key in ("a", "b", "c", "d"):
            assert view.get(key) == content.get(key.encode())
            assert (key in view) == (key.encode() in content)
        assert view.get("d", 7) == 7
        with pytest.raises(KeyError):
            view["d"]
        assert view.keys() & {b"a"} == content.keys() & {b"a"}
    assert store.at().version == versions[-1]
    assert dict(store) == {b"b": b"20", b"c": b"3", b"d": b"4"}


def test_ranges_at_a_version(three):
    store, _, v2, _ = three
    view = store.at(v2)
    assert list(view.keys(start="b")) == [b"b", b"c"]
    assert list(view.items(prefix="c")) == [(b"c", b"3")]
    assert list(view.keys(reverse=True, limit=2)) == [b"c", b"b"]
    assert len(view.keys(stop="c")) == 2
    assert list(view.values(start="c", stop="a")) == []


def test_a_version_does_not_change(three):
    store, v1, *_ = three
    view = store.at(v1)
    iterator = iter(view.items())
    assert next(iterator) == (b"a", b"1")
    store.clear()
    store["a"] = b"other"
    with store.batch() as batch:
        batch["b"] = b"other"
    assert next(iterator) == (b"b", b"2")
    assert dict(view) == CONTENT[0]
    for name in ("__setitem__", "__delitem__", "put", "pop", "update", "clear"):
        assert not hasattr(view, name)


def test_history(three):
    store, v1, v2, v3 = three
    assert [value for _, value in store.history("a")] == [b"1", None]
    assert [value for _, value in store.history("b")] == [b"2", b"20"]
    assert store.history("absent") == []
    versions = [version for version, _ in store.history("a")]
    assert versions == sorted(versions) and versions[0] <= v1 and v2 < versions[1] <= v3
    assert [value for _, value in store.at(v1).history("b")] == [b"2"]
    assert [value for _, value in store.at(v2).history("b")] == [b"2", b"20"]
    store["open"] = b"1"  # includes the open version
    assert [value for _, value in store.history("open")] == [b"1"]


def test_diff(three):
    store, v1, v2, v3 = three
    assert store.diff(v1, v2) == [(b"b", b"2", b"20"), (b"c", None, b"3")]
    assert store.diff(v1, v3) == [(b"a", b"1", None), (b"b", b"2", b"20"), (b"c", None, b"3")]
    assert store.diff(v3, v1) == [(b"a", None, b"1"), (b"b", b"20", b"2"), (b"c", b"3", None)]
    assert store.diff(v2, v2) == []
    assert store.diff(v1, v3, prefix="b") == [(b"b", b"2", b"20")]
    assert store.diff(v1, v3, start="b", stop="c") == [(b"b", b"2", b"20")]
    assert store.diff(v1, v3, limit=1) == [(b"a", b"1", None)]
    assert store.diff(v1, v3, limit=0) == []
    first, last = store.at(v1), store.at(v3)
    assert first.diff(last) == first.diff(v3) == store.diff(v1, v3)
    assert first.diff(last, prefix="c") == [(b"c", None, b"3")]


def test_tags_rise_and_several_writes_make_one_entry(versioned):
    versioned["a"] = b"1"
    versioned["a"] = b"2"
    first = versioned.tag()
    second = versioned.tag()
    assert isinstance(first, int) and first < second
    assert [value for _, value in versioned.history("a")] == [b"2"]
    low, last = versioned.versions()
    assert low <= first and last == second


def test_rollback(three, path):
    store, v1, v2, v3 = three
    store.rollback(v1)
    assert dict(store) == CONTENT[0]
    assert dict(store.at(v3)) == CONTENT[0]  # later versions read as this one
    store["e"] = b"5"
    after = store.tag()
    assert after > v3
    store.close()
    with perdure.open(path) as again:
        assert dict(again) == {**CONTENT[0], b"e": b"5"}
        assert dict(again.at(v1)) == CONTENT[0]


def test_rollback_and_held_versions(three):
    store, v1, v2, v3 = three
    before = dict(store)
    held = store.at(v3)
    with pytest.raises(perdure.BusyError):
        store.rollback(v1)
    assert dict(store) == before
    held.close()
    iterator = iter(store.at(v2))
    next(iterator)
    with pytest.raises(perdure.BusyError):
        store.rollback(v1)
    del iterator
    gc.collect()
    with store.at(v1):  # an earlier one, or the same, does no harm
        store.rollback(v1)
    assert dict(store) == CONTENT[0]


def test_trim(three):
    store, v1, v2, v3 = three
    held = store.at(v1)
    assert store.trim(v3) <= v1  # held
    assert dict(held) == CONTENT[0]
    held.close()
    assert store.trim(v3) == v3
    assert store.versions() == (v3, v3)
    with pytest.raises(perdure.InvalidArgumentError):
        store.at(v1)
    assert dict(store.at(v3)) == CONTENT[2]
    assert dict(store) == {b"b": b"20", b"c": b"3", b"d": b"4"}


def test_a_version_that_is_garbage_is_given_back(three):
    store, v1, v2, v3 = three
    view = store.at(v1)
    assert store.trim(v3) <= v1
    del view
    gc.collect()
    assert store.trim(v3) == v3


def test_an_iterator_holds_its_version(three):
    store, v1, v2, v3 = three
    iterator = iter(store.at(v1).items())
    gc.collect()
    assert store.trim(v3) <= v1
    assert dict(iterator) == CONTENT[0]
    del iterator
    gc.collect()
    assert store.trim(v3) == v3


def test_versions_survive(three, path):
    store, *versions = three
    store.close()
    with perdure.open(path) as again:
        assert [dict(again.at(version)) for version in versions] == CONTENT


def test_closed_version(three):
    store, v1, *_ = three
    with store.at(v1) as view:
        assert view["a"] == b"1"
    view.close()
    for call in (lambda: view["a"], lambda: view.get("a"), lambda: "a" in view, lambda: len(view),
                 lambda: list(view), lambda: list(view.items()), lambda: view.history("a"),
                 lambda: len(view.keys(prefix="a"))):
        with pytest.raises(perdure.ClosedError):
            call()
    assert "a" not in store and store.at(v1)["a"] == b"1"


def test_no_such_version(three):
    store, v1, v2, v3 = three
    unknown = v3 + 100
    for call in (lambda: store.at(unknown), lambda: store.at(v3 + 1), lambda: store.at(0),
                 lambda: store.diff(v1, unknown), lambda: store.diff(unknown, v1),
                 lambda: store.rollback(unknown), lambda: store.trim(unknown),
                 lambda: store.at(v1).diff(unknown)):
        with pytest.raises(perdure.InvalidArgumentError):
            call()
    for call in (lambda: store.at("1"), lambda: store.at(1.5), lambda: store.at(-1),
                 lambda: store.at(2**64), lambda: store.diff(None, v1), lambda: store.trim(None),
                 lambda: store.rollback(None), lambda: store.rollback("x"), lambda: store.trim(-1),
                 lambda: store.diff(v1, v2, limit=-1), lambda: store.diff(v1, v2, limit="x"),
                 lambda: store.history(None), lambda: store.at(v1).get(None)):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            call()
    assert dict(store.at(v1)) == CONTENT[0]


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "pskiplist"])
def test_other_engines(path, engine):
    with perdure.open(path, engine=engine) as store:
        store["a"] = b"1"
        for call in (store.tag, store.versions, lambda: store.at(1), store.at,
                     lambda: store.diff(1, 2), lambda: store.history("a"), lambda: store.trim(1),
                     lambda: store.rollback(1)):
            with pytest.raises(perdure.UnsupportedError):
                call()
        assert dict(store) == {b"a": b"1"}
