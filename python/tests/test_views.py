"""Views of keys, values and items: as sets, and of ranges, against a sorted dict."""

import collections.abc
import random

import pytest


@pytest.fixture
def model(any_store):
    model = {b"k%d" % i: b"v%d" % (i % 7) for i in range(20)}
    any_store.update(model)
    return model


def test_classes(any_store, model):
    assert isinstance(any_store.keys(), collections.abc.KeysView)
    assert isinstance(any_store.values(), collections.abc.ValuesView)
    assert isinstance(any_store.items(), collections.abc.ItemsView)
    for view in (any_store.keys(), any_store.values(), any_store.items()):
        assert len(view) == 20
        assert type(view).__name__ in repr(view)


def test_membership(any_store, model):
    assert b"k3" in any_store.keys() and "k3" in any_store.keys()
    assert b"k99" not in any_store.keys()
    assert b"v3" in any_store.values()
    assert b"v9" not in any_store.values()
    assert (b"k3", b"v3") in any_store.items() and ("k3", b"v3") in any_store.items()
    assert (b"k3", b"v4") not in any_store.items()
    assert (b"k99", b"v3") not in any_store.items()
    assert "k3" not in any_store.items()
    assert (b"k3",) not in any_store.items()


@pytest.mark.parametrize("other", [set(), {b"k1", b"zz"}, {b"k1"}], ids=str)
def test_keys_as_set(any_store, model, other):
    keys, plain = any_store.keys(), model.keys()
    assert keys & other == plain & other
    assert keys | other == plain | other
    assert keys - other == plain - other
    assert keys ^ other == plain ^ other
    assert other & keys == other & plain
    assert other - keys == other - plain
    assert (keys <= other, keys >= other) == (plain <= other, plain >= other)
    assert keys.isdisjoint(other) == plain.isdisjoint(other)
    assert type(keys & other) is set


def test_keys_equal(any_store, model):
    assert any_store.keys() == model.keys()
    assert any_store.items() == model.items()
    assert any_store.keys() != model.keys() - {b"k1"}
    assert any_store.items() != {**model, b"k1": b"x"}.items()


def test_items_as_set(any_store, model):
    other = {(b"k1", b"v1"), (b"k2", b"none")}
    items, plain = any_store.items(), model.items()
    assert items & other == plain & other
    assert items | other == plain | other
    assert items - other == plain - other
    assert items ^ other == plain ^ other
    assert not items.isdisjoint(other)


def test_views_are_live(any_store):
    keys = any_store.keys()
    assert list(keys) == []
    any_store["a"] = b"1"
    assert list(keys) == [b"a"] and len(keys) == 1
    del any_store["a"]
    assert len(keys) == 0


def test_membership_in_a_range(ordered_store):
    ordered_store.update({"a:1": b"1", "a:2": b"2", "b:1": b"3"})
    keys, items = ordered_store.keys(prefix="a:"), ordered_store.items(prefix="a:")
    assert b"a:1" in keys and b"b:1" not in keys
    assert (b"a:1", b"1") in items and (b"b:1", b"3") not in items
    assert b"2" in ordered_store.values(prefix="a:")
    assert b"3" not in ordered_store.values(prefix="a:")
    # As in the view of the whole map, a key may be str.
    assert "a:1" in keys and "b:1" not in keys
    assert ("a:1", b"1") in items and ("b:1", b"3") not in items


def test_membership_and_a_wrong_type(ordered_store):
    ordered_store["a"] = b"1"
    for view in (ordered_store, ordered_store.keys(), ordered_store.keys(prefix="a")):
        assert 5 not in view
        with pytest.raises(TypeError):
            [5] in view


def test_order_and_reversed(ordered_store):
    words = [b"", b"\0", b"a", b"a\0", b"ab", b"b", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]
    for word in random.Random(3).sample(words, len(words)):
        ordered_store[word] = word[::-1]
    assert list(ordered_store) == sorted(words)
    assert list(reversed(ordered_store)) == sorted(words, reverse=True)
    assert list(ordered_store.items()) == [(w, w[::-1]) for w in sorted(words)]
    assert list(reversed(ordered_store.keys(start="a", stop="b"))) == [b"ab", b"a\0", b"a"]
    assert list(reversed(ordered_store.keys(reverse=True))) == sorted(words)
    assert list(reversed(ordered_store.values())) == [w[::-1] for w in sorted(words)[::-1]]
    with pytest.raises(ValueError):
        reversed(ordered_store.keys(limit=2))
    assert list(ordered_store.keys(prefix=b"\xff")) == [b"\xff", b"\xff\xff"]
    assert list(ordered_store.keys(prefix="")) == sorted(words)


def expected(model, prefix, start, stop, reverse, limit):
    keys = [key for key in sorted(model, reverse=reverse)
            if (prefix is None or key.startswith(prefix))
            and (start is None or key >= start) and (stop is None or key < stop)]
    return keys if limit is None else keys[:limit]


def test_random_ranges(ordered_store):
    rng = random.Random(5)

    def word(most):
        return bytes(rng.choice(b"ab\xff") for _ in range(rng.randrange(most)))

    model = {word(7): b"%d" % i for i in range(300)}
    ordered_store.update(model)
    nonempty = 0
    for _ in range(250):
        prefix = rng.choice([None, word(3)])
        start, stop = rng.choice([None, word(4)]), rng.choice([None, word(4)])
        reverse, limit = rng.random() < 0.5, rng.choice([None, None, 0, 1, 3, 1000])
        arguments = dict(prefix=prefix, start=start, stop=stop, reverse=reverse, limit=limit)
        keys = expected(model, **arguments)
        nonempty += bool(keys)
        assert list(ordered_store.keys(**arguments)) == keys, arguments
        assert list(ordered_store.values(**arguments)) == [model[key] for key in keys]
        assert list(ordered_store.items(**arguments)) == [(key, model[key]) for key in keys]
        assert len(ordered_store.keys(**arguments)) == len(keys), arguments
        if limit is None:
            assert list(reversed(ordered_store.keys(**arguments))) == keys[::-1]
    assert nonempty > 50


def test_delete_range(ordered_store):
    model = {b"%04d" % i: b"" for i in range(2000)}
    ordered_store.update(model)
    for prefix, start, stop in [(None, "0100", "0200"), ("03", None, None), ("05", "0550", "2000"),
                                (None, "1900", None), (None, "9", None), (None, "5", "4")]:
        keys = expected(model, *(x and x.encode() for x in (prefix, start, stop)), False, None)
        assert ordered_store.delete_range(prefix=prefix, start=start, stop=stop) == len(keys)
        for key in keys:
            del model[key]
        assert list(ordered_store) == sorted(model)
    assert ordered_store.delete_range() == len(model)
    assert len(ordered_store) == 0


def test_iterators_are_independent(ordered_store):
    ordered_store.update({b"%d" % i: b"" for i in range(5)})
    view = ordered_store.keys()
    first, second = iter(view), iter(view)
    assert next(first) == b"0" and next(first) == b"1" and next(second) == b"0"
    assert iter(first) is first
    assert list(first) == [b"2", b"3", b"4"]
    assert list(first) == []
    with pytest.raises(StopIteration):
        next(first)
    assert list(second) == [b"1", b"2", b"3", b"4"]
