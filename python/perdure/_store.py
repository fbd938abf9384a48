"""Store: a map of byte strings. Version: a view of one of its closed versions. Batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, overload

from perdure import _core
from perdure._views import WHOLE, Items, Keys, Range, Values, _refuse_pickle

if TYPE_CHECKING:
    from typing_extensions import Self

_K = TypeVar("_K")
_V = TypeVar("_V")
_T = TypeVar("_T")
_MISSING: Any = object()
_ALL = 2**62  # keys
_YIELD = {"keys": _core._Yield.keys, "values": _core._Yield.values, "items": _core._Yield.items}


class _Mutable(Generic[_K, _V]):
    """The calls of a dict on one entry that read and change it, in one step, and on all entries."""

    @overload
    def pop(self, key: Any) -> _V: ...
    @overload
    def pop(self, key: Any, default: _V) -> _V: ...
    @overload
    def pop(self, key: Any, default: _T) -> _V | _T: ...
    def pop(self: Any, key: Any, default: Any = _MISSING) -> Any:
        """Deletes the key and returns its value. If it is absent, returns `default`, or raises
        KeyError if there is none."""
        while True:
            value = self.get(key)
            if value is None:
                if default is _MISSING:
                    raise KeyError(key)
                return default
            if self.compare_and_set(key, value, None):
                return value

    def popitem(self: Any) -> tuple[_K, _V]:
        """Deletes an entry and returns its key and its value: the first one, if the engine keeps
        an order. Raises KeyError if there is none."""
        while True:
            key, value = self._first()
            if value is not None and self.compare_and_set(key, value, None):
                return key, value

    def modify(self: Any, key: Any, function: Callable[[_V | None], _V | None]) -> _V | None:
        """Gives the key what function(value) returns, atomically, and returns that.

        `function` gets None if the key is absent, and returns None to delete it. If another change
        of the key comes in between, it is called again.

        >>> import perdure, tempfile
        >>> with perdure.open(tempfile.mkdtemp() + "/m.perdure") as store:
        ...     store.modify("visits", lambda old: str(int(old or b"0") + 1).encode())
        b'1'
        """
        while True:
            before = self.get(key)
            after = function(before)
            if self.compare_and_set(key, before, after):
                return after

    def update(self: Any, other: Any = (), /, **entries: Any) -> None:
        """Sets the entries of a mapping or of an iterable of pairs, and those that are named. Each
        is atomic by itself; batch() makes all of them one step."""
        self.set_many(other)
        if entries:
            self.set_many(entries)

    def copy(self: Any) -> dict[_K, _V]:
        """Returns the entries as a dict, in memory. O(n)."""
        return dict(self.items())

    def __or__(self: Any, other: Any) -> dict[_K, _V]:
        """A dict of the entries of both; those of `other` win."""
        if not isinstance(other, Mapping):
            return NotImplemented
        entries: dict[_K, _V] = self.copy()
        entries.update((self._yielded(key), value) for key, value in other.items())
        return entries

    def __ror__(self: Any, other: Any) -> dict[_K, _V]:
        if not isinstance(other, Mapping):
            return NotImplemented
        entries: dict[_K, _V] = {self._yielded(key): value for key, value in other.items()}
        entries.update(self.items())
        return entries

    def __ior__(self, other: Any) -> Self:
        """As update()."""
        self.update(other)
        return self

    @classmethod
    def fromkeys(cls, *_: Any) -> NoReturn:
        """Raises TypeError: a map of a pool needs a path."""
        raise TypeError(f"a {cls.__name__} is a part of a file: open it with perdure.open() or "
                        "Pool(), then call update(dict.fromkeys(keys, value))")

    def _first(self: Any) -> tuple[_K, _V | None]:
        """The entry that popitem() takes; None for a value that another thread has deleted."""
        item: tuple[_K, _V | None] | None
        if self.ordered:
            item = next(self._iterate_range("items", Range(limit=1)), None)
        else:
            key = next(iter(self._all_keys(1)), None)
            item = None if key is None else (key, self.get(key))
        if item is None:
            raise KeyError("popitem(): there is no entry")
        return item

    def _setdefault(self: Any, key: Any, default: Any, copy: Any) -> Any:
        while True:
            found = self.get(key)
            if found is not None:
                return found
            if self.insert(key, default):
                return copy(default)

    def _yielded(self: Any, key: Any) -> _K:
        """The key as an iteration yields it."""
        yielded: _K = self._comparable(key)
        return yielded

    def _unordered(self: Any, what: str) -> Iterator[Any]:
        for key in self._all_keys(_ALL):
            if what == "keys":
                yield key
                continue
            value = self.get(key)
            if value is not None:
                yield value if what == "values" else (key, value)


class _Ranges(Generic[_K, _V]):
    """keys(), values() and items() with ranges, for a store and for a version of it."""

    def keys(self, *, prefix: Any = None, start: Any = None, stop: Any = None,
             reverse: bool = False, limit: int | None = None) -> Keys[_K]:
        """Returns a view of the keys from `start` (included) to `stop` (excluded) that begin with
        `prefix`, in order; with `reverse`, in descending order; at most `limit` of them.

        Entries that other threads insert or delete meanwhile may be seen or not. Only a view of
        the whole map works on the engines `level` and `clevel`, which keep no order: it reads all
        keys when the iteration begins.
        """
        return Keys(self, Range(start, stop, prefix, reverse, limit))

    def values(self, *, prefix: Any = None, start: Any = None, stop: Any = None,
               reverse: bool = False, limit: int | None = None) -> Values[_V]:
        """As keys(), for the values."""
        return Values(self, Range(start, stop, prefix, reverse, limit))

    def items(self, *, prefix: Any = None, start: Any = None, stop: Any = None,
              reverse: bool = False, limit: int | None = None) -> Items[_K, _V]:
        """As keys(), for the pairs of key and value."""
        return Items(self, Range(start, stop, prefix, reverse, limit))

    def __iter__(self) -> Iterator[_K]:
        return self._iterate_range("keys", WHOLE)

    def __reversed__(self) -> Iterator[_K]:
        return self._iterate_range("keys", Range(reverse=True))

    def _iterate_range(self, what: str, range: Range) -> Iterator[Any]:
        raise NotImplementedError


class Store(_Ranges[bytes, bytes], _Mutable[bytes, bytes], _core._StoreBase):
    """A persistent map of byte strings: a MutableMapping of keys (bytes, or str in UTF-8) to bytes.

    Made by perdure.open() and by Pool.store(). When a call that changes the store returns, the
    change survives a kill of the process. Each call is atomic. Keys have up to 65,535 bytes, values
    up to 1 GiB. Any number of threads may use one store.

    >>> import perdure, tempfile
    >>> store = perdure.open(tempfile.mkdtemp() + "/store.perdure")
    >>> store["b"] = b"2"
    >>> store["a"] = b"1"
    >>> store["a"], store.get("c"), "b" in store, len(store)
    (b'1', None, True, 2)
    >>> list(store)
    [b'a', b'b']
    >>> store.close()
    """

    def __init__(self, base: Any, pool: Any) -> None:
        super().__init__(base)
        self._pool = pool

    __reduce_ex__ = _refuse_pickle
    __copy__ = _refuse_pickle

    # --- as a mapping; the rest comes from MutableMapping ---

    __eq__ = Mapping.__eq__  # compares the content, as all mappings do
    __hash__ = None  # type: ignore[assignment]

    def setdefault(self, key: Any, default: Any = b"") -> Any:
        """Inserts the key with the value `default` unless it exists. Returns the key's value. In
        one step, as pop() and popitem()."""
        return self._setdefault(key, default, bytes)

    def clear(self) -> None:
        """Deletes all entries. Not atomic: after a kill some are gone."""
        if self.ordered:
            self._delete_range(None, None, None, False, None)
        else:
            self.delete_many(self._all_keys(_ALL))

    def delete_range(self, *, prefix: Any = None, start: Any = None, stop: Any = None) -> int:
        """Deletes the entries of a range, as keys() has it, and returns how many it deleted. Not
        atomic: after a kill some are gone."""
        return self._delete_range(start, stop, prefix, False, None)

    def _count_range(self, range: Range) -> int:
        return self._count(*range)

    def _iterate_range(self, what: str, range: Range) -> Iterator[Any]:
        if self.ordered or range != WHOLE:
            return self._iterate(_YIELD[what], *range)
        return self._unordered(what)

    @staticmethod
    def _comparable(key: Any) -> bytes:
        return _core._key_bytes(key)

    # --- batches ---

    def batch(self) -> Batch:
        """Returns a batch of changes that happen wholly or not at all, when its `with` block ends
        without an exception.

        >>> import perdure, tempfile
        >>> with perdure.open(tempfile.mkdtemp() + "/bank.perdure") as store:
        ...     store.update(a=b"100", b=b"0")
        ...     with store.batch() as batch:
        ...         batch.require("a", b"100")  # else nothing happens: ConflictError
        ...         batch["a"] = b"70"
        ...         batch["b"] = b"30"
        ...     dict(store)
        {b'a': b'70', b'b': b'30'}
        """
        return Batch(self._pool, self)

    # --- versions ---

    def at(self, version: int | None = None) -> Version:
        """Returns a read-only mapping of the content of a closed version; of the last one if
        `version` is None. It holds its version until it is closed. Engine `pskiplist`.

        >>> import perdure, tempfile
        >>> with perdure.open(tempfile.mkdtemp() + "/v.perdure", engine="pskiplist") as store:
        ...     store["x"] = b"old"
        ...     v = store.tag()
        ...     store["x"] = b"new"
        ...     store.at(v)["x"], store["x"]
        (b'old', b'new')
        """
        return Version(self, self._snapshot(version))

    def diff(self, before: int, after: int, *, prefix: Any = None, start: Any = None,
             stop: Any = None, limit: int | None = None) -> list[tuple[bytes, bytes | None,
                                                                      bytes | None]]:
        """Returns (key, value before, value after) for each key of the range whose value differs
        between two closed versions. None: absent."""
        return self._diff(before, after, start, stop, prefix, limit)

    # --- the pool ---

    @property
    def pool(self) -> Any:
        """The Pool of the store."""
        return self._pool

    def sync(self) -> None:
        """Writes the whole pool back: all that was acknowledged before survives a power failure."""
        self._pool.sync()

    def close(self, *, sync: bool = True) -> None:
        """Closes the store, and its pool if perdure.open() has opened it: then waits for the calls
        of other threads. A second call does nothing."""
        self._close(sync)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed " if self.closed else ""
        return f"<{state}perdure.Store {self.name!r} in {self.path!r}, engine {self.engine}>"


MutableMapping.register(Store)


class Version(_Ranges[bytes, bytes], Mapping[bytes, bytes]):
    """A read-only mapping of the content of one closed version of a store. Made by Store.at().

    It does not change, whatever is written. Close it, or let it go, so that trim() can forget its
    version.
    """

    def __init__(self, store: Store, base: _core._Snapshot) -> None:
        self._store = store
        self._base = base

    __reduce_ex__ = _refuse_pickle

    @property
    def version(self) -> int:
        """The number that tag() returned."""
        return self._base.version

    def __getitem__(self, key: Any) -> bytes:
        value: bytes | None = self._base.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        return self._base.get(key, default)

    def __contains__(self, key: object) -> bool:
        return self._base.contains(key)

    def __len__(self) -> int:
        """O(n): counts the entries."""
        return self._base.count(*WHOLE)

    __eq__ = Mapping.__eq__  # compares the content, as all mappings do
    __hash__ = None  # type: ignore[assignment]

    def history(self, key: Any) -> list[tuple[int, bytes | None]]:
        """As Store.history(), up to this version."""
        return self._base.history(key)

    def diff(self, after: int | Version, **range: Any) -> Any:
        """As Store.diff(), from this version to `after`."""
        number = after.version if isinstance(after, Version) else after
        return self._store.diff(self.version, number, **range)

    def _count_range(self, range: Range) -> int:
        return self._base.count(*range)

    @staticmethod
    def _comparable(key: Any) -> bytes:
        return _core._key_bytes(key)

    def _iterate_range(self, what: str, range: Range) -> Iterator[Any]:
        return self._base.iterate(_YIELD[what], *range)

    def close(self) -> None:
        """Gives the version back. A second call does nothing."""
        self._base.close()

    def __enter__(self) -> Version:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


class Batch:
    """Changes that happen wholly or not at all, across every crash. Made by Store.batch() and
    Pool.batch().

    `batch[key]` and `del batch[key]` change the store of Store.batch(). put(), delete() and
    require() take the store or the IntMap first in a batch of Pool.batch(). A batch is for one
    thread.
    """

    def __init__(self, pool: Any, store: Any = None) -> None:
        self._map = store
        self._base = pool._base.batch()

    def _target(self, arguments: tuple[Any, ...], most: int) -> tuple[Any, ...]:
        if self._map is not None:
            arguments = (self._map, *arguments)
        if len(arguments) != most:
            names = ("key", "value")[: most - 1]
            if self._map is None:
                names = ("store", *names)
            raise TypeError(f"expected {', '.join(names)}")
        in_batch = getattr(arguments[0], "_in_batch", None)
        if in_batch is not None:  # an ObjectStore encodes its values
            arguments = in_batch(*arguments[1:])
        if not isinstance(arguments[0], (_core._StoreBase, _core._IntMapBase)):
            raise TypeError("the first argument is a store or an IntMap of the pool, not "
                            f"{type(arguments[0]).__name__}")
        return arguments

    def put(self, *arguments: Any) -> None:
        """put(key, value), or put(store, key, value): gives the key the value."""
        self._base.put(*self._target(arguments, 3))

    def delete(self, *arguments: Any) -> None:
        """delete(key), or delete(store, key): deletes the key, if it is present."""
        self._base.delete(*self._target(arguments, 2))

    def require(self, *arguments: Any) -> None:
        """require(key, value), or require(store, key, value): the batch raises ConflictError, and
        changes nothing, unless the key has the value; None: unless it is absent."""
        self._base.require(*self._target(arguments, 3))

    def get(self, *arguments: Any, default: Any = None) -> Any:
        """get(key), or get(store, key): the value that the key would have after a commit now, or
        `default` if it would be absent."""
        store = arguments[0] if self._map is None and arguments else self._map
        value = self._base.get(*self._target(arguments, 2))
        if value is None:
            return default
        decode = getattr(store, "_decode", None)  # of an ObjectStore
        return value if decode is None else decode(arguments[-1], value)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        self.delete(key)

    def __len__(self) -> int:
        return len(self._base)

    def commit(self) -> None:
        """Does all changes, durably, and forgets them. If it raises an error, they stay, and none
        was done; after PoisonedError the next open does all or none. The end of a `with` block
        calls it."""
        self._base.commit()

    def clear(self) -> None:
        """Forgets all changes."""
        self._base.clear()

    __reduce_ex__ = _refuse_pickle

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is None:
            self.commit()
        self.clear()
