"""IntMap: a map of integers to numbers, with calls on numpy arrays."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from perdure import _core
from perdure._store import _YIELD, _Mutable
from perdure._views import WHOLE, Items, Keys, Range, Values, _refuse_pickle

NUMBERS = {
    "uint64": _core._Number.uint64,
    "int64": _core._Number.int64,
    "float64": _core._Number.float64,
}


class IntMap(_Mutable[int, Any], _core._IntMapBase):
    """A persistent map of 64-bit integers to 64-bit numbers, as a MutableMapping. Made by
    Pool.int_map().

    The calls on arrays make no Python object for a key. They need numpy.

    >>> import numpy as np, perdure, tempfile
    >>> pool = perdure.Pool(tempfile.mkdtemp() + "/ints.perdure")
    >>> ints = pool.int_map("scores", values="float64")
    >>> ints.put_many(np.arange(4), np.array([0.5, 1.5, 2.5, 3.5]))
    4
    >>> ints.find_many([1, 7])
    (array([1.5, 0. ]), array([ True, False]))
    >>> ints[3]
    3.5
    >>> pool.close()
    """

    def __init__(self, base: Any, pool: Any, keys: str, values: str) -> None:
        super().__init__(base)
        self._pool = pool
        self._keys = keys
        self._values = values

    __reduce_ex__ = _refuse_pickle
    __copy__ = _refuse_pickle

    # --- arrays ---

    def _array(self, data: Any, dtype: str, what: str) -> Any:
        """Returns the words of an array in one dimension, without a copy if possible."""
        import numpy as np

        array = np.asarray(data)
        if array.ndim != 1:
            raise _core.InvalidArgumentError(f"{what} must be an array of one dimension")
        if dtype == "float64":
            if array.dtype.kind not in "fiu" and array.size:
                raise TypeError(f"{what} must hold numbers, not {array.dtype}")
        elif array.dtype.kind not in "iu" and array.size:
            raise TypeError(f"{what} must hold integers, not {array.dtype}")
        elif array.dtype.kind == "i" and dtype == "uint64" and array.size and array.min() < 0:
            raise OverflowError(f"{what} has a negative number, and the map is unsigned")
        elif array.dtype == np.uint64 and dtype == "int64" and array.size:
            if array.max() > np.uint64(2**63 - 1):
                raise OverflowError(f"{what} has a number above 2**63 - 1")
        return np.ascontiguousarray(array, dtype=dtype).view(np.uint64)

    def find_many(self, keys: Any) -> tuple[Any, Any]:
        """Returns (values, mask): the value of each key, 0 where it is absent, and whether it is
        present."""
        import numpy as np

        words = self._array(keys, self._keys, "keys")
        values = np.zeros(len(words), dtype=np.uint64)
        mask = np.zeros(len(words), dtype=np.bool_)
        self._find_many(words, values, mask)
        return values.view(self._values), mask

    def put_many(self, keys: Any, values: Any) -> int:
        """Gives each key the value at the same place, and returns how many keys were new. Each
        entry is atomic; after a kill some are there."""
        return self._put_many(self._array(keys, self._keys, "keys"),
                              self._array(values, self._values, "values"))

    def erase_many(self, keys: Any) -> int:
        """Deletes the keys, and returns how many were there."""
        return self._erase_many(self._array(keys, self._keys, "keys"))

    # --- as a mapping; the rest comes from MutableMapping ---

    def __getitem__(self, key: int) -> Any:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: int, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: int) -> None:
        if not self.discard(key):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        try:
            return self._contains(key)
        except (TypeError, OverflowError):  # no key: as dict, unless it has no hash
            hash(key)
            return False

    def __len__(self) -> int:
        return self._length()

    update = MutableMapping.update  # type: ignore[assignment]

    def setdefault(self, key: int, default: Any = 0) -> Any:
        """Inserts the key with the value `default` unless it exists. Returns the key's value. In
        one step, as pop() and popitem()."""
        return self._setdefault(key, default, lambda value: value)

    @staticmethod
    def _comparable(key: Any) -> int:
        return operator.index(key)

    def clear(self) -> None:
        """Deletes all entries. Not atomic: after a kill some are gone."""
        for key in list(self):
            self.discard(key)

    __eq__ = Mapping.__eq__  # compares the content, as all mappings do
    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[int]:
        return self._iterate_range("keys", WHOLE)

    def __reversed__(self) -> Iterator[int]:
        return self._iterate_range("keys", Range(reverse=True))

    def keys(self, *, start: int | None = None, stop: int | None = None, reverse: bool = False,
             limit: int | None = None) -> Keys[int]:
        """As Store.keys(). Engines that keep an order only."""
        return Keys(self, Range(start, stop, None, reverse, limit))

    def values(self, *, start: int | None = None, stop: int | None = None, reverse: bool = False,
               limit: int | None = None) -> Values[Any]:
        """As keys(), for the values."""
        return Values(self, Range(start, stop, None, reverse, limit))

    def items(self, *, start: int | None = None, stop: int | None = None, reverse: bool = False,
              limit: int | None = None) -> Items[int, Any]:
        """As keys(), for the pairs of key and value."""
        return Items(self, Range(start, stop, None, reverse, limit))

    def _iterate_range(self, what: str, range: Range) -> Iterator[Any]:
        if not self.ordered and range == WHOLE:
            return self._unordered(what)
        return self._iterate(_YIELD[what], range.start, range.stop, range.reverse, range.limit)

    def _count_range(self, range: Range) -> int:
        return sum(1 for _ in self._iterate_range("keys", range))

    @property
    def pool(self) -> Any:
        """The Pool of the map."""
        return self._pool

    def __repr__(self) -> str:
        state = "closed " if self.closed else ""
        return f"<{state}perdure.IntMap {self.name!r} in {self.path!r}, engine {self.engine}>"


MutableMapping.register(IntMap)
