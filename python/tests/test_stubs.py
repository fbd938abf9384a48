"""Type checkers see the package: _core.pyi and py.typed are there, and a wrong call is reported."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from conftest import environment

FOLDER = Path(perdure.__file__).parent

GOOD = """
import numpy
import perdure
from typing import Iterator, Mapping, MutableMapping

store: perdure.Store = perdure.open("a", engine="clevel")
value: bytes = store["a"]
maybe: bytes | None = store.get("a")
store["a"] = b"1"
new: bool = store.put(b"a", b"1")
done: bool = store.compare_and_set("a", None, b"1")
keys: Iterator[bytes] = iter(store)
size: int = len(store)
mapping: MutableMapping[bytes, bytes] = store
popped: bytes = store.pop("a")
perhaps: bytes | None = store.pop("a", None)
pair: tuple[bytes, bytes] = store.popitem()
changed_to: bytes | None = store.modify("a", lambda old: (old or b"") + b"x")
entries: dict[bytes, bytes] = store | {"b": b"2"}
store |= {"b": b"2"}
store["array"] = numpy.zeros(3)
store[numpy.zeros(3)] = b"1"
store.set_many({"a": numpy.arange(4)[::2]})
users: perdure.ObjectStore[bytes] = perdure.open("u", serializer="json", timeout=5)
words: perdure.ObjectStore[str] = perdure.open("w", serializer=(repr, eval), keys=str)
texts: list[str] = list(words)
for word, meaning in words.items(limit=3):
    word.upper(), meaning.anything
options: perdure.PoolOptions = {"mode": "existing", "timeout": 1.5}
perdure.open("a", **options)
checked: bool = perdure.check("a", deep=True, mode="read_only")["ok"]
many: list[bytes | None] = store.get_many(["a"])
for key, item in store.items(prefix="a", limit=3):
    both: bytes = key + item
with store.batch() as batch:
    batch["a"] = b"1"
    batch.require("a", None)
version: int = store.tag()
old: perdure.Version = store.at(version)
frozen: Mapping[bytes, bytes] = old
with perdure.Pool("p", mode="existing", max_size=1 << 30) as pool:
    ints: perdure.IntMap = pool.int_map(keys="int64")
    number: int = ints.add(1)
    changed: int = pool.compact()
    plain: perdure.Store = pool.store("users")
    named: perdure.ObjectStore[str] = pool.store("users", keys=str)
    for count, weight in ints.items():
        total: int = count + 1
try:
    pass
except perdure.BusyError as error:
    code: str = error.code
"""

WRONG = [
    'perdure.open()', 'perdure.open("a").no_such_call()', 'perdure.open("a").put("a")',
    'perdure.open("a").keys("a")', 'perdure.Pool("a", sizes=1)', 'perdure.Pool(5)',
    'perdure.Pool("a", max_size="1G")', 'perdure.Pool("a").store(name=5)',
    'perdure.Pool("a").check(1)', 'perdure.Pool("a").nothing', 'perdure.open("a").at("x")',
    'perdure.open("a").tag(1)', 'perdure.open("a").trim("x")', 'perdure.NoSuchError',
    'perdure.Pool("a").int_map(capacity="x")', 'perdure.open("a").modify("k", 5)',
    'perdure.open("a").versions().x', 'x: str = perdure.open("a")["k"]',
    'perdure.open("a", max_sise=1)', 'perdure.open("a", timeout="5")',
    'perdure.check("a", mod="x")',
    'perdure.open("a").pop("k").encode()', 'perdure.open("a").popitem()[1].encode()',
    'perdure.open("a")["k"] = 5', 'perdure.open("a", keys=int)', 'perdure.open("a", serializer=5)',
    'next(iter(perdure.open("a"))).encode()', 'next(iter(perdure.open("a", keys=str))).decode()',
    'next(iter(perdure.open("a").items()))[1].encode()', 'perdure.PoolOptions(mode=5)',
]


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """mypy(program) returns the exit status and the output."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("mypy")

    def run(program, *options):
        (folder / "program.py").write_text(program)
        done = subprocess.run(
            [sys.executable, "-m", "mypy", *(options or ("--strict", "program.py"))], cwd=folder,
            text=True, capture_output=True, env={**environment(), "MYPYPATH": str(FOLDER.parent)})
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.fixture(scope="module")
def checked(mypy):
    """The lines of the wrong program that mypy reports, and its whole output."""
    _, output = mypy("import perdure\n" + "\n".join(WRONG) + "\n")
    lines = {int(line.split(":")[1]) for line in output.splitlines()
             if line.startswith("program.py:") and ": error:" in line}
    return lines, output


def test_files():
    assert (FOLDER / "py.typed").exists()
    assert (FOLDER / "_core.pyi").stat().st_size > 1000


def test_the_stub_matches_the_module():
    tree = ast.parse((FOLDER / "_core.pyi").read_text())
    names = {node.name for node in ast.walk(tree) if isinstance(node, (ast.ClassDef,
                                                                       ast.FunctionDef))}
    from perdure import _core

    for name, thing in vars(_core).items():
        if isinstance(thing, type):
            assert name in names, name
            for method in vars(thing):
                if not method.startswith("_") and callable(getattr(thing, method)):
                    assert method in names or issubclass(thing, BaseException), method


def words(text):
    return " ".join(text.split())


def test_the_stub_has_the_docstrings_of_the_module():
    """Editors and the reference of the site read them in the stub."""
    from perdure import _core

    count = 0
    for cls in ast.parse((FOLDER / "_core.pyi").read_text()).body:
        if not isinstance(cls, ast.ClassDef) or cls.name == "_Array":  # for type checkers
            continue
        thing = getattr(_core, cls.name)
        stubs = {None: ast.get_docstring(cls)}
        for node in cls.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                stubs[node.name] = stubs.get(node.name) or ast.get_docstring(node)
        for name, stub in stubs.items():
            real = (thing if name is None else vars(thing)[name]).__doc__ or ""
            if stub is None:  # the module has at most a signature
                assert "\n\n" not in real, (cls.name, name)
            else:
                assert words(real).endswith(words(stub)), (cls.name, name)
                count += 1
    assert count > 50


def test_the_options_are_those_of_a_pool():
    parameters = inspect.signature(perdure.Pool).parameters
    assert list(perdure.PoolOptions.__annotations__) == [
        name for name, parameter in parameters.items() if parameter.kind == parameter.KEYWORD_ONLY]


def test_a_right_program(mypy):
    code, output = mypy(GOOD)
    assert code == 0, output


@pytest.mark.parametrize("number", range(len(WRONG)), ids=WRONG)
def test_a_wrong_call_is_reported(checked, number):
    lines, output = checked
    assert number + 2 in lines, output[-3000:]


def test_the_package_itself(mypy):
    code, output = mypy("", "-p", "perdure")
    assert code == 0, output[-3000:]
