"""No leaks of references or memory; pools are closed as garbage and at exit."""

import gc
import shelve
import subprocess
import sys
import weakref

import pytest

import perdure
from conftest import environment, run_script, scale, script_command

MEASURE = """
import gc, resource, tracemalloc

def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def grows(call, count):
    '''Bytes that `count` calls add, to the process and to Python, after a warm-up.'''
    for _ in range(count // 3):
        call()
    gc.collect()
    tracemalloc.start()
    call()
    gc.collect()
    before, python = rss(), tracemalloc.get_traced_memory()[0]
    for _ in range(count // 20):
        call()
    gc.collect()
    python = tracemalloc.get_traced_memory()[0] - python
    tracemalloc.stop()
    before = rss()
    for _ in range(count):
        call()
    gc.collect()
    return rss() - before, python

def refused(call):
    def run():
        try:
            call()
        except (perdure.Error, TypeError, ValueError, KeyError, OverflowError, BufferError,
                ZeroDivisionError):
            return
        raise AssertionError("no error")
    return run

value = b"v" * 1000
pool = perdure.Pool(sys.argv[1], max_size=1 << 30)
store, ints = pool.store("s", engine="pskiplist"), pool.int_map("i")
plain = pool.store("p")
for mapping in (store, plain):
    mapping.update({b"%d" % i: value for i in range(10)})
ints.update({i: i for i in range(10)})
version = store.tag()
view = store.at(version)
count = int(sys.argv[2])

def commit():
    with plain.batch() as batch:
        batch["1"] = value
        del batch["2"]
        batch.require("3", value)

def conflict():
    with plain.batch() as batch:
        batch["1"] = value
        batch.require("3", b"other")

def wrong(kept):
    return 1 / 0

calls = {
    "get": lambda: plain["1"], "get default": lambda: plain.get("absent", value),
    "put": lambda: plain.put("1", value), "discard": lambda: plain.discard("absent"),
    "insert and delete": lambda: (plain.put("n", value), plain.__delitem__("n")),
    "contains": lambda: "1" in plain, "len": lambda: len(plain),
    "cas": lambda: plain.compare_and_set("1", value, value),
    "modify": lambda: plain.modify("1", lambda old: old), "read": lambda: plain.read("1", len),
    "iterate": lambda: list(plain.items()), "range": lambda: list(plain.keys(prefix="1")),
    "half an iteration": lambda: next(iter(plain)), "count": lambda: len(plain.keys(start="1")),
    "reversed": lambda: next(reversed(plain)), "repr": lambda: repr(plain),
    "get_many": lambda: plain.get_many(["1", "x"]),
    "set_many": lambda: plain.set_many({"1": value}),
    "delete_many": lambda: plain.delete_many(["absent"]), "commit": commit,
    "pool.store": lambda: pool.store("p"), "pool.int_map": lambda: pool.int_map("i"),
    "maps": pool.maps, "info": pool.info, "at": lambda: store.at(version)["1"],
    "at iterate": lambda: list(store.at(version).items()), "view": lambda: view.get("1"),
    "history": lambda: store.history("1"), "diff": lambda: store.diff(version, version),
    "versions": store.versions, "views as sets": lambda: plain.keys() & {b"1"},
    "ints get": lambda: ints[1], "ints put": lambda: ints.put(1, 2**63), "add": lambda: ints.add(1),
    "ints iterate": lambda: list(ints.items()), "ints contains": lambda: 2**63 in ints,
    "no key": refused(lambda: plain["absent"]), "no key in ints": refused(lambda: ints[99]),
    "wrong key": refused(lambda: plain.get(5)), "wrong value": refused(lambda: plain.put("1", 5)),
    "wrong pairs": refused(lambda: plain.set_many([("1", value), ("2", 5)])),
    "wrong keys": refused(lambda: plain.get_many(["1", 5])),
    "long key": refused(lambda: plain.put(b"k" * 65536, value)),
    "read raises": refused(lambda: plain.read("1", wrong)),
    "modify raises": refused(lambda: plain.modify("1", wrong)),
    "read writes": refused(lambda: plain.read("1", lambda view: plain.put("1", value))),
    "conflict": refused(conflict), "negative": refused(lambda: ints.put(-1, 1)),
    "no version": refused(lambda: store.at(10**6)), "wrong version": refused(lambda: store.at("1")),
    "wrong range": refused(lambda: list(plain.keys(start=5))),
    "wrong limit": refused(lambda: list(plain.keys(limit=-1))),
    "no map": refused(lambda: pool.store("absent", mode="existing")),
    "wrong engine": refused(lambda: pool.store("p", engine="level")),
    "no pool": refused(lambda: perdure.Pool("/no/such/pool", mode="existing")),
}
if sys.argv[3] == "numpy":
    import numpy as np
    words, wrongs = np.arange(10), np.array([-1])
    calls = {
        "find_many": lambda: ints.find_many(words), "put_many": lambda: ints.put_many(words, words),
        "erase_many": lambda: ints.erase_many(words + 100),
        "lists": lambda: ints.find_many([1, 2, 3]),
        "negative": refused(lambda: ints.put_many(wrongs, wrongs)),
        "lengths": refused(lambda: ints.put_many(words, words[:3])),
        "array value": lambda: plain.put("1", words),
    }
bad = []
for name, call in calls.items():
    for attempt in range(2):
        process, python = grows(call, count)
        if process < count * 25 + 300_000 and python < count / 20 * 8 + 3000:
            break
    else:
        bad.append(f"{name}: {process / count:.0f} and {python / (count / 20):.0f} bytes a call")
print("\\n".join(bad))
view.close()
del view
"""


