"""Pool: a file of named maps. open(): a pool with one store."""

from __future__ import annotations

import atexit
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, overload

from perdure import _core
from perdure._backup import _Path
from perdure._core import InvalidArgumentError
from perdure._ints import NUMBERS, IntMap
from perdure._serializers import ObjectStore, Serializer, with_objects
from perdure._store import Batch, Store
from perdure._views import _refuse_pickle

if TYPE_CHECKING:
    from typing_extensions import Unpack

GIB = 1 << 30


atexit.register(_core._end_calls)


class PoolOptions(TypedDict, total=False):
    """The options of Pool, for type checkers."""

    mode: str
    durability: str
    max_size: int
    recovery_threads: int
    background_threads: int
    accept_untrusted: bool
    allow_damage: bool
    handle_sigbus: bool
    timeout: float
    interval: float
    log_bytes: int
    keep_log_bytes: int
    memory_directory: _Path | None
    on_lag: str
    on_log_failure: str


class Pool:
    """One file that holds up to 1,024 named maps. One process opens it at a time.

    - `mode`: "open_or_create", "existing" (NotFoundError if it is absent), "create_new"
      (ExistsError if it is present), "read_only" (nothing is written). While a process reads a
      pool so, none can own it (BusyError). If another process has a "buffered" pool open, its last
      durable cut is read: the open takes memory and time as for a copy of the pool. In another
      durability: BusyError
    - `durability`: what survives: "process" a kill; "power" also a power failure; "buffered" a
      kill, and after a power failure the pool is as it was a moment before; "auto" the mode of the
      last open, for a new pool "power" on persistent memory, "buffered" on a local disk,
      "process" elsewhere
    - `max_size`: bytes that a new pool may grow to
    - `accept_untrusted`: serve a file that may lack data after a power failure, if a full check
      passes
    - `allow_damage`: with "read_only", open a damaged pool, so that check() can report the damage
    - `handle_sigbus`: if another process cuts the file short, raise PoisonedError instead of a
      signal
    - `timeout`: how many seconds an open waits for a pool that another process has open
    - only for "buffered": `interval`, seconds between two durable cuts; `log_bytes`, the bound of
      the log (0: 1 GiB, or a quarter of a larger pool); `keep_log_bytes`, how much of it stays for
      backup() when it is not needed any more; `memory_directory`, where the live image lies, such
      as "/dev/shm" (None: beside the pool); `on_lag`, if the disk is too slow: changes wait
      ("throttle"), or the lag grows ("report"); `on_log_failure`, if it fails: changes raise
      IoError ("refuse"), or go on ("serve")

    Messages of the pool go to the logger "perdure" of the module logging, when a call of the pool
    returns.

    >>> import perdure, tempfile
    >>> with perdure.Pool(tempfile.mkdtemp() + "/app.perdure") as pool:
    ...     users, hits = pool.store("users"), pool.int_map("hits")
    ...     with pool.batch() as batch:
    ...         batch.put(users, "1", b"ada")
    ...         batch.put(hits, 1, 42)
    ...     users["1"], hits[1], [m["name"] for m in pool.maps()]
    (b'ada', 42, ['users', 'hits'])
    """

    def __init__(self, path: _Path, *, mode: str = "open_or_create",
                 durability: str = "auto", max_size: int = 64 * GIB, recovery_threads: int = 0,
                 background_threads: int = 1, accept_untrusted: bool = False,
                 allow_damage: bool = False, handle_sigbus: bool = False, timeout: float = 0,
                 interval: float = 0.1, log_bytes: int = 0, keep_log_bytes: int = 0,
                 memory_directory: _Path | None = None,
                 on_lag: str = "throttle", on_log_failure: str = "refuse") -> None:
        self._base = _core._Pool(path, mode, durability, max_size, recovery_threads,
                                 background_threads, accept_untrusted, allow_damage, handle_sigbus,
                                 timeout, interval, log_bytes, keep_log_bytes, memory_directory,
                                 on_lag, on_log_failure)
        self._map_mode = "read_only" if mode == "read_only" else "open_or_create"

    __reduce_ex__ = _refuse_pickle
    __copy__ = _refuse_pickle

    def _mode(self, mode: str | None) -> str:
        return self._map_mode if mode is None else mode

    @overload
    def store(self, name: str = "default", *, engine: str | None = None, mode: str | None = None,
              capacity: int = 0, serializer: None = None,
              keys: type[bytes] = bytes) -> Store: ...
    @overload
    def store(self, name: str = "default", *, engine: str | None = None, mode: str | None = None,
              capacity: int = 0, serializer: Serializer,
              keys: type[bytes] = bytes) -> ObjectStore[bytes]: ...
    @overload
    def store(self, name: str = "default", *, engine: str | None = None, mode: str | None = None,
              capacity: int = 0, serializer: Serializer | None = None,
              keys: type[str]) -> ObjectStore[str]: ...
    def store(self, name: str = "default", *, engine: str | None = None, mode: str | None = None,
              capacity: int = 0, serializer: Serializer | None = None, keys: type = bytes) -> Any:
        """Opens or creates a map of byte strings. `engine`: "phast", "level", "clevel",
        "as", "ascs" or "pskiplist" (with versions); None: that of the map, of a new one "phast".
        `capacity`: how many entries are expected, a hint. With `serializer` ("json", "pickle" or
        functions (dumps, loads)) its values are objects, with keys=str its keys are read as str:
        then it is an ObjectStore."""
        return with_objects(
            lambda: Store(self._base.bytes_map(name, engine, self._mode(mode), capacity, False),
                          self), serializer, keys)

    def int_map(self, name: str = "ints", *, keys: str = "uint64", values: str = "uint64",
                engine: str | None = None, mode: str | None = None, capacity: int = 0) -> IntMap:
        """Opens or creates a map of integers. `keys`: "uint64" or "int64", fixed when the map is
        created. `values`: "uint64", "int64" or "float64", how the 8 bytes of a value are read."""
        if keys not in ("uint64", "int64"):
            raise _core.InvalidArgumentError(f"keys is uint64 or int64, not {keys}")
        if values not in NUMBERS:
            raise _core.InvalidArgumentError(f"values is uint64, int64 or float64, not {values}")
        base = self._base.int_map(name, engine, self._mode(mode), capacity, keys == "int64",
                                  NUMBERS[values])
        return IntMap(base, self, keys, values)

    def batch(self) -> Batch:
        """Returns a batch of changes of any maps of the pool; see Store.batch()."""
        return Batch(self)

    def maps(self) -> list[dict[str, Any]]:
        """Returns name, engine and types of each map."""
        return self._base.maps()

    def drop(self, name: str) -> None:
        """Removes a map, durably. No other thread may be using it."""
        self._base.drop(name)

    def sync(self) -> None:
        """Writes the whole file back: all that was acknowledged before survives a power failure."""
        self._base.sync()

    def epoch(self) -> int:
        """Returns the number of the next durable cut of a "buffered" pool: it will have everything
        that was acknowledged before the call."""
        return self._base.epoch()

    def wait_durable(self, epoch: int) -> None:
        """Returns when that cut, or a later one, survives a power failure. Any number of threads
        share one write to the disk."""
        self._base.wait_durable(epoch)

    def resume_log(self) -> None:
        """After the log of a "buffered" pool could not be written: tries again. The pool does it by
        itself each second."""
        self._base.resume_log()

    def fold_log(self) -> None:
        """Brings the log of a "buffered" pool into the pool's file. The pool does it by itself
        before the log is too long."""
        self._base.fold_log()

    def backup(self, folder: _Path) -> dict[str, Any]:
        """Makes a backup of a "buffered" pool in a folder, while the pool is used; or adds what is
        new to the one that is there. See restore()."""
        return self._base.backup(folder)

    def compact(self) -> int:
        """Gives free space back to the file system, and returns the number of bytes."""
        return self._base.compact()

    def check(self, *, deep: bool = False) -> dict[str, Any]:
        """Verifies the pool. result["ok"] is False if there are violations. With `deep` it reads
        every byte. No change may be under way."""
        return self._base.check(deep)

    def stats(self) -> dict[str, Any]:
        """Returns sizes in bytes, and figures of each map. May read every map. "buffered": what the
        cuts of such a pool do, and "lag_seconds", what a power failure now would undo at most."""
        return self._base.stats()

    def info(self) -> dict[str, Any]:
        """Returns what the file is and what its medium guarantees; see perdure.info()."""
        return self._base.info()

    @property
    def path(self) -> str:
        return self._base.path

    @property
    def closed(self) -> bool:
        return self._base.closed

    def close(self, *, sync: bool = True) -> None:
        """Waits for the calls of other threads and closes the pool. With `sync` the file is
        written back, so that it is trusted after a reboot. A second call does nothing."""
        self._base.close(sync)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{'closed ' if self.closed else ''}perdure.Pool {self.path!r}>"


