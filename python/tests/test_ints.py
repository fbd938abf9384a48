"""IntMap: as a mapping, and its calls on numpy arrays."""

import collections.abc
import math
import random

import numpy as np
import pytest

import perdure
from conftest import ENGINES, ORDERED, UNORDERED

TOP = 2**64 - 1


@pytest.fixture(params=ENGINES)
def ints(request, pool):
    return pool.int_map(engine=request.param)


@pytest.fixture
def signed(pool):
    return pool.int_map("signed", keys="int64", values="int64")


@pytest.fixture
def floats(pool):
    return pool.int_map("floats", keys="int64", values="float64")


def test_as_a_mapping(ints):
    random.seed(11)
    model = {}

    def same(operation):
        results = []
        for mapping in (ints, model):
            try:
                results.append(operation(mapping))
            except Exception as error:
                results.append(type(error))
        assert results[0] == results[1]

    assert isinstance(ints, collections.abc.MutableMapping)
    for step in range(1200):
        key, value = random.randrange(30), random.choice([0, step, TOP - step])
        key = random.choice([key, TOP - key])
        choice = random.randrange(8)
        if choice <= 2:
            same(lambda m: m.__setitem__(key, value))
        elif choice == 3:
            same(lambda m: m.__delitem__(key))
        elif choice == 4:
            same(lambda m: m.pop(key))
        elif choice == 5:
            same(lambda m: m.setdefault(key, value))
        elif choice == 6:
            same(lambda m: m.update({key: value, 5: value}))
        else:
            same(lambda m: (m.get(key), m.get(key, -1), key in m))
        same(len)
    assert {key: ints[key] for key in model} == model
    if ints.ordered:
        assert dict(ints) == model


def test_single_key_calls(ints):
    assert ints.put(1, 10) is True
    assert ints.put(1, 11) is False
    assert ints.insert(1, 12) is False
    assert ints.insert(2, 20) is True
    assert (ints[1], ints[2]) == (11, 20)
    assert ints.discard(2) is True
    assert ints.discard(2) is False
    assert ints.get(2) is None and ints.get(2, "x") == "x"
    with pytest.raises(KeyError) as error:
        ints[2]
    assert error.value.args == (2,)


def test_a_value_of_zero_is_a_value(ints):
    ints[0] = 0
    assert 0 in ints and ints[0] == 0 and ints.get(0, 5) == 0
    assert ints.setdefault(0, 9) == 0
    assert len(ints) == 1


def test_clear_and_popitem(ints):
    ints.update({i: i * i for i in range(100)})
    key, value = ints.popitem()
    assert value == key * key and key not in ints and len(ints) == 99
    ints.clear()
    assert len(ints) == 0
    with pytest.raises(KeyError):
        ints.popitem()


def test_add(pool, ints, signed, floats):
    before_or_after = {ints.add(1), ints.add(1), ints.add(1, 5)}
    assert ints[1] == 7
    assert before_or_after in ({0, 1, 2}, {1, 2, 7})
    ints[1] = TOP
    ints.add(1, 2)
    assert ints[1] == 1  # overflow wraps around
    signed.add(-5, -3)
    assert signed[-5] == -3
    ints.add(1, -1)
    assert ints[1] == 0
    for wrong in (1.5, None, "1"):
        with pytest.raises(TypeError):
            ints.add(1, wrong)
    for wrong in (2**64, -2**64):
        with pytest.raises(OverflowError):
            ints.add(1, wrong)
    with pytest.raises((TypeError, ValueError)):
        floats.add(1)  # integers only
    assert ints[1] == 0 and 1 not in floats


