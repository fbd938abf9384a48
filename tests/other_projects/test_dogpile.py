"""dogpile.cache's tests of backends, with its own serializer and with another one."""

import tempfile

from conftest import close_stores, opened
from dogpile.cache import register_backend
from dogpile.cache.api import NO_VALUE, BytesBackend
from dogpile.testing.fixtures import _GenericBackendTestSuite, _GenericSerializerTestSuite


class PerdureBackend(BytesBackend):
    """The pool arguments["filename"]. It has no mutex: only one process has the pool, and
    dogpile's own mutexes serve its threads."""

    def __init__(self, arguments):
        self.store = opened(arguments["filename"])

    def get_serialized(self, key):
        return self.store.get(key, NO_VALUE)

    def get_serialized_multi(self, keys):
        return [NO_VALUE if value is None else value for value in self.store.get_many(keys)]

    def set_serialized(self, key, value):
        self.store[key] = value

    def set_serialized_multi(self, mapping):
        self.store.set_many(mapping)

    def delete(self, key):
        self.store.discard(key)

    def delete_multi(self, keys):
        self.store.delete_many(keys)


register_backend("perdure", __name__, "PerdureBackend")


class TestBackend(_GenericBackendTestSuite):
    backend = "perdure"

    @classmethod
    def setup_class(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.config_args = {"arguments": {"filename": f"{cls.folder.name}/cache.perdure"}}
        super().setup_class()

    @classmethod
    def teardown_class(cls):
        close_stores()
        cls.folder.cleanup()


class TestSerializer(_GenericSerializerTestSuite, TestBackend):
    pass
