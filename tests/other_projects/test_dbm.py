"""CPython's tests of the modules of dbm."""

import collections.abc
import contextlib
import dbm

import pytest

import perdure
from conftest import cpython_tests

test_dbm = cpython_tests("test_dbm")

MODES = {"r": "read_only", "w": "existing", "c": "open_or_create", "n": "open_or_create"}


class Database(collections.abc.MutableMapping):
    """What a module of dbm opens: keys() is a list, and setdefault() has a default."""

    def __init__(self, store):
        self.store = store

    def __getitem__(self, key):
        return self.store[key]

    def __setitem__(self, key, value):
        self.store[key] = value

    def __delitem__(self, key):
        del self.store[key]

    def __iter__(self):
        return iter(self.store)

    def __len__(self):
        return len(self.store)

    def keys(self):
        return list(self.store)

    def setdefault(self, key, default=b""):
        return self.store.setdefault(key, default)

    def close(self):
        self.store.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Module:
    """perdure as a module of dbm."""

    error = OSError

    @staticmethod
    def open(file, flag="r", mode=0o666):
        if flag == "n":
            with contextlib.suppress(perdure.NotFoundError):
                perdure.destroy(file)
        return Database(perdure.open(file, mode=MODES[flag]))

    @staticmethod
    def whichdb(file):
        """As dbm.whichdb, which knows its own modules only."""
        try:
            perdure.info(file)
            return "perdure"
        except perdure.NotFoundError:
            return None


class TestDbm(test_dbm.AnyDBMTestCase, test_dbm.unittest.TestCase):
    module = Module

    @pytest.fixture(autouse=True)
    def installed(self, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)  # the tests name files without a folder
        monkeypatch.setitem(dbm._modules, "perdure", Module)
        monkeypatch.setattr(dbm, "whichdb", Module.whichdb)
