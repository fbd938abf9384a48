"""The compiled part of the package. Names that begin with _ are for the package itself."""

import enum
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Protocol, TypeVar, overload

from typing_extensions import Buffer

class _Array(Protocol):
    """An array of numpy: its stubs name no buffer before Python 3.12."""
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

_T = TypeVar("_T")
_Value = Buffer | _Array
_Key = str | _Value

__version__: str

class Error(Exception):
    """The base of all errors of perdure. `code` names the kind."""
    code: str

class InvalidArgumentError(Error, ValueError):
    """The call breaks a rule of its documentation."""

class NotFoundError(Error, FileNotFoundError):
    """There is no such file or map. Never raised for a key."""

class ExistsError(Error, FileExistsError):
    """The file or map exists, and the call asked for a new one."""

class BusyError(Error, BlockingIOError):
    """Another process owns the pool, or a later version is held."""

class CorruptionError(Error):
    """The content of the file breaks the format."""

class FormatError(Error):
    """Another format version, unknown features, or another machine."""

class UntrustedError(Error):
    """The file may lack acknowledged data after a power failure."""

class PoolFullError(Error, OSError):
    """No space is left in the pool or on the disk."""

class OutOfMemoryError(Error, MemoryError):
    """The machine's memory is short, not the pool."""

class IoError(Error, OSError):
    """The operating system refused an operation."""

class AccessError(IoError, PermissionError):
    """The operating system denies the access."""

class PoisonedError(Error):
    """A write-back failed: close the pool and open it again."""

class UnsupportedError(Error, NotImplementedError):
    """The engine, the medium or this build cannot do it."""

class ReadOnlyError(Error):
    """A change of a pool that was opened read-only."""

class HashOverflowError(Error):
    """More keys of one hash than the table takes."""

class ConflictError(Error):
    """A requirement of a batch is not met. Nothing was changed."""

class LiveMissingError(Error):
    """The live image of a buffered pool is missing, or not usable."""

class ClosedError(InvalidArgumentError):
    """The pool, or the object, was closed."""

class ForkError(Error, RuntimeError):
    """The pool was opened by the parent process. A child opens it itself, once the parent has
    closed it."""

class _Number(enum.Enum):
    uint64 = 0
    int64 = 1
    float64 = 2

class _Yield(enum.Enum):
    keys = 0
    values = 1
    items = 2

class _Iterator(Iterator[Any]):
    def __iter__(self) -> _Iterator: ...
    def __next__(self) -> Any: ...

class _Lent: ...