@pytest.mark.parametrize("part", ["plain", "numpy"])
def test_memory(path, part):
    assert run_script(MEASURE, path, scale(4000, 100_000), part, timeout=600).strip() == ""


def test_references(path):
    key, value, missing = b"key of the test", b"value" * 10, object()
    function = lambda view: None  # noqa: E731
    with perdure.open(path, engine="pskiplist") as store:
        ints = store.pool.int_map()
        number = 2**40 + 1
        counted = [key, value, missing, function, number, store, store.pool, ints]

        def work():
            store[key] = value
            store.get(key, missing)
            store.get("absent", missing)
            store.put(key, value)
            store.compare_and_set(key, value, value)
            store.read(key, function)
            store.set_many([(key, value)])
            store.get_many([key])
            store.delete_many([key])
            store.insert(key, value)
            list(store.items(prefix=key, start=key))
            store.batch().put(key, value)
            ints[number] = number
            ints.get(number, missing)
            ints.get(5, missing)
            iter(store), iter(ints), store.keys(), store.at(store.tag())
            for wrong in (lambda: store.put(key, None), lambda: store.put(None, value),
                          lambda: store.read(key, None), lambda: ints.put(number, missing),
                          lambda: store.set_many([(key, value), (key, missing)])):
                with pytest.raises((TypeError, ValueError)):
                    wrong()

        work()
        gc.collect()
        before = [sys.getrefcount(thing) for thing in counted]
        for _ in range(50):
            work()
        gc.collect()
        after = [sys.getrefcount(thing) for thing in counted]
        assert [b - a for a, b in zip(before, after)] == [0] * len(counted)


def test_a_pool_is_closed_when_it_is_garbage(path):
    store = perdure.open(path)
    store["a"] = b"1"
    reference = weakref.ref(store.pool)
    del store
    gc.collect()
    assert reference() is None
    with perdure.open(path) as store:  # not busy
        assert store["a"] == b"1"
        assert store.pool.info()["clean"]


def test_a_map_or_an_iterator_keeps_its_pool(path):
    store = perdure.Pool(path).store()
    gc.collect()
    store["a"] = b"1"
    iterator = iter(store)
    del store
    gc.collect()
    assert next(iterator) == b"a"
    del iterator
    gc.collect()
    perdure.open(path).close()


def test_cycles(path):
    class Owner:
        pass

    for _ in range(3):
        owner = Owner()
        owner.store = perdure.open(path, engine="pskiplist")
        owner.store.owner = owner
        owner.store["a"] = b"1"
        owner.version = owner.store.at(owner.store.tag())
        owner.version.owner = owner
        owner.iterator, owner.view = iter(owner.store), owner.store.items()
        del owner
        gc.collect()
        perdure.open(path).close()