@pytest.mark.parametrize("engine", ORDERED)
def test_order_and_ranges(pool, engine):
    ints = pool.int_map(keys="int64", engine=engine)
    rng = random.Random(2)
    keys = [-2**63, 2**63 - 1, 0, -1, 1] + [rng.randrange(-1000, 1000) for _ in range(300)]
    model = {key: rng.randrange(2**64) for key in keys}
    ints.update(model)
    assert list(ints) == sorted(model)
    assert list(reversed(ints)) == sorted(model)[::-1]
    for _ in range(60):
        start = rng.choice([None, -2**63, 2**63 - 1, rng.randrange(-1000, 1000)])
        stop = rng.choice([None, -2**63, 2**63 - 1, rng.randrange(-1000, 1000)])
        reverse, limit = rng.random() < 0.5, rng.choice([None, 0, 3])
        chosen = [key for key in sorted(model, reverse=reverse)
                  if (start is None or key >= start) and (stop is None or key < stop)][:limit]
        arguments = dict(start=start, stop=stop, reverse=reverse, limit=limit)
        assert list(ints.keys(**arguments)) == chosen
        assert list(ints.items(**arguments)) == [(key, model[key]) for key in chosen]
        assert list(ints.values(**arguments)) == [model[key] for key in chosen]
        assert len(ints.keys(**arguments)) == len(chosen)
        assert (5 in ints.keys(**arguments)) == (5 in chosen)
    assert ints.keys() == model.keys() and ints.items() == model.items()


@pytest.mark.parametrize("engine", UNORDERED)
def test_without_order(pool, engine):
    ints = pool.int_map(engine=engine)
    ints.put_many(np.arange(100), np.arange(100) * 2)
    for call in (lambda: list(ints.keys(start=1)), lambda: list(reversed(ints)),
                 lambda: list(ints.keys(limit=1))):
        with pytest.raises(perdure.UnsupportedError):
            call()
    assert len(ints) == 100 and len(ints.keys()) == 100


@pytest.mark.parametrize("dtype", ["u1", "i1", "<u2", "<i4", "<u4", "<i8", "<u8", ">u4", ">i8"])
def test_dtypes(ints, dtype):
    keys = np.array([1, 5, 100, 7], dtype=dtype)
    assert ints.put_many(keys, keys) == 4
    values, mask = ints.find_many(keys)
    assert values.dtype == np.uint64 and mask.dtype == np.bool_
    assert values.tolist() == [1, 5, 100, 7] and mask.all()
    assert ints.erase_many(keys[:3]) == 3
    assert ints[7] == 7 and len(ints) == 1


def test_many_against_dict(ints):
    rng = np.random.default_rng(4)
    keys = rng.integers(0, 5000, 20000).astype(np.uint64) * np.uint64(2**50)
    values = rng.integers(0, 2**64, 20000, dtype=np.uint64)
    assert ints.put_many(keys, values) == len(np.unique(keys))
    model = dict(zip(keys.tolist(), values.tolist()))  # of several, the last one
    wanted = np.concatenate([keys[:3000], np.array([1, 2, 3], np.uint64)])
    found, mask = ints.find_many(wanted)
    assert found.tolist() == [model.get(key, 0) for key in wanted.tolist()]
    assert mask.tolist() == [key in model for key in wanted.tolist()]
    assert ints.erase_many(wanted) == len(np.unique(keys[:3000]))
    assert len(ints) == len(model) - len(np.unique(keys[:3000]))
    assert not ints.find_many(wanted)[1].any()


def test_layouts(ints):
    base = np.arange(40, dtype=np.uint64)
    assert ints.put_many(base[::2], base[1::2]) == 20  # strided
    assert ints[0] == 1 and ints[38] == 39
    values, mask = ints.find_many(base[::-2])  # backwards: the odd ones, which are absent
    assert not mask.any() and not values.any()
    values, mask = ints.find_many(base.reshape(20, 2)[:, 0])
    assert mask.all() and values.tolist() == base[1::2].tolist()
    frozen = base[:4].copy()
    frozen.setflags(write=False)
    assert ints.put_many(frozen, frozen) == 2
    assert ints.put_many([100, 101], (1, 2)) == 2
    assert ints.put_many(range(200, 203), [1, 2, 3]) == 3
    assert ints.find_many(range(100, 102))[0].tolist() == [1, 2]
    for nothing in ([], np.array([]), np.array([], "i4"), ()):
        assert ints.put_many(nothing, nothing) == 0
        assert ints.find_many(nothing)[0].shape == (0,)
        assert ints.erase_many(nothing) == 0


