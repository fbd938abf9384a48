"""Views of the keys, values and entries of a range of a mapping."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any, Generic, NamedTuple, SupportsIndex, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")
_E = TypeVar("_E")


def _refuse_pickle(self: Any, protocol: SupportsIndex = 0) -> Any:
    raise TypeError(
        f"a {type(self).__name__} cannot be pickled or copied: pass its path, and open it again "
        "once this process has closed it"
    )


class Range(NamedTuple):
    """What a view covers. Keys from `start`, included, to `stop`, excluded."""

    start: Any = None
    stop: Any = None
    prefix: Any = None
    reverse: bool = False
    limit: int | None = None


WHOLE = Range()


class _RangeView(Generic[_E]):
    """The part of a view that knows its range."""

    _mapping: Any
    _range: Range
    _what: str

    def __init__(self, mapping: Any, range: Range = WHOLE) -> None:
        self._mapping = mapping
        self._range = range

    __reduce_ex__ = _refuse_pickle

    def __len__(self) -> int:
        if self._range == WHOLE:
            return len(self._mapping)
        count: int = self._mapping._count_range(self._range)
        return count

    def __iter__(self) -> Iterator[_E]:
        entries: Iterator[_E] = self._mapping._iterate_range(self._what, self._range)
        return entries

    def __reversed__(self) -> Iterator[_E]:
        if self._range.limit is not None:
            raise ValueError("a view with a limit cannot be reversed: pass reverse=True")
        turned = self._range._replace(reverse=not self._range.reverse)
        entries: Iterator[_E] = self._mapping._iterate_range(self._what, turned)
        return entries

    def _covers(self, key: Any) -> bool:
        """Whether the key lies in the range, which has no limit."""
        start, stop, prefix, _, _ = self._range
        key = self._mapping._comparable(key)
        return (
            (start is None or key >= self._mapping._comparable(start))
            and (stop is None or key < self._mapping._comparable(stop))
            and (prefix is None or key.startswith(self._mapping._comparable(prefix)))
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._mapping!r}>"


class Keys(_RangeView[_K], KeysView[_K]):
    """The keys of a range, in order."""

    _what = "keys"

    def __contains__(self, key: object) -> bool:
        if key not in self._mapping:
            return False
        if self._range.limit is None:
            return self._covers(key)
        key = self._mapping._yielded(key)
        return any(key == other for other in self)

    @classmethod
    def _from_iterable(cls, it: Any) -> set[Any]:
        return set(it)


class Values(_RangeView[_V], ValuesView[_V]):
    """The values of a range, in the order of their keys."""

    _what = "values"

    def __contains__(self, value: object) -> bool:
        return any(value == other for other in self)


class Items(_RangeView[tuple[_K, _V]], ItemsView[_K, _V]):
    """The pairs of key and value of a range, in the order of their keys."""

    _what = "items"

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, tuple) or len(item) != 2:
            return False
        key, value = item
        if key not in self._mapping:
            return False
        if self._range.limit is not None:
            pair = (self._mapping._yielded(key), value)
            return any(pair == other for other in self)
        found = self._mapping.get(key)
        return found is not None and bool(found == value) and self._covers(key)

    @classmethod
    def _from_iterable(cls, it: Any) -> set[Any]:
        return set(it)