class _StoreBase(MutableMapping[bytes, bytes]):
    def __init__(self, base: _StoreBase, /) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: _Key, /) -> bytes: ...
    def __setitem__(self, key: _Key, value: _Value, /) -> None: ...
    def __delitem__(self, key: _Key, /) -> None: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __iter__(self) -> Iterator[bytes]: ...
    @overload
    def get(self, key: _Key) -> bytes | None:
        """Returns the value of the key, or `default` if the key is absent."""
    @overload
    def get(self, key: _Key, default: _T) -> bytes | _T: ...
    def put(self, key: _Key, value: _Value) -> bool:
        """Gives the key the value. Returns True if the key is new, False if its value was
        replaced."""
    def insert(self, key: _Key, value: _Value) -> bool:
        """Inserts the key unless it exists. Returns whether it did."""
    def replace(self, key: _Key, value: _Value) -> bool:
        """Replaces the value of the key if it exists. Returns whether it did."""
    def discard(self, key: _Key) -> bool:
        """Deletes the key if it exists. Returns whether it did."""
    def compare_and_set(
        self, key: _Key, expected: _Value | None, value: _Value | None
    ) -> bool:
        """Gives the key `value` if its value is `expected`, in one step. None stands for an
        absent key, so that the call can insert and delete, too. Returns whether it did."""
    def read(
        self, key: _Key, function: Callable[[memoryview], _T]
    ) -> tuple[bool, _T | None]:
        """Calls function(view) with a memoryview of the value where it lies in the file.
        Returns (True, its result), or (False, None) if the key is absent. The view ends with
        the function, which may read the store and must not change it."""
    def get_many(self, keys: Iterable[_Key]) -> list[bytes | None]:
        """Returns the value of each key, None where it is absent. Faster than single calls;
        not one atomic step."""
    def set_many(
        self, entries: Mapping[Any, _Value] | Iterable[tuple[_Key, _Value]]
    ) -> int:
        """Sets the entries of a mapping, or of an iterable of pairs. Returns how many keys are
        new. Faster than single calls; each entry is atomic by itself. batch() makes all of
        them one step."""
    def delete_many(self, keys: Iterable[_Key]) -> int:
        """Deletes the keys, each atomically. Returns how many were there."""
    def tag(self) -> int:
        """Closes the open version and returns its number. It contains all that was written
        before, and never changes. Durable when the call returns. Engine `pskiplist`. In
        durability `buffered` the first call after an open, and one in 4,096, waits for a cut."""
    def versions(self) -> tuple[int, int]:
        """Returns (first, last) of the closed versions that can be read. If last < first there
        is none."""
    def history(self, key: _Key) -> list[tuple[int, bytes | None]]:
        """Returns (version, value) for each version in which the key was written, the oldest
        first. None: it was deleted."""
    def trim(self, version: int) -> int:
        """Forgets the versions below `version`, or below the lowest one that a view holds.
        Returns the first version that remains."""
    def rollback(self, version: int) -> None:
        """Makes the content of `version` the latest one, in one step; what was written later
        is lost. No other call may be under way. Raises BusyError if a view holds a later
        version."""
    @property
    def closed(self) -> bool:
        """Whether the map or its pool is closed."""
    @property
    def name(self) -> str:
        """The name of the map."""
    @property
    def path(self) -> str:
        """The file of the pool."""
    @property
    def engine(self) -> str:
        """The name of the engine."""
    @property
    def ordered(self) -> bool:
        """Whether the engine keeps an order."""
    @property
    def versioned(self) -> bool:
        """Whether the engine keeps versions."""
    def _count(
        self, start: Any, stop: Any, prefix: Any, reverse: bool, limit: int | None
    ) -> int: ...
    def _delete_range(
        self, start: Any, stop: Any, prefix: Any, reverse: bool, limit: int | None
    ) -> int: ...
    def _iterate(
        self, what: _Yield, start: Any, stop: Any, prefix: Any, reverse: bool, limit: int | None
    ) -> _Iterator: ...
    def _all_keys(self, limit: int) -> list[bytes]: ...
    def _snapshot(self, version: int | None) -> _Snapshot: ...
    def _diff(
        self, before: int, after: int, start: Any, stop: Any, prefix: Any, limit: int | None
    ) -> list[tuple[bytes, bytes | None, bytes | None]]: ...
    def _close(self, sync: bool) -> None: ...

