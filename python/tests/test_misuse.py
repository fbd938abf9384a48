"""Wrong arguments of every call: an exception of the right class, and nothing is changed."""

import ctypes
import errno
import mmap
import os
import pickle

import numpy as np
import pytest

import perdure
from conftest import run_script

REFUSALS = (TypeError, ValueError, OverflowError, BufferError)  # never RuntimeError or SystemError


class Raises:
    """Every protocol of an argument raises."""

    def fail(self, *arguments):
        raise ZeroDivisionError("from the argument")

    __index__ = __fspath__ = __iter__ = __len__ = __getitem__ = __bool__ = __hash__ = fail
    __float__ = __int__ = __str__ = __call__ = fail


OBJECTS = (ctypes.py_object * 1)(1)  # a buffer of addresses
NOT_BYTES = [1, 1.5, object(), [b"a"], (b"a", b"b"), {}, OBJECTS, Raises(), Ellipsis, True]
WRONG = {
    "key": [None, "\ud800", *NOT_BYTES],
    "bound": ["\ud800", *NOT_BYTES],
    "value": [None, "text", *NOT_BYTES],
    "maybe": ["text", *NOT_BYTES],
    "function": [None, 1, b"f", "f", object(), []],
    "keys": [None, 1, object(), [1], [None], [b"a", 1], [["a"]], Raises()],
    "pairs": [None, 1, object(), [1], [()], [("a",)], [("a", b"1", b"2")], [("a", 1)],
              {"a": 1}, {1: b"1"}, {"a": None}, [("a", "text")], Raises(), ["abc"]],
    "limit": ["1", 1.5, -1, -2**70, b"1", object(), Raises()],
    "flag": ["yes", None, object(), 2, Raises()],
    "version": ["1", 1.5, -1, 2**64, 2**200, b"1", object(), Raises(), 10**6],
}

# The name of a call, and the kinds of its arguments.
STORE_CALLS = [
    ("__getitem__", "key"), ("__setitem__", "key", "value"), ("__delitem__", "key"),
    ("get", "key"), ("put", "key", "value"), ("insert", "key", "value"),
    ("replace", "key", "value"), ("discard", "key"), ("pop", "key"), ("setdefault", "key", "value"),
    ("compare_and_set", "key", "maybe", "maybe"), ("read", "key", "function"),
    ("modify", "key", "function"), ("get_many", "keys"), ("set_many", "pairs"),
    ("delete_many", "keys"), ("history", "key"), ("trim", "version"), ("rollback", "version"),
]
GOOD = {"key": "new", "value": b"v", "maybe": None, "function": lambda view: None, "keys": ["a"],
        "pairs": {"a": b"1"}, "version": 1, "bound": None, "limit": 1, "flag": False}
RANGE = {"prefix": "bound", "start": "bound", "stop": "bound", "limit": "limit", "reverse": "flag"}


@pytest.fixture
def full(path):
    with perdure.open(path, engine="pskiplist") as store:
        store["a"] = b"1"
        store.tag()
        yield store


def with_each_wrong(kinds):
    """Yields lists of arguments of which one is wrong."""
    for place, kind in enumerate(kinds):
        for wrong in WRONG[kind]:
            arguments = [GOOD[kind] for kind in kinds]
            arguments[place] = wrong
            yield arguments


def refused(call, *arguments, **named):
    try:
        result = call(*arguments, **named)
    except ZeroDivisionError as error:
        assert "from the argument" in str(error)
    except REFUSALS:
        pass
    else:
        pytest.fail(f"{call} {arguments!r:.200} {named!r:.200} returned {result!r:.200}")


@pytest.mark.parametrize("name, kinds", [(name, kinds) for name, *kinds in STORE_CALLS])
def test_store(full, name, kinds):
    for arguments in with_each_wrong(kinds):
        if name == "read":
            arguments[0] = "a" if arguments[0] == "new" else arguments[0]
        refused(getattr(full, name), *arguments)
        assert dict(full) == {b"a": b"1"}, arguments