@overload
def open(path: _Path, *, name: str = "default", engine: str | None = None, capacity: int = 0,
         serializer: None = None, keys: type[bytes] = bytes,
         **options: Unpack[PoolOptions]) -> Store: ...
@overload
def open(path: _Path, *, name: str = "default", engine: str | None = None, capacity: int = 0,
         serializer: Serializer, keys: type[bytes] = bytes,
         **options: Unpack[PoolOptions]) -> ObjectStore[bytes]: ...
@overload
def open(path: _Path, *, name: str = "default", engine: str | None = None, capacity: int = 0,
         serializer: Serializer | None = None, keys: type[str],
         **options: Unpack[PoolOptions]) -> ObjectStore[str]: ...
def open(path: _Path, *, name: str = "default", engine: str | None = None, capacity: int = 0,
         serializer: Serializer | None = None, keys: type = bytes,
         **options: Unpack[PoolOptions]) -> Any:
    """Opens or creates the pool `path`, and in it the store `name`. `options`: those of Pool;
    `engine`, `capacity`, `serializer` and `keys`: as Pool.store(). The close of the store closes
    the pool.

    >>> import perdure, tempfile
    >>> store = perdure.open(tempfile.mkdtemp() + "/cache.perdure", engine="clevel")
    >>> store["key"] = b"value"
    >>> store.close()
    """
    if os.fsencode(path) == b":memory:":
        raise InvalidArgumentError("':memory:' is a file's name here: perdure has no pools without "
                                   "a file; name one, in /dev/shm if a restart may take it")

    def open_store() -> Store:
        pool = Pool(path, **options)
        try:
            return Store(pool._base.bytes_map(name, engine, pool._map_mode, capacity, True), pool)
        except BaseException:
            pool.close()
            raise

    return with_objects(open_store, serializer, keys)


