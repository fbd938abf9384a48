"""Backups of pools, and what is restored from them."""

from __future__ import annotations

import os
from typing import Any, Union

from perdure import _core

_Path = Union[str, bytes, "os.PathLike[Any]"]


def back_up(path: _Path, folder: _Path) -> dict[str, Any]:
    """Makes a backup of a pool in a folder: of a "buffered" pool that another process has open, or
    of a closed one. If the folder has a backup of this pool, what is new is added to it. A pool
    that this process has open has Pool.backup().

    Returns among others "first_epoch" and "last_epoch", between which restore() can choose, and
    "ends_unix_ns": what was acknowledged by then is in it (nanoseconds since 1970).
    """
    return _core.back_up(path, folder)


def inspect_backup(folder: _Path) -> dict[str, Any]:
    """Returns what a backup has, as back_up() does."""
    return _core.inspect_backup(folder)


def restore(folder: _Path, path: _Path, *, epoch: int | None = None,
            unix_ns: int | None = None) -> int:
    """Makes a new pool of a backup, as it was at its last epoch, at `epoch`, or at the last epoch
    up to `unix_ns` (nanoseconds since 1970, as time.time_ns()). The pool is verified and closed.
    Returns the epoch.

    >>> import perdure, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with perdure.open(folder + "/app.perdure") as store:
    ...     store["user:1"] = b"ada"
    >>> backup = perdure.back_up(folder + "/app.perdure", folder + "/backup")
    >>> _ = perdure.restore(folder + "/backup", folder + "/again.perdure")
    >>> with perdure.open(folder + "/again.perdure") as store:
    ...     store["user:1"]
    b'ada'
    """
    return _core.restore(folder, path, epoch, unix_ns)