@pytest.mark.parametrize("name, kinds", [(name, kinds) for name, *kinds in STORE_CALLS])
def test_number_of_arguments(full, name, kinds):
    call = getattr(full, name)
    with pytest.raises(TypeError):
        call()
    with pytest.raises(TypeError):
        call(*[GOOD[kind] for kind in kinds], *range(5))
    with pytest.raises(TypeError):
        call(*[GOOD[kind] for kind in kinds], unknown=1)
    assert dict(full) == {b"a": b"1"}


@pytest.mark.parametrize("name", ["keys", "values", "items"])
def test_ranges(full, name):
    with full.at() as version:
        for mapping in (full, version):
            for option, kind in RANGE.items():
                for wrong in WRONG[kind]:
                    refused(lambda: list(getattr(mapping, name)(**{option: wrong})))
                    refused(lambda: len(getattr(mapping, name)(**{option: wrong})))
            with pytest.raises(TypeError):
                getattr(mapping, name)("a")  # keywords only
            with pytest.raises(TypeError):
                getattr(mapping, name)(unknown="a")


def test_other_ranges(full):
    for option in ("prefix", "start", "stop"):
        for wrong in WRONG["bound"]:
            refused(full.delete_range, **{option: wrong})
            refused(full.diff, 1, 1, **{option: wrong})
    for wrong in WRONG["limit"]:
        refused(full.diff, 1, 1, limit=wrong)
    with pytest.raises(TypeError):
        full.delete_range("a")
    assert list(full.keys(limit=2**63)) == [b"a"]
    assert dict(full) == {b"a": b"1"}


def test_versions(full):
    with full.at() as view:
        for name in ("__getitem__", "get", "history"):
            for wrong in WRONG["key"]:
                refused(getattr(view, name), wrong)
        for wrong in WRONG["version"]:
            refused(full.at, wrong)
            refused(full.diff, wrong, 1)
            refused(full.diff, 1, wrong)
            refused(view.diff, wrong)
        assert dict(view) == {b"a": b"1"}


POOL_WRONG = {
    "mode": ["", "rw", None, 1, b"existing", object(), Raises()],
    "durability": ["", "none", None, 1, object(), Raises()],
    "max_size": [-1, 0, 1, 2**70, 2**63, "1G", None, 1.5, object(), Raises()],
    "recovery_threads": [-1, 2**40, None, "2", 1.5],
    "background_threads": [-1, 17, 2**40, None, "2", 1.5],
    "accept_untrusted": WRONG["flag"],
    "allow_damage": WRONG["flag"],
    "handle_sigbus": WRONG["flag"],
}


@pytest.mark.parametrize("option", POOL_WRONG)
def test_options_of_a_pool(disk_path, option):
    for wrong in POOL_WRONG[option]:
        refused(perdure.Pool, disk_path, **{option: wrong})
        refused(perdure.open, disk_path, **{option: wrong})
        assert not os.path.exists(disk_path)
    perdure.Pool(disk_path).close()


def test_paths(tmp_path):
    for wrong in (None, 1, 1.5, object(), [], Raises(), bytearray(b"a"), "a\0b", b"a\0b", "\ud800"):
        refused(perdure.Pool, wrong)
        refused(perdure.open, wrong)
    with pytest.raises(FileNotFoundError):
        perdure.open(tmp_path / "no" / "such" / "folder")
    for wrong in (tmp_path, "", str(tmp_path / ("x" * 300)), tmp_path / "file" / "below"):
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises((ValueError, OSError)) as error:
            perdure.open(wrong)
        assert isinstance(error.value, perdure.Error)
    for call in (perdure.Pool, perdure.open):
        with pytest.raises(TypeError):
            call()
        with pytest.raises(TypeError):
            call(tmp_path / "a", unknown=1)
        with pytest.raises(TypeError):
            call(tmp_path / "a", "existing")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("call", ["store", "int_map"])
