"""IntMap: bounds, wrong keys, values, dtypes and shapes."""

import numpy as np
import pytest

import perdure
from conftest import ENGINES

TOP = 2**64 - 1


@pytest.fixture(params=ENGINES)
def ints(request, pool):
    return pool.int_map(engine=request.param)


@pytest.fixture
def signed(pool):
    return pool.int_map("signed", keys="int64", values="int64")


def test_bounds(pool, ints, signed):
    ints[TOP] = TOP
    assert ints[TOP] == TOP
    assert ints.find_many([TOP])[0].tolist() == [TOP]
    for call in (lambda: ints.__setitem__(-1, 1), lambda: ints.__setitem__(2**64, 1),
                 lambda: ints.__setitem__(1, -1), lambda: ints.__setitem__(1, 2**64),
                 lambda: ints.__setitem__(10**30, 1), lambda: ints.put_many([-1], [1]),
                 lambda: ints.put_many([1], [-1]), lambda: signed.__setitem__(2**63, 1),
                 lambda: signed.__setitem__(-2**63 - 1, 1), lambda: signed.put_many([2**63], [1]),
                 lambda: signed.__setitem__(1, 2**63), lambda: ints.insert(-1, 1),
                 lambda: signed.put_many([1], [2**63])):
        with pytest.raises(OverflowError):
            call()
    for call in (lambda: ints.put(-1, 1), lambda: ints.add(2**64), lambda: ints.get(10**5000)):
        with pytest.raises(OverflowError, match=r"does not fit into uint64: 0 to 2\*\*64 - 1"):
            call()
    with pytest.raises(OverflowError, match=r"does not fit into int64: -2\*\*63 to 2\*\*63 - 1"):
        signed.get(2**63)
    for wrong in ([2**64], [-2**63 - 1], [10**30]):  # numpy makes objects or floats of them
        with pytest.raises((TypeError, OverflowError)):
            ints.put_many(wrong, [1])
    assert len(ints) == 1 and len(signed) == 0


@pytest.mark.parametrize("keys", [
    [1.5], ["a"], [None], [b"a"], np.array([1.0]), np.array(["x"]), np.array([True]),
    np.array([1], "M8[s]"), np.array([1j]), np.array([object()]), np.array([1, None]),
], ids=repr)
def test_wrong_dtypes(ints, keys):
    for call in (lambda: ints.put_many(keys, [1]), lambda: ints.find_many(keys),
                 lambda: ints.erase_many(keys), lambda: ints.put_many([1], keys)):
        with pytest.raises(TypeError):
            call()
    assert len(ints) == 0


def test_wrong_shapes(ints):
    for call in (lambda: ints.put_many([[1, 2]], [[1, 2]]), lambda: ints.find_many(5),
                 lambda: ints.erase_many(np.zeros((2, 2), "u8")),
                 lambda: ints.find_many(np.uint64(5)),
                 lambda: ints.put_many([1, 2], [1]), lambda: ints.put_many([1], [1, 2]),
                 lambda: ints.put_many([1, 2], []), lambda: ints.put_many([[1], [2, 3]], [1, 2])):
        with pytest.raises(ValueError):
            call()
    assert len(ints) == 0
    for wrong in (None, object(), {1: 2}, "abc", {1, 2}):
        with pytest.raises((TypeError, ValueError)):
            ints.find_many(wrong)
        with pytest.raises((TypeError, ValueError)):
            ints.put_many(wrong, wrong)


@pytest.mark.parametrize("wrong", ["1", b"1", None, 1.0, 1.5, [1], object()], ids=repr)
def test_wrong_keys_and_values(ints, wrong):
    for call in (lambda: ints[wrong], lambda: ints.get(wrong),
                 lambda: ints.__setitem__(wrong, 1), lambda: ints.put(1, wrong),
                 lambda: ints.insert(wrong, 1), lambda: ints.discard(wrong),
                 lambda: ints.__delitem__(wrong), lambda: ints.add(wrong),
                 lambda: ints.pop(wrong, 0)):
        with pytest.raises(TypeError):
            call()
    assert len(ints) == 0


def test_types_are_kept(pool, path):
    pool.int_map("s", keys="int64", values="float64")[-1] = 0.5
    with pytest.raises(perdure.InvalidArgumentError):
        pool.int_map("s", keys="uint64")
    with pytest.raises(perdure.InvalidArgumentError):
        pool.store("s")
    for arguments in ({"keys": "int32"}, {"values": "float32"}, {"keys": "float64"},
                      {"values": ""}, {"engine": "btree"}, {"mode": "no"}):
        with pytest.raises(perdure.InvalidArgumentError):
            pool.int_map("new", **arguments)
    assert [m["name"] for m in pool.maps()] == ["s"]
    bits = pool.int_map("s", keys="int64", values="uint64")[-1]
    assert bits == 0x3FE0000000000000  # how the 8 bytes are read