EXITS = {
    "plain": "",
    "version and iterator": "version = store.at(store.tag()); walk = iter(version); next(walk)",
    "batch": "batch = store.batch(); batch['b'] = b'2'",
    "error": "import atexit; atexit.register(lambda: print('x', file=sys.stderr)); 1 / 0",
    "sys.exit": "sys.exit(0)",
    "cycle": "store.me = store; ints.me = [ints, store]",
    "in a module": "import types; m = types.ModuleType('m'); sys.modules['m'] = m; m.store = store;"
                   "del store, ints",
    "leaked": "import ctypes; ctypes.pythonapi.Py_IncRef(ctypes.py_object(store)); del store, ints",
    "shelf": "import shelve; shelf = shelve.Shelf(store, writeback=True); shelf['list'] = []\n"
             "shelf['list'].append(5)",
    "shelf beside a daemon": "import shelve; shelf = shelve.Shelf(store, writeback=True)\n"
                             "shelf['list'] = []; shelf['list'].append(5)\n"
                             "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
    "late": "class Late:\n    def __del__(self):\n        try:\n            store['late'] = b'1'\n"
            "        except Exception:\n            pass\nlate = Late()",
    "atexit": "import atexit\n@atexit.register\ndef last():\n    store['last'] = b'1'",
    "daemon threads": """
def work(n):
    i = 0
    while True:
        store[b'%d %d' % (n, i)] = b'x' * 500
        i += 1
        if n == 1:
            len(store.keys(prefix='1'))
        if n == 2:
            sum(1 for _ in zip(range(50), store))
for n in range(4):
    threading.Thread(target=work, args=(n,), daemon=True).start()
time.sleep(0.2)
""",
    "daemon in a callback": """
def work():
    store.read('a', lambda view: time.sleep(0.8))
threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
""",
}


@pytest.mark.parametrize("name", EXITS)
def test_exit_of_the_interpreter(path, name):
    """The pool is closed properly, without a word on stderr but that of the program's error."""
    code = ('store = perdure.open(sys.argv[1], engine="pskiplist")\n'
            'ints = store.pool.int_map()\nstore["a"], ints[1] = b"1", 1\n' + EXITS[name])
    done = subprocess.run(script_command(code, path), env=environment(), timeout=20,
                          capture_output=True, text=True)
    assert done.returncode == (1 if name == "error" else 0), done.stderr[-3000:]
    if name == "error":
        assert "ZeroDivisionError" in done.stderr
    assert "leaked" not in done.stderr and "Fatal" not in done.stderr
    with perdure.open(path) as store:
        assert store.pool.info()["clean"]
        assert store["a"] == b"1" and store.pool.int_map()[1] == 1
        assert "b" not in store
        for key, writer in (("last", "atexit"), ("late", "late"), ("list", "shelf")):
            assert (key in store) == name.startswith(writer)
        if name.startswith("shelf"):
            assert shelve.Shelf(store)["list"] == [5]
            return
        assert store.pool.check(deep=True)["ok"]


def test_a_handler_that_was_registered_before_the_import(path):
    code = """
import atexit, sys
atexit.register(lambda: store.__setitem__("last", b"1"))
import perdure
store = perdure.open(sys.argv[1])
"""
    done = subprocess.run([sys.executable, "-c", code, path], env=environment(), timeout=20,
                          capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    with perdure.open(path) as store:
        assert store.pool.info()["clean"] and store["last"] == b"1"


def test_memory_that_is_lent_at_the_exit(path):
    """The pool stays open, because its memory must: the file is as a kill leaves it."""
    code = """
import ctypes
store = perdure.open(sys.argv[1])
store["a"] = bytes(100)
kept = []
try:
    store.read("a", lambda view: kept.append(memoryview(view)))
except BufferError:
    pass
assert len(kept) == 1
ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))
ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
"""
    run_script(code, path)
    with perdure.open(path) as store:
        assert store["a"] == bytes(100)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the module has another name")
def test_another_interpreter_of_the_process(path):
    """It cannot import the package, and its end leaves the pools of the first one alone."""
    out = run_script("""
        import _xxsubinterpreters as interpreters
        store = perdure.open(sys.argv[1])
        store["a"] = b"1"
        other = interpreters.create()
        try:
            interpreters.run_string(
                other, f"import sys; sys.path[:0] = {sys.path!r}; import perdure")
        except interpreters.RunFailedError as error:
            print(error)
        interpreters.destroy(other)
        assert not store.closed and store["a"] == b"1"
        """, path)
    assert "ImportError" in out and "WSGIApplicationGroup" in out