def test_arguments_of_maps(pool, call):
    make = getattr(pool, call)
    for wrong in ("", "x" * 32, "é" * 16, "a\0b", None, 1, b"a", object(), "\ud800", Raises()):
        refused(make, wrong)
        refused(perdure.open, pool.path + "2", name=wrong)
    for wrong in ("", "btree", 1, b"phast", object(), Raises()):
        refused(make, engine=wrong)
    for wrong in ("", "rw", 1, object()):
        refused(make, mode=wrong)
    for wrong in (-1, 2**64, "1", None, 1.5, object(), Raises()):
        refused(make, capacity=wrong)
    assert pool.maps() == []


def test_other_calls_of_a_pool(pool):
    pool.store("a")["k"] = b"1"
    for wrong in (None, 1, b"a", object(), "\ud800", Raises()):
        refused(pool.drop, wrong)
    for wrong in ("", "b", "x" * 100):
        with pytest.raises(perdure.Error):
            pool.drop(wrong)
    for wrong in WRONG["flag"]:
        refused(pool.check, deep=wrong)
        refused(pool.close, sync=wrong)
    for call in (pool.maps, pool.sync, pool.compact, pool.check, pool.stats, pool.info, pool.batch,
                 pool.close):
        with pytest.raises(TypeError):
            call(1)
    assert not pool.closed and pool.store("a")["k"] == b"1"


def test_huge_values(store):
    store["a"] = b"1"
    with mmap.mmap(-1, (1 << 30) + 1) as huge:
        view = memoryview(huge)
        for call in (lambda: store.put("a", view), lambda: store.insert("b", view),
                     lambda: store.replace("a", view), lambda: store.set_many({"a": view}),
                     lambda: store.compare_and_set("a", b"1", view),
                     lambda: store.setdefault("b", view), lambda: store.pool.store(huge)):
            with pytest.raises(REFUSALS):
                call()
        with pytest.raises(perdure.InvalidArgumentError):
            with store.batch() as batch:
                batch["a"] = view
        assert store.get(memoryview(view[:1 << 20])) is None
        assert memoryview(view[:1 << 20]) not in store
        del batch
        view.release()
    assert dict(store) == {b"a": b"1"}


def test_classes_that_only_the_library_makes():
    for cls in (perdure.Store, perdure.IntMap, perdure.Batch):
        for arguments in [(), (None,), (None, None), (1, 2, 3, 4), ("path",)]:
            with pytest.raises((TypeError, AttributeError)):
                cls(*arguments)


def test_objects_that_were_never_initialised():
    run_script("""
        import warnings
        warnings.simplefilter("ignore")
        core = perdure._core
        classes = [thing for thing in vars(core).values()
                   if isinstance(thing, type) and not issubclass(thing, BaseException)]
        classes += [perdure.Store, perdure.IntMap, perdure.Pool, perdure.Version, perdure.Batch]
        for cls in classes:
            try:
                thing = cls.__new__(cls)
            except TypeError:
                continue
            for name in dir(cls):
                for arguments in [(), ("a",), ("a", b"b"), (1,), (1, 1), ("a", None, b"b")]:
                    if name in ("__init__", "__new__", "__class__", "__init_subclass__"):
                        continue
                    try:
                        getattr(thing, name)(*arguments)
                    except Exception:
                        pass
            try:
                list(thing)
            except Exception:
                pass
        """)


@pytest.mark.parametrize("array, kept", [
    (np.arange(6, dtype="u1")[::2], bytes([0, 2, 4])),
    (np.arange(4, dtype="u1")[::-1], bytes([3, 2, 1, 0])),
    (np.asfortranarray(np.arange(6, dtype="u1").reshape(2, 3)), bytes(range(6))),
    (memoryview(b"abcdef")[::2], b"ace"),
    (np.zeros((2, 0, 3))[::2], b""),
    (np.array([1], "M8[s]"), (1).to_bytes(8, "little")),
    (np.array([(1,)], dtype=[("OK", "<u2")]), b"\1\0"),
], ids=repr)
def test_arrays_of_any_layout_are_bytes(store, array, kept):
    """As bytes(memoryview) has them: those that are not contiguous are copied."""
    store["v"] = array
    assert store["v"] == kept
    assert store.compare_and_set("v", array, array) and store.set_many({b"k" + kept: array}) == 1
    with store.batch() as batch:
        batch["b"] = array
    assert store["b"] == store[b"k" + kept] == kept
    store[b"key"[:1] + kept] = b""
    if kept:
        store[array] = b"1"
        assert array in store and store[kept] == b"1" and kept in list(store)


