"""perdure: a key-value store in a file that survives any kill of the process.

>>> import perdure, tempfile
>>> path = tempfile.mkdtemp() + "/sessions.perdure"
>>> with perdure.open(path) as store:
...     store["user:1"] = b"ada"
...     store["user:2"] = b"grace"
...     list(store.items(prefix="user:"))
[(b'user:1', b'ada'), (b'user:2', b'grace')]

When a call returns, its effect survives a kill of the process. What survives a power failure
depends on `durability`; see the guide of the C++ library, docs/durability.md.

Open a pool in one process at a time. Any number of threads may use a pool and its maps: calls that
may wait release the GIL. A child of fork() must not use its parent's pool; its calls raise
ForkError.
"""

from perdure._core import (
    AccessError,
    BusyError,
    ClosedError,
    ConflictError,
    CorruptionError,
    Error,
    ExistsError,
    ForkError,
    FormatError,
    HashOverflowError,
    InvalidArgumentError,
    IoError,
    LiveMissingError,
    NotFoundError,
    OutOfMemoryError,
    PoisonedError,
    PoolFullError,
    ReadOnlyError,
    UnsupportedError,
    UntrustedError,
    __version__,
)
from perdure._backup import back_up, inspect_backup, restore
from perdure._ints import IntMap
from perdure._pool import Pool, PoolOptions, check, destroy, info, open, resize
from perdure._serializers import DecodeError, ObjectStore
from perdure._store import Batch, Store, Version

__all__ = [
    "AccessError",
    "Batch",
    "BusyError",
    "ClosedError",
    "ConflictError",
    "CorruptionError",
    "DecodeError",
    "Error",
    "ExistsError",
    "ForkError",
    "FormatError",
    "HashOverflowError",
    "IntMap",
    "InvalidArgumentError",
    "IoError",
    "LiveMissingError",
    "NotFoundError",
    "ObjectStore",
    "OutOfMemoryError",
    "PoisonedError",
    "Pool",
    "PoolFullError",
    "PoolOptions",
    "ReadOnlyError",
    "Store",
    "UnsupportedError",
    "UntrustedError",
    "Version",
    "__version__",
    "back_up",
    "check",
    "destroy",
    "info",
    "inspect_backup",
    "open",
    "resize",
    "restore",
]
