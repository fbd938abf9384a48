"""The examples of the docstrings run, and every public name has a docstring."""

import doctest
import importlib
import inspect
import pathlib
import pkgutil
import re
import subprocess
import sys
import tempfile

import pytest

import perdure
from conftest import environment

ROOT = pathlib.Path(__file__).resolve().parents[2]

MODULES = ["perdure"] + [
    f"perdure.{module.name}" for module in pkgutil.iter_modules(perdure.__path__)
    if module.name != "_core"
]
CLASSES = [perdure.Store, perdure.IntMap, perdure.Pool, perdure.Version, perdure.Batch,
           perdure.ObjectStore]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_number_of_examples():
    found = {}
    for name in MODULES:
        for test in doctest.DocTestFinder().find(importlib.import_module(name)):
            if test.examples:
                found[test.name] = len(test.examples)
    for name in ("perdure", "perdure._pool.open", "perdure._pool.Pool", "perdure._store.Store",
                 "perdure._store.Store.batch", "perdure._store.Store.at",
                 "perdure._store._Mutable.modify", "perdure._ints.IntMap",
                 "perdure._serializers.ObjectStore", "perdure._pool.info", "perdure._pool.check"):
        assert name in found


def described(member):
    """True if the docstring says more than the signature."""
    text = inspect.getdoc(member) or ""
    lines = [line for line in text.splitlines() if line.strip() and "->" not in line]
    return len(" ".join(lines)) >= 15


def public_members(cls):
    for name in dir(cls):
        if not name.startswith("_") and name != "with_traceback":
            yield name, inspect.getattr_static(cls, name)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_method_has_a_docstring(cls):
    without = [name for name, member in public_members(cls) if not described(member)]
    # These come from the mapping protocol, or say by their names what they are.
    known = {"pop", "popitem", "update", "get", "keys", "closed", "path", "setdefault"}
    assert [name for name in without if name not in known] == []
    assert described(cls)


def test_errors_have_docstrings_and_codes():
    errors = [value for value in vars(perdure).values()
              if isinstance(value, type) and issubclass(value, BaseException)]
    assert len(errors) == 21
    assert [error.__name__ for error in errors if not described(error)] == []
    for error in errors:
        assert issubclass(error, perdure.Error)
        assert error.__module__ == "perdure"


def test_public_names():
    assert sorted(perdure.__all__) == sorted(set(perdure.__all__))
    assert [name for name in perdure.__all__ if not hasattr(perdure, name)] == []
    assert perdure.Store.__module__.startswith("perdure")


def test_the_reference_has_the_public_names():
    page = (ROOT / "scripts/docs/pages/python.md").read_text()
    named = re.findall(r"^::: perdure\.(\w+)$", page, re.M)
    assert sorted(named) == sorted(set(perdure.__all__) - {"__version__"})


def test_the_guide_runs_as_one_session(tmp_path):
    """Each block of docs/python.md sees the names of those before it, and what they have stored."""
    page = (ROOT / "docs/python.md").read_text()
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.S | re.M))
    assert program.count("perdure.open(") >= 4 and "serializer=" in program
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=tmp_path,
                          env=environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("b'user:1' b'ada'\n")


def test_quickstart(path):
    with perdure.open(path) as store:
        store["user:1"] = b"Ada"
        assert store["user:1"] == b"Ada"
        assert "user:2" not in store
        with pytest.raises(KeyError):
            del store["user:2"]
        store["user:2"] = b"Grace"
        assert list(store.items(prefix="user:", limit=10)) == [
            (b"user:1", b"Ada"), (b"user:2", b"Grace")]
    with perdure.open(path) as store:
        assert dict(store) == {b"user:1": b"Ada", b"user:2": b"Grace"}