@pytest.mark.parametrize("array", [
    np.array([1, "a"], dtype=object), np.array([None])[::2], OBJECTS,
    np.array([(1, "a")], dtype=[("n", "u4"), ("o", "O")]),
    # No format of a buffer has times.
    np.array([(0, "a")], dtype=[("t", "M8[s]"), ("o", "O")]),
], ids=repr)
def test_arrays_of_objects_are_refused(store, array):
    for call in (lambda: store.put("a", array), lambda: store.insert(array, b""),
                 lambda: store.set_many({"a": array}),
                 lambda: store.compare_and_set("a", None, array),
                 lambda: list(store.keys(prefix=array))):
        with pytest.raises(TypeError, match="Python objects"):
            call()
    assert len(store) == 0


@pytest.mark.parametrize("engine", ["phast", "clevel", "pskiplist"])
def test_membership_is_that_of_a_dict(disk_path, engine):
    plain = {b"a": b"1"}
    with perdure.open(disk_path, engine=engine) as store:
        store.update(plain)
        mappings = [store, store.keys(), store.pool.int_map()]
        if engine == "pskiplist":
            store.tag()
            mappings.append(store.at())
        for mapping in mappings:
            for key in (None, 1.5, object(), (b"a",), "\ud800", Ellipsis, -1, 2**64, perdure):
                assert key not in plain and key not in mapping
            for key in ([b"a"], {}, set(), OBJECTS):
                with pytest.raises(TypeError):
                    key in mapping
            with pytest.raises(ZeroDivisionError):
                Raises() in mapping
        assert "a" in store and b"a" in store.keys() and (object(), b"1") not in store.items()
        del mappings, mapping


def test_pickle_and_copy(full, pool_of_ints):
    import copy

    pool, ints = pool_of_ints
    with full.at() as view:
        for thing in (full, view, full.batch(), full.pool, iter(full), full.keys(), full.items(),
                      pool, ints, iter(ints), ints.keys(), view.keys()):
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                with pytest.raises(TypeError):
                    pickle.dumps(thing, protocol)
            with pytest.raises(TypeError):
                copy.deepcopy(thing)
        for thing in (full, full.batch(), full.pool, iter(full), pool, ints, view):
            with pytest.raises(TypeError):
                copy.copy(thing)


@pytest.fixture
def pool_of_ints(disk_path):
    with perdure.Pool(disk_path) as pool:
        yield pool, pool.int_map()


def test_errors_of_the_system_have_its_numbers(disk_path):
    def expect(kind, number, path=disk_path, call=perdure.Pool, **options):
        with pytest.raises(kind, match=str(path)) as raised:
            call(path, **options)
        assert isinstance(raised.value, perdure.Error)
        for error in (raised.value, pickle.loads(pickle.dumps(raised.value))):
            assert (error.errno, error.filename) == (number, path)
            assert error.strerror == str(error) and str(error).startswith(path)

    expect(FileNotFoundError, errno.ENOENT, mode="existing")
    for call in (perdure.destroy, lambda path: perdure.resize(path, 1 << 40)):
        expect(FileNotFoundError, errno.ENOENT, call=call)
    with perdure.open(disk_path) as store:
        expect(BlockingIOError, errno.EAGAIN)
        with pytest.raises(FileNotFoundError) as raised:
            store.pool.store("none", mode="existing")
        assert raised.value.filename == disk_path
        with pytest.raises(perdure.IoError) as raised:
            store.pool.backup(disk_path + "/below")
        assert (raised.value.errno, raised.value.filename, raised.value.filename2) == (
            errno.ENOTDIR, disk_path, disk_path + "/below")
    expect(FileExistsError, errno.EEXIST, mode="create_new")
    expect(perdure.IoError, errno.ENOTDIR, path=disk_path + "/below")
    expect(perdure.IoError, errno.ENAMETOOLONG, path=disk_path + "x" * 300)
    assert str(perdure.IoError("text")) == str(perdure.Error("text")) == "text"
    assert str(perdure.IoError(5, "text")) == "text" and perdure.IoError().errno is None