def info(path: _Path) -> dict[str, Any]:
    """Returns what the pool `path` is and what its medium guarantees, without an open: also while
    another process has it. Among others "trusted", whether an open will serve it, and if not
    "trust_note", why; "in_use" and "owner_pid", which process has it, or had it last;
    "durable_unix_ns", of a "buffered" pool that is open: a power failure now would undo nothing
    that was acknowledged by then (nanoseconds since 1970); "maps", as Pool.maps().

    >>> import perdure, tempfile
    >>> path = tempfile.mkdtemp() + "/cache.perdure"
    >>> with perdure.open(path, engine="clevel") as store:
    ...     info = perdure.info(path)
    >>> info["in_use"], info["trusted"], [m["engine"] for m in info["maps"]]
    (True, True, ['clevel'])
    """
    return _core.info(path)


def check(path: _Path, *, deep: bool = False, **options: Unpack[PoolOptions]) -> dict[str, Any]:
    """Opens the pool `path`, verifies it as Pool.check(), and closes it. A pool that an open
    refuses as damaged is opened once more, only to read, so that its damage is listed. If its
    headers are damaged, CorruptionError says what is wrong. `options`: those of Pool, such as
    mode="read_only" for the last durable cut of a "buffered" pool that another process has open.

    >>> import perdure, tempfile
    >>> path = tempfile.mkdtemp() + "/cache.perdure"
    >>> perdure.open(path).close()
    >>> perdure.check(path, deep=True)["ok"]
    True
    """
    options.setdefault("mode", "existing")
    try:
        pool = Pool(path, **options)
    except _core.CorruptionError:
        options.update({"mode": "read_only", "allow_damage": True})
        pool = Pool(path, **options)
    report: dict[str, Any] = {"ok": True}
    try:
        report = pool.check(deep=deep)
    finally:
        try:
            pool.close()
        except _core.CorruptionError:  # of damage that was found in the background
            if report["ok"]:
                raise
    return report


def resize(path: _Path, max_size: int) -> None:
    """Raises the bytes that the pool `path` may grow to. No process may have it open. It only
    rises; its entries stay where they are.

    >>> import perdure, tempfile
    >>> path = tempfile.mkdtemp() + "/cache.perdure"
    >>> perdure.open(path, max_size=1 << 30).close()
    >>> perdure.resize(path, 2 << 30)
    """
    _core.resize(path, max_size)


def destroy(path: _Path) -> None:
    """Removes the pool `path`, which no process may have open, with all that belongs to it: also
    the log and the live image of a "buffered" pool whose process was killed, and what is left of
    a pool whose file is gone. Damaged pools are removed, too; a file that is no pool stays. Raises
    ExistsError if what is left belongs to a pool in the same folder that was renamed.

    >>> import perdure, tempfile
    >>> path = tempfile.mkdtemp() + "/cache.perdure"
    >>> perdure.open(path).close()
    >>> perdure.destroy(path)
    """
    _core.destroy(path)