class _IntMapBase(MutableMapping[int, Any]):
    def __init__(self, base: _IntMapBase, /) -> None: ...
    def get(self, key: int, default: Any = None) -> Any:
        """Returns the value of the key, or `default` if the key is absent."""
    def put(self, key: int, value: float) -> bool:
        """Gives the key the value. Returns True if the key is new, False if its value was
        replaced."""
    def insert(self, key: int, value: float) -> bool:
        """Inserts the key unless it exists. Returns whether it did."""
    def discard(self, key: int) -> bool:
        """Deletes the key if it exists. Returns whether it did."""
    def __getitem__(self, key: int, /) -> Any: ...
    def __setitem__(self, key: int, value: Any, /) -> None: ...
    def __delitem__(self, key: int, /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[int]: ...
    def compare_and_set(
        self, key: int, expected: float | None, value: float | None
    ) -> bool:
        """Gives the key `value` if its value is `expected`, in one step. None stands for an
        absent key. Returns whether it did."""
    def add(self, key: int, delta: int = 1) -> int:
        """Adds to the value of the key, which is 0 if the key is absent, in one step. Returns
        the new value. Overflow wraps around."""
    def _all_keys(self, limit: int) -> list[int]: ...
    @property
    def closed(self) -> bool:
        """Whether the map or its pool is closed."""
    @property
    def name(self) -> str:
        """The name of the map."""
    @property
    def path(self) -> str:
        """The file of the pool."""
    @property
    def engine(self) -> str:
        """The name of the engine."""
    @property
    def ordered(self) -> bool:
        """Whether the engine keeps an order."""
    @property
    def versioned(self) -> bool:
        """Whether the engine keeps versions."""
    def _contains(self, key: Any) -> bool: ...
    def _find_many(self, keys: Any, values: Any, mask: Any) -> int: ...
    def _put_many(self, keys: Any, values: Any) -> int: ...
    def _erase_many(self, keys: Any) -> int: ...
    def _length(self) -> int: ...
    def _iterate(
        self, what: _Yield, start: int | None, stop: int | None, reverse: bool, limit: int | None
    ) -> _Iterator: ...

class _Snapshot:
    @property
    def version(self) -> int: ...
    def get(self, key: _Key, default: Any = None) -> Any: ...
    def contains(self, key: Any) -> bool: ...
    def iterate(
        self, what: _Yield, start: Any, stop: Any, prefix: Any, reverse: bool, limit: int | None
    ) -> _Iterator: ...
    def count(
        self, start: Any, stop: Any, prefix: Any, reverse: bool, limit: int | None
    ) -> int: ...
    def history(self, key: _Key) -> list[tuple[int, bytes | None]]: ...
    def close(self) -> None: ...

class _Batch:
    def put(self, map: _StoreBase | _IntMapBase, key: Any, value: Any) -> None: ...
    def delete(self, map: _StoreBase | _IntMapBase, key: Any) -> None: ...
    def require(self, map: _StoreBase | _IntMapBase, key: Any, value: Any) -> None: ...
    def get(self, map: _StoreBase | _IntMapBase, key: Any) -> Any: ...
    def commit(self) -> None: ...
    def clear(self) -> None: ...
    def __len__(self) -> int: ...

class _Pool:
    def __init__(
        self,
        path: str | bytes | os.PathLike[Any],
        mode: str,
        durability: str,
        max_size: int,
        recovery_threads: int,
        background_threads: int,
        accept_untrusted: bool,
        allow_damage: bool,
        handle_sigbus: bool,
        timeout: float,
        interval: float,
        log_bytes: int,
        keep_log_bytes: int,
        memory_directory: str | bytes | os.PathLike[Any] | None,
        on_lag: str,
        on_log_failure: str,
    ) -> None: ...
    def bytes_map(
        self, name: str, engine: str | None, mode: str, capacity: int, owns: bool
    ) -> _StoreBase: ...
    def int_map(
        self,
        name: str,
        engine: str | None,
        mode: str,
        capacity: int,
        is_signed: bool,
        number: _Number,
    ) -> _IntMapBase: ...
    def batch(self) -> _Batch: ...
    def maps(self) -> list[dict[str, Any]]: ...
    def drop(self, name: str) -> None: ...
    def sync(self) -> None: ...
    def epoch(self) -> int: ...
    def wait_durable(self, epoch: int) -> None: ...
    def resume_log(self) -> None: ...
    def fold_log(self) -> None: ...
    def backup(self, folder: str | bytes | os.PathLike[Any]) -> dict[str, Any]: ...
    def compact(self) -> int: ...
    def check(self, deep: bool) -> dict[str, Any]: ...
    def stats(self) -> dict[str, Any]: ...
    def info(self) -> dict[str, Any]: ...
    def close(self, sync: bool) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def closed(self) -> bool: ...

def back_up(
    path: str | bytes | os.PathLike[Any], folder: str | bytes | os.PathLike[Any]
) -> dict[str, Any]: ...
def inspect_backup(folder: str | bytes | os.PathLike[Any]) -> dict[str, Any]: ...
def restore(
    folder: str | bytes | os.PathLike[Any],
    path: str | bytes | os.PathLike[Any],
    epoch: int | None,
    unix_ns: int | None,
) -> int: ...
def info(path: str | bytes | os.PathLike[Any]) -> dict[str, Any]: ...
def destroy(path: str | bytes | os.PathLike[Any]) -> None: ...
def resize(path: str | bytes | os.PathLike[Any], max_size: int) -> None: ...
def _end_calls() -> None: ...
def _key_bytes(key: _Key) -> bytes: ...