def test_arguments_are_not_changed(ints):
    keys, values = np.arange(10, dtype=np.uint64), np.arange(10, dtype=np.uint64) + 5
    ints.put_many(keys, values)
    ints.find_many(keys)
    ints.erase_many(keys)
    assert keys.tolist() == list(range(10)) and values.tolist() == list(range(5, 15))


def test_signed(signed):
    edges = [-2**63, -1, 0, 1, 2**63 - 1]
    assert signed.put_many(edges, edges[::-1]) == 5
    assert signed.find_many(edges)[0].dtype == np.int64
    assert signed.find_many(edges)[0].tolist() == edges[::-1]
    assert list(signed.items()) == list(zip(edges, edges[::-1]))
    assert [signed[key] for key in edges] == edges[::-1]
    assert signed.put_many(np.array([-3], "i1"), np.array([-4], "i2")) == 1
    assert signed[-3] == -4


def test_floats(floats):
    values = [0.0, -0.0, 1.5, math.inf, -math.inf, 5e-324, 1.7976931348623157e308]
    floats.put_many(range(-3, 4), values)
    found, mask = floats.find_many(range(-3, 4))
    assert found.dtype == np.float64 and mask.all()
    assert found.tolist() == values
    assert math.copysign(1, floats[-2]) == -1
    floats[9] = math.nan
    assert math.isnan(floats[9]) and math.isnan(floats.find_many([9])[0][0])
    floats[9] = 3  # an int is a number
    assert floats[9] == 3.0 and isinstance(floats[9], float)
    assert floats.put_many([10, 11], np.array([1, 2], "i4")) == 2
    assert floats[11] == 2.0
    assert floats.put_many([12], np.array([0.5], "f4")) == 1
    assert floats[12] == 0.5
    for wrong in ("x", None, b"1", 1j):
        with pytest.raises(TypeError):
            floats[1] = wrong
    with pytest.raises(TypeError):
        floats.put_many([1.5], [1.0])  # a key is an integer
    assert floats[-1] == 1.5


def test_numpy_scalars_are_integers(ints):
    ints[np.int32(5)] = np.uint8(7)
    assert ints[5] == 7 and np.int64(5) in ints and ints[np.uint64(5)] == 7
    assert type(next(iter(ints.keys()))) is int if ints.ordered else True


def test_modify(ints, floats):
    assert ints.modify(TOP, lambda old: old) is None and len(ints) == 0
    assert ints.modify(TOP, lambda old: (old or 0) + 1) == 1
    seen = []

    def step(old):
        seen.append(old)
        if len(seen) == 1:
            ints[TOP] = 7  # another change comes in between
        return old * 2

    assert ints.modify(TOP, step) == 14 and seen == [1, 7] and ints[TOP] == 14
    assert ints.modify(TOP, lambda old: None) is None and TOP not in ints
    assert floats.modify(-1, lambda old: math.nan) is not None
    assert floats.modify(-1, lambda old: 0.5) == 0.5 and floats[-1] == 0.5
    with pytest.raises(TypeError):
        ints.modify(1, lambda old: "1")
    with pytest.raises(ZeroDivisionError):
        ints.modify(1, lambda old: 1 // 0)
    assert len(ints) == 0


def test_copies_are_dicts(ints):
    ints.update({1: 10, 2: 20})
    assert type(ints.copy()) is dict and ints.copy() == {1: 10, 2: 20}
    assert ints | {np.uint64(2): 5} == {1: 10, 2: 5} and {3: 30, 2: 5} | ints == {
        3: 30, 1: 10, 2: 20}
    ints |= {3: 30}
    assert isinstance(ints, perdure.IntMap) and ints == {1: 10, 2: 20, 3: 30}
    with pytest.raises(TypeError, match="update"):
        perdure.IntMap.fromkeys([1])
