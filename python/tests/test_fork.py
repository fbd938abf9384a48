"""fork(): the child gets ForkError, the parent loses nothing. spawn works."""

import multiprocessing
import os
import traceback

import pytest

import perdure
from conftest import run_script
from test_closed import all_raise, calls_of_a_pool, calls_of_a_store, calls_of_ints

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def in_child(work):
    """Runs work() in a forked child, which ends without the exit handlers of pytest."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read)
            work()
            status = 0
        except BaseException:
            os.write(write, traceback.format_exc().encode()[-60000:])
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as pipe:
        message = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, message


@pytest.mark.parametrize("engine", ["pskiplist", "phast", "clevel"])
def test_every_call_in_a_child(path, engine):
    with perdure.open(path, engine=engine) as store:
        store["a"] = b"1"
        ints = store.pool.int_map()
        ints[1] = 1
        batch = store.batch()
        batch["a"] = b"2"
        calls = {**calls_of_a_store(store), **{f"pool {name}": call for name, call in
                                               calls_of_a_pool(store.pool).items()},
                 **{f"ints {name}": call for name, call in calls_of_ints(ints).items()},
                 "batch": batch.commit, "batch put": lambda: batch.put("b", b"1"),
                 "sync": store.sync}
        del calls["pool batch"]
        if store.ordered:
            iterator = iter(store)
            calls["next"] = lambda: next(iterator)
        if store.versioned:
            version = store.at(store.tag())
            calls.update({"v get": lambda: version["a"], "v len": lambda: len(version),
                          "v iter": lambda: list(version), "v in": lambda: "a" in version,
                          "v history": lambda: version.history("a")})

        in_child(lambda: all_raise(calls, perdure.ForkError))
        assert store["a"] == b"1" and ints[1] == 1 and len(store) == 1
        store["b"] = b"2"
        batch.clear()
        if store.versioned:
            assert version["a"] == b"1"
            version.close()
    with perdure.open(path) as store:
        assert dict(store) == {b"a": b"1", b"b": b"2"}
        assert store.pool.info()["clean"] and store.pool.check(deep=True)["ok"]


def test_close_in_a_child_leaves_the_pool_of_the_parent(path):
    with perdure.open(path, engine="pskiplist") as store:
        store["a"] = b"1"
        version, iterator = store.at(store.tag()), iter(store)

        def child():
            nonlocal version, iterator
            version.close()
            del version, iterator
            repr(store), store.closed, store.path
            store.close()
            store.pool.close()
            with pytest.raises((perdure.ForkError, perdure.ClosedError)):
                store["a"]

        in_child(child)
        assert not store.closed
        store["b"] = b"2"
        assert version["a"] == b"1" and list(iterator) in ([b"a"], [b"a", b"b"])
        with pytest.raises(perdure.BusyError):
            perdure.open(path)
        version.close()
    with perdure.open(path) as store:
        assert dict(store) == {b"a": b"1", b"b": b"2"}


def test_exit_of_a_child(path):
    """An ordinary exit of a child, with its exit handlers, does not touch the pool."""
    out = run_script("""
        store = perdure.open(sys.argv[1], engine="pskiplist")
        ints = store.pool.int_map()
        store["a"], ints[1] = b"1", 1
        version, iterator = store.at(store.tag()), iter(store.items())
        for kind in range(3):
            child = os.fork()
            if child == 0:
                if kind == 1:
                    del store, ints, version, iterator
                if kind == 2:
                    try:
                        store["child"] = b"x"
                    except perdure.ForkError as error:
                        assert isinstance(error, RuntimeError) and sys.argv[1] in str(error)
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            store[f"after {kind}"] = b"1"
            assert version["a"] == b"1" and store["a"] == b"1"
        del version
        assert list(iterator)[0] == (b"a", b"1")
        store.close()
        with perdure.open(sys.argv[1]) as store:
            print(len(store), store.pool.check(deep=True)["ok"], store.pool.info()["clean"])
        """, path)
    assert out.split() == ["4", "True", "True"]


def test_a_child_may_use_other_pools(path):
    with perdure.open(path) as store:
        store["a"] = b"1"

        def child():
            with perdure.open(path + ".child") as other:
                other["x"] = b"y"
                with pytest.raises(perdure.ForkError):
                    store["a"]
            with pytest.raises(perdure.BusyError):
                perdure.open(path)

        in_child(child)
        with perdure.open(path + ".child") as other:
            assert dict(other) == {b"x": b"y"}


def test_fork_while_threads_use_the_pool(path):
    out = run_script("""
        store = perdure.open(sys.argv[1])
        stop, counts = threading.Event(), [0] * 3

        def work(number):
            while not stop.is_set():
                store[b"%d:%d" % (number, counts[number])] = b"x" * 100
                counts[number] += 1
                if counts[number] % 50 == 0:
                    len(store.keys(prefix="1"))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        [t.start() for t in threads]
        for _ in range(15):
            child = os.fork()
            if child == 0:
                try:
                    store["a"]
                except perdure.ForkError:
                    sys.exit(0)
                sys.exit(1)
            for _ in range(2000):
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    break
                time.sleep(0.005)
            else:
                os.kill(child, signal.SIGKILL)
                sys.exit("the child hangs")
            assert status == 0, status
        stop.set()
        [t.join() for t in threads]
        assert len(store) == sum(counts)
        store.close()
        with perdure.open(sys.argv[1]) as store:
            print(len(store) == sum(counts))
        """, path)
    assert out.split() == ["True"]


def in_worker(path):
    with perdure.open(path) as store:
        store["worker"] = b"1"
        return dict(store)


def use_inherited(queue, store):
    try:
        store["a"]
    except Exception as error:
        queue.put(type(error).__name__)


def test_multiprocessing_fork(path):
    context = multiprocessing.get_context("fork")
    with perdure.open(path) as store:
        store["a"] = b"1"
        queue = context.SimpleQueue()
        process = context.Process(target=use_inherited, args=(queue, store))
        process.start()
        assert queue.get() == "ForkError"
        process.join(20)
        assert process.exitcode == 0
        assert store["a"] == b"1"


def test_multiprocessing_spawn(path):
    with perdure.open(path) as store:
        store["a"] = b"1"
    out = run_script("""
        import multiprocessing
        from test_fork import in_worker, use_inherited
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as workers:
            print(sorted(workers.apply(in_worker, (sys.argv[1],))))
        with perdure.open(sys.argv[1]) as store:
            print(len(store))
            try:
                process = context.Process(target=use_inherited, args=(None, store))
                process.start()
            except TypeError as error:
                print("pickled" in str(error))
        """, path, folder=os.path.dirname(__file__))
    assert out.split("\n")[:3] == ["[b'a', b'worker']", "2", "True"]
