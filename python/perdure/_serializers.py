"""ObjectStore: a store whose values are objects, written by a serializer, and whose keys may be
str."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from types import TracebackType
from typing import Any, TypeVar, Union

from perdure import _core
from perdure._store import _MISSING, Batch, Store, _Mutable, _Ranges
from perdure._views import Range, _refuse_pickle

_K = TypeVar("_K")
_Pair = tuple[Callable[[Any], Any], Callable[[bytes], Any]]
Serializer = Union[str, _Pair]


class DecodeError(_core.Error, ValueError):
    """A stored value, or a key, cannot be read with the serializer of the store."""

    code = "decode"
    __module__ = "perdure"


def _same(value: Any) -> Any:
    return value


def _json() -> _Pair:
    import json

    return lambda value: json.dumps(value, separators=(",", ":")).encode(), json.loads


def _pickle() -> _Pair:
    import pickle

    return pickle.dumps, pickle.loads


_BY_NAME = {"json": _json, "pickle": _pickle}


def pair_of(serializer: Serializer | None) -> _Pair:
    """Returns the functions (dumps, loads) of a serializer. Without one, values are bytes."""
    if serializer is None:
        return _same, _same
    if isinstance(serializer, tuple) and len(serializer) == 2 and all(map(callable, serializer)):
        return serializer
    if isinstance(serializer, str) and serializer in _BY_NAME:
        return _BY_NAME[serializer]()
    raise _core.InvalidArgumentError('serializer is "json", "pickle" or a pair of functions '
                                     f"(dumps, loads), not {serializer!r}")


class ObjectStore(_Ranges[_K, Any], _Mutable[_K, Any], MutableMapping[_K, Any]):
    """A persistent map of objects, as a MutableMapping. Made by perdure.open() and Pool.store()
    with `serializer` or `keys`.

    A value is an object of its own at each read: what a program changes in it is stored by an
    assignment, or in one step by modify(). None is no value, for it stands for an absent key. The
    pool does not record the serializer; a value that it did not write raises DecodeError. `store`
    is the Store of the bytes.

    >>> import perdure, tempfile
    >>> path = tempfile.mkdtemp() + "/users.perdure"
    >>> users = perdure.open(path, serializer="json", keys=str)
    >>> users["ada"] = {"logins": 1}
    >>> users.modify("ada", lambda user: {**user, "logins": user["logins"] + 1})
    {'logins': 2}
    >>> list(users.items(prefix="a")), users.store["ada"]
    ([('ada', {'logins': 2})], b'{"logins":2}')
    >>> users.close()
    """

    def __init__(self, store: Store, pair: _Pair, keys: type) -> None:
        self._store = store
        self._dumps, self._loads = pair
        self._keys = keys

    __reduce_ex__ = _refuse_pickle
    __copy__ = _refuse_pickle

    # --- bytes ---

    def _encode(self, value: Any) -> Any:
        if value is None:
            raise TypeError("None is no value: it stands for an absent key")
        data = self._dumps(value)
        if self._dumps is _same or type(data) is bytes:
            return data
        try:
            return bytes(memoryview(data))  # a buffer may be used for the next value, too
        except TypeError:
            raise TypeError(f"the serializer has returned {type(data).__name__} for a value of "
                            f"type {type(value).__name__}: it must return bytes") from None

    def _decode(self, key: Any, data: bytes) -> Any:
        try:
            value = self._loads(data)
        except MemoryError:
            raise
        except Exception as error:
            raise self._refusal(f"the value of key {key!r}", error) from error
        if value is None:
            raise self._refusal(f"the value of key {key!r}", "it is None")
        return value

    def _decode_key(self, key: bytes) -> Any:
        try:
            return key.decode() if self._keys is str else key
        except UnicodeDecodeError as error:
            raise self._refusal(f"the key {key!r}", error) from error

    def _refusal(self, what: str, why: object) -> DecodeError:
        return DecodeError(f"{self._store.path}: {what} cannot be read with this serializer "
                           f"({why}): open the store with the one that wrote it, or read the "
                           "bytes from `store`")

    def _yielded(self, key: Any) -> Any:
        return self._decode_key(_core._key_bytes(key))

    def _comparable(self, key: Any) -> bytes:
        return _core._key_bytes(key)

    # --- one entry ---

    def __getitem__(self, key: Any) -> Any:
        return self._decode(key, self._store[key])

    def get(self, key: Any, default: Any = None) -> Any:
        """Returns the value of the key, or `default` if the key is absent."""
        data = self._store.get(key)
        return default if data is None else self._decode(key, data)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._store[key] = self._encode(value)

    def __delitem__(self, key: Any) -> None:
        del self._store[key]

    def __contains__(self, key: object) -> bool:
        return key in self._store

    def put(self, key: Any, value: Any) -> bool:
        """As Store.put()."""
        return self._store.put(key, self._encode(value))

    def insert(self, key: Any, value: Any) -> bool:
        """As Store.insert()."""
        return self._store.insert(key, self._encode(value))

    def replace(self, key: Any, value: Any) -> bool:
        """As Store.replace()."""
        return self._store.replace(key, self._encode(value))

    def discard(self, key: Any) -> bool:
        """As Store.discard()."""
        return self._store.discard(key)

    def modify(self, key: Any, function: Callable[[Any], Any]) -> Any:
        """As Store.modify(), with objects. Other threads may change the key meanwhile: the bytes
        are compared, so it does not matter whether the objects can be."""
        after = None

        def change(data: bytes | None) -> Any:
            nonlocal after
            after = function(None if data is None else self._decode(key, data))
            return None if after is None else self._encode(after)

        self._store.modify(key, change)
        return after

    def compare_and_set(self, key: Any, expected: Any, value: Any) -> bool:
        """As Store.compare_and_set(): the value in the store is compared by `==`, as an object."""
        desired = None if value is None else self._encode(value)
        while True:
            data = self._store.get(key)
            found = None if data is None else self._decode(key, data)
            if (found is None) != (expected is None) or not found == expected:
                return False
            if self._store.compare_and_set(key, data, desired):
                return True

    def pop(self, key: Any, default: Any = _MISSING) -> Any:
        """Deletes the key and returns its value. If it is absent, returns `default`, or raises
        KeyError if there is none. A value that cannot be decoded stays."""
        value = default

        def take(data: bytes | None) -> None:
            nonlocal value
            value = default if data is None else self._decode(key, data)

        self._store.modify(key, take)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def popitem(self) -> tuple[_K, Any]:
        """As Store.popitem(). An entry that cannot be decoded stays."""
        while True:
            key, data = self._store._first()
            if data is not None:
                item = (self._decode_key(key), self._decode(key, data))
                if self._store.compare_and_set(key, data, None):
                    return item

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Inserts the key with the value `default` unless it exists. Returns the key's value. In
        one step, as pop() and popitem()."""
        return self._setdefault(key, default, lambda value: value)

    # --- many entries ---

    def __len__(self) -> int:
        return len(self._store)

    def get_many(self, keys: Iterable[Any]) -> list[Any]:
        """As Store.get_many()."""
        keys = list(keys)
        return [None if data is None else self._decode(key, data)
                for key, data in zip(keys, self._store.get_many(keys))]

    def set_many(self, entries: Any) -> int:
        """As Store.set_many(). If a value cannot be encoded, nothing is changed."""
        return self._store.set_many([(key, self._encode(value)) for key, value in
                                     _dict_items(entries)])

    def delete_many(self, keys: Iterable[Any]) -> int:
        """As Store.delete_many()."""
        return self._store.delete_many(keys)

    def delete_range(self, *, prefix: Any = None, start: Any = None, stop: Any = None) -> int:
        """As Store.delete_range()."""
        return self._store.delete_range(prefix=prefix, start=start, stop=stop)

    def clear(self) -> None:
        """Deletes all entries. Not atomic: after a kill some are gone."""
        self._store.clear()

    __eq__ = Mapping.__eq__  # compares the content, as all mappings do
    __hash__ = None  # type: ignore[assignment]

    def _iterate_range(self, what: str, range: Range) -> Iterator[Any]:
        if what == "keys":
            yield from map(self._decode_key, self._store._iterate_range("keys", range))
            return
        for key, data in self._store._iterate_range("items", range):
            value = self._decode(key, data)
            yield value if what == "values" else (self._decode_key(key), value)

    def _count_range(self, range: Range) -> int:
        return self._store._count_range(range)

    # --- batches and the pool ---

    def batch(self) -> Batch:
        """As Store.batch(), with objects. require() compares the bytes: it is for a serializer
        that writes equal objects as equal bytes."""
        return Batch(self._store.pool, self)

    def _in_batch(self, key: Any, *values: Any) -> tuple[Any, ...]:
        """The arguments of a call of the batch: the store and bytes."""
        return (self._store, key,
                *(None if value is None else self._encode(value) for value in values))

    @property
    def store(self) -> Store:
        """The Store of the bytes: with its versions, and calls on values without a copy."""
        return self._store

    @property
    def pool(self) -> Any:
        """The Pool of the store."""
        return self._store.pool

    @property
    def closed(self) -> bool:
        """Whether the store or its pool is closed."""
        return self._store.closed

    def sync(self) -> None:
        """As Store.sync(), for the whole pool."""
        self._store.sync()

    def close(self, *, sync: bool = True) -> None:
        """As Store.close(), also of its pool if perdure.open() has opened it."""
        self._store.close(sync=sync)

    def __enter__(self) -> ObjectStore[_K]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<perdure.ObjectStore of {self._store!r}>"


def with_objects(open_store: Callable[[], Store], serializer: Serializer | None,
                 keys: type) -> Any:
    """Returns the store that open_store() returns: as it is, or with objects."""
    if keys not in (bytes, str):
        raise _core.InvalidArgumentError(f"keys is bytes or str, not {keys!r}")
    pair = pair_of(serializer)  # before the store is opened, and perhaps made
    store = open_store()
    return store if serializer is None and keys is bytes else ObjectStore(store, pair, keys)


def _dict_items(entries: Any) -> Iterable[tuple[Any, Any]]:
    """The pairs of what dict.update() takes."""
    if hasattr(entries, "items"):
        return entries.items()  # type: ignore[no-any-return]
    if hasattr(entries, "keys"):
        return ((key, entries[key]) for key in entries.keys())
    return entries  # type: ignore[no-any-return]
