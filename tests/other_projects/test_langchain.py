"""langchain's tests of stores of documents and of caches of answers."""

import hashlib
import json

import pytest
from langchain_core.caches import BaseCache
from langchain_core.stores import BaseStore
from langchain_tests.integration_tests import (
    AsyncCacheTestSuite,
    BaseStoreAsyncTests,
    BaseStoreSyncTests,
    SyncCacheTestSuite,
)

import perdure


class PerdureStore(BaseStore):
    """A perdure.ObjectStore with keys=str. Of bytes it is langchain's ByteStore."""

    def __init__(self, store):
        self.store = store

    def mget(self, keys):
        return self.store.get_many(keys)

    def mset(self, key_value_pairs):
        self.store.set_many(key_value_pairs)

    def mdelete(self, keys):
        self.store.delete_many(keys)

    def yield_keys(self, *, prefix=None):
        yield from self.store.keys(prefix=prefix)


class PerdureCache(BaseCache):
    """Lists of generations, in a perdure.ObjectStore that pickles."""

    def __init__(self, store):
        self.store = store

    @staticmethod
    def key(prompt, llm_string):
        """A prompt may be longer than a key."""
        return hashlib.sha256(json.dumps([prompt, llm_string]).encode()).digest()

    def lookup(self, prompt, llm_string):
        return self.store.get(self.key(prompt, llm_string))

    def update(self, prompt, llm_string, return_val):
        self.store[self.key(prompt, llm_string)] = return_val

    def clear(self, **kwargs):
        self.store.clear()


class OfBytes:
    @pytest.fixture
    def kv_store(self, path):
        with perdure.open(path, keys=str) as store:
            yield PerdureStore(store)

    @pytest.fixture
    def three_values(self):
        return b"foo", b"\0\xff", b""


class OfObjects:
    @pytest.fixture
    def kv_store(self, path):
        with perdure.open(path, keys=str, serializer="json") as store:
            yield PerdureStore(store)

    @pytest.fixture
    def three_values(self):
        return {"page": [1, 2]}, "bar", 0


class TestBytes(OfBytes, BaseStoreSyncTests):
    pass


class TestBytesAsync(OfBytes, BaseStoreAsyncTests):
    pass


class TestObjects(OfObjects, BaseStoreSyncTests):
    pass


class TestObjectsAsync(OfObjects, BaseStoreAsyncTests):
    pass


class OfAnswers:
    @pytest.fixture
    def cache(self, path):
        with perdure.open(path, serializer="pickle") as store:
            yield PerdureCache(store)


class TestCache(OfAnswers, SyncCacheTestSuite):
    pass


class TestCacheAsync(OfAnswers, AsyncCacheTestSuite):
    pass