def test_a_path_without_permission(tmp_path):
    """The superuser may open all: the program becomes another user."""
    folder = tmp_path / "closed"
    folder.mkdir()
    perdure.open(folder / "there").close()
    folder.chmod(0)
    run_script("""
        import errno
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        for path in (sys.argv[1] + "/new", sys.argv[1] + "/there"):
            try:
                perdure.open(path)
            except PermissionError as error:
                assert isinstance(error, perdure.IoError) and type(error) is perdure.AccessError
                assert (error.errno, error.filename) == (errno.EACCES, path), error.args
                assert error.code == "io" and str(error).startswith(path)
            else:
                raise SystemExit("opened")
        """, folder)
    folder.chmod(0o700)


def test_a_full_pool_is_an_error_of_the_system(disk_path):
    with perdure.open(disk_path, max_size=1 << 20) as store:
        with pytest.raises(OSError, match="full") as raised:
            for number in range(1 << 20):
                store[str(number)] = bytes(1000)
        assert type(raised.value) is perdure.PoolFullError
        assert raised.value.errno == errno.ENOSPC


def test_paths_that_are_no_files():
    with pytest.raises(perdure.InvalidArgumentError, match="the path is empty"):
        perdure.open("")
    for path in (":memory:", b":memory:"):
        with pytest.raises(perdure.InvalidArgumentError, match="/dev/shm"):
            perdure.open(path)
    assert not os.path.exists(":memory:")


def test_resize(disk_path):
    with perdure.open(disk_path, max_size=1 << 30) as store:
        store["a"] = b"1"
        with pytest.raises(perdure.BusyError):
            perdure.resize(disk_path, 2 << 30)
    perdure.resize(disk_path, 2 << 30)
    with pytest.raises(perdure.InvalidArgumentError, match="not larger"):
        perdure.resize(disk_path, 1 << 30)
    with perdure.open(disk_path) as store:
        assert store.pool.info()["max_bytes"] == 2 << 30
        assert store["a"] == b"1"


@pytest.mark.parametrize("call, words", [
    (lambda store, ints: store.put("a", None), "a value is bytes .* not NoneType"),
    (lambda store, ints: store.put(None, b""), "a key is bytes, str .* not NoneType"),
    (lambda store, ints: store.get_many(None), "'NoneType' object is not iterable"),
    (lambda store, ints: ints.get(None), "'NoneType' object cannot be interpreted as an integer"),
    (lambda store, ints: ints.add(1, None), "'NoneType' object cannot be interpreted"),
    (lambda store, ints: store.pool.batch().put("a", 1, 2), "a store or an IntMap .* not str"),
    (lambda store, ints: ints.discard("a"), "'str' object cannot be interpreted as an integer"),
])
def test_a_wrong_type_is_named_in_words_of_python(pool, call, words):
    with pytest.raises(TypeError, match=words) as raised:
        call(pool.store(), pool.int_map())
    assert "incompatible function arguments" not in str(raised.value)


@pytest.mark.parametrize("engine", ["level", "clevel"])
def test_a_range_without_order_names_no_call_of_another_language(pool, engine):
    store, ints = pool.store(engine=engine), pool.int_map(engine=engine)
    for call in (lambda: list(store.keys(prefix="a")), lambda: next(reversed(store)),
                 lambda: len(store.items(limit=1)), lambda: store.delete_range(start="a"),
                 lambda: list(ints.items(stop=1)), lambda: next(reversed(ints))):
        with pytest.raises(perdure.UnsupportedError, match="iterate over all of it") as raised:
            call()
        assert str(raised.value).startswith(pool.path) and engine in str(raised.value)


def test_none_is_no_number(disk_path):
    with perdure.Pool(disk_path) as pool:
        numbers = pool.int_map("numbers")
        for call in (lambda: numbers.put(1, None), lambda: numbers.insert(1, None),
                     lambda: numbers.__setitem__(1, None)):
            with pytest.raises(TypeError, match="NoneType"):
                call()
