"""zarr's tests of stores of chunks."""

import asyncio

import pytest
from conftest import opened
from zarr.abc.store import Store
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.storage._utils import _normalize_byte_range_index
from zarr.testing.store import StoreTests


class PerdureStore(Store):
    """Chunks in the pool `path`."""

    supports_writes = supports_deletes = supports_listing = True

    def __init__(self, path, *, read_only=False):
        super().__init__(read_only=read_only)
        self.path = path
        self.chunks = opened(path)

    def __reduce__(self):
        return _made_again, (self.path, self.read_only)

    def with_read_only(self, read_only=False):
        return PerdureStore(self.path, read_only=read_only)

    def __eq__(self, other):
        return (isinstance(other, PerdureStore)
                and (self.path, self.read_only) == (other.path, other.read_only))

    def __repr__(self):
        return f"PerdureStore({self.path!r})"

    def get_sync(self, key, *, prototype=None, byte_range=None):
        self._is_open = True
        prototype = prototype or default_buffer_prototype()

        def part(view):
            begin, end = _normalize_byte_range_index(view, byte_range)
            return prototype.buffer.from_bytes(bytes(view[begin:end]))

        return self.chunks.read(key, part)[1]

    def set_sync(self, key, value):
        self._is_open = True
        self._check_writable()
        self.chunks[key] = value.as_numpy_array()

    def delete_sync(self, key):
        self._check_writable()
        self.chunks.discard(key)

    async def get(self, key, prototype=None, byte_range=None):
        return self.get_sync(key, prototype=prototype, byte_range=byte_range)

    async def get_partial_values(self, prototype, key_ranges):
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key):
        return key in self.chunks

    async def set(self, key, value):
        await asyncio.to_thread(self.set_sync, key, value)

    async def set_if_not_exists(self, key, value):
        self._check_writable()
        await asyncio.to_thread(self.chunks.insert, key, value.as_numpy_array())

    async def delete(self, key):
        await asyncio.to_thread(self.delete_sync, key)

    async def delete_dir(self, prefix):
        self._check_writable()
        self.chunks.delete_range(prefix=prefix and prefix.rstrip("/") + "/")

    async def list(self):
        for key in self.chunks:
            yield key.decode()

    async def list_prefix(self, prefix):
        for key in self.chunks.keys(prefix=prefix):
            yield key.decode()

    async def list_dir(self, prefix):
        prefix = prefix and prefix.rstrip("/") + "/"
        keys = self.chunks.keys(prefix=prefix)
        for name in {key.decode().removeprefix(prefix).split("/")[0] for key in keys}:
            yield name


def _made_again(path, read_only):
    return PerdureStore(path, read_only=read_only)


class TestStore(StoreTests):
    store_cls = PerdureStore
    buffer_cls = cpu.Buffer

    async def set(self, store, key, value):
        store.chunks[key] = value.to_bytes()

    async def get(self, store, key):
        return self.buffer_cls.from_bytes(store.chunks[key])

    @pytest.fixture
    def store_kwargs(self, path):
        return {"path": path}

    def test_store_repr(self, store):
        assert repr(store) == f"PerdureStore({store.path!r})"

    def test_store_supports_writes(self, store):
        assert store.supports_writes

    def test_store_supports_listing(self, store):
        assert store.supports_listing
