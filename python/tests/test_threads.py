"""Threads: one store for many, calls that release the GIL, close during calls."""

import random
import sys
import threading

import pytest

import perdure
from conftest import ENGINES, run_script

THREADS = 8


@pytest.fixture(autouse=True)
def short_switch_interval():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(work, count=THREADS):
    """Runs work(i) for i < count in threads. Returns the results, or raises the first error."""
    results, errors = [None] * count, []
    gate = threading.Barrier(count)

    def run(number):
        try:
            gate.wait()
            results[number] = work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True)
               for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]
    return results


def test_each_thread_its_keys(any_store):
    def work(number):
        for i in range(200):
            key = b"%d:%d" % (number, i)
            any_store[key] = key
            assert any_store[key] == key
            if i % 3 == 0:
                del any_store[key]
                assert key not in any_store

    in_threads(work)
    assert dict(any_store) == {key: key for key in (
        b"%d:%d" % (number, i) for number in range(THREADS) for i in range(200) if i % 3)}


def test_counters(any_store):
    """compare_and_set() and modify() lose no increment."""
    ints = any_store.pool.int_map("ints", engine=any_store.engine)

    def work(number):
        for _ in range(100):
            any_store.modify("n", lambda old: b"%d" % (int(old or b"0") + 1))
            ints.add(7)
            while True:
                old = any_store.get("m")
                if any_store.compare_and_set("m", old, b"%d" % (int(old or b"0") + 1)):
                    break

    in_threads(work)
    assert any_store["n"] == any_store["m"] == b"%d" % (THREADS * 100)
    assert ints[7] == THREADS * 100


def test_insert_has_one_winner(any_store):
    def work(number):
        return [any_store.insert(b"%d" % i, b"%d" % number) for i in range(200)]

    results = in_threads(work)
    for i in range(200):
        winners = [number for number in range(THREADS) if results[number][i]]
        assert len(winners) == 1 and any_store[b"%d" % i] == b"%d" % winners[0]


@pytest.mark.parametrize("kind", ["store", "ints"])
def test_setdefault_has_one_winner(store, kind):
    ints = store.pool.int_map()
    gate = threading.Barrier(THREADS)

    def work(number):
        results = []
        for i in range(400):
            gate.wait(20)
            results.append(ints.setdefault(i, number) if kind == "ints"
                           else store.setdefault(b"%d" % i, b"%d" % number))
        return results

    results = in_threads(work)
    for i in range(400):
        final = ints[i] if kind == "ints" else store[b"%d" % i]
        assert {result[i] for result in results} == {final}


@pytest.mark.parametrize("kind", ["store", "ints"])
def test_pop_has_one_winner(store, kind):
    """An entry is popped once, and pop() with a default never raises KeyError."""
    mapping = store if kind == "store" else store.pool.int_map()
    keys = [b"%d" % i for i in range(3000)] if kind == "store" else list(range(3000))
    mapping.update({key: b"v" if kind == "store" else 5 for key in keys})
    missing = object()

    def work(number):
        return [key for key in keys if mapping.pop(key, missing) is not missing]

    assert sorted(sum(in_threads(work), [])) == sorted(keys)
    assert len(mapping) == 0


@pytest.mark.parametrize("kind", ["store", "ints"])
def test_popitem_as_a_queue(store, kind):
    mapping = store if kind == "store" else store.pool.int_map()
    keys = [b"%04d" % i for i in range(3000)] if kind == "store" else list(range(3000))
    mapping.update({key: b"v" if kind == "store" else 5 for key in keys})

    def work(number):
        taken = []
        while len(mapping):
            try:
                taken.append(mapping.popitem()[0])
            except KeyError:
                assert len(mapping) == 0
        return taken

    assert sorted(sum(in_threads(work), [])) == sorted(keys)


def test_batches_are_whole(pool):
    """Transfers between accounts keep the sum."""
    store = pool.store(engine="clevel")
    store.update({b"%d" % i: b"100" for i in range(10)})

    def work(number):
        done, rng = 0, random.Random(number)
        for _ in range(60):
            one, two = (b"%d" % place for place in rng.sample(range(10), 2))
            amount = rng.randrange(1, 9)
            a, b = store[one], store[two]
            try:
                with store.batch() as batch:
                    batch.require(one, a)
                    batch.require(two, b)
                    batch[one] = b"%d" % (int(a) - amount)
                    batch[two] = b"%d" % (int(b) + amount)
                done += 1
            except perdure.ConflictError:
                pass
        return done

    assert sum(in_threads(work)) > THREADS
    assert sum(int(value) for value in store.values()) == 1000
    assert len({bytes(value) for value in store.values()}) > 1


def test_iterators_beside_writers(ordered_store):
    fixed = {b"%03d" % i: b"x" * 50 for i in range(0, 400, 2)}
    ordered_store.update(fixed)
    stop = threading.Event()

    def work(number):
        if number == 0:
            for i in range(1500):
                key = b"%03d" % (i * 2 % 400 + 1)
                ordered_store[key] = b"y" * (i % 90)
                ordered_store.discard(b"%03d" % (i * 14 % 400 + 1))
            stop.set()
            return 0
        rounds = 0
        while not stop.is_set() or rounds == 0:
            keys = list(ordered_store)
            assert keys == sorted(set(keys))
            assert fixed.keys() <= set(keys)
            rounds += 1
        return rounds

    assert min(in_threads(work, 3)[1:]) >= 1


@pytest.mark.parametrize("what", ["iter(store)", "iter(store.items())", "iter(version)",
                                  "iter(ints)", "iter(unordered)"])
def test_one_iterator_in_two_threads(pool, what):
    """Each entry comes once, or the iterator refuses the second thread."""
    store, ints = pool.store(engine="pskiplist"), pool.int_map()
    unordered = pool.store("unordered", engine="level")
    for mapping in (store, unordered):
        mapping.set_many((b"%d" % i, b"v" * 10) for i in range(3000))
    ints.put_many(range(3000), range(3000))
    with store.at(store.tag()) as version:
        iterator = eval(what)
        assert next(iterator) is not None and version is not None

        def work(number):
            try:
                return list(iterator)
            except (ValueError, RuntimeError) as error:  # as of a generator
                assert "executing" in str(error) or isinstance(error, perdure.Error)
                return []

        results = in_threads(work, 4)
        del iterator
    together = sum(results, [])
    assert len(together) == len(set(together)) <= 2999


def test_a_batch_of_two_threads_does_not_crash(path):
    run_script("""
        sys.setswitchinterval(1e-5)
        store = perdure.open(sys.argv[1])
        batch = store.batch()

        def work():
            for i in range(3000):
                try:
                    batch[b"%d" % (i % 50)] = b"x" * (i % 100)
                    if i % 50 == 0:
                        batch.commit()
                    if i % 70 == 0:
                        batch.clear()
                    len(batch)
                except (perdure.Error, RuntimeError):
                    pass

        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert store.pool.check(deep=True)["ok"]
        store.close()
        """, path)


def test_close_during_calls(path):
    """Other threads get ClosedError, and nothing that was acknowledged is lost."""
    for number, engine in enumerate(ENGINES):
        here = path + str(number)
        store = perdure.open(here, engine=engine)
        ready = threading.Event()
        started = [0] * 4

        def work(number):
            if number == 4:
                assert ready.wait(20)
                store.close()
                return {}
            done = {}
            try:
                for i in range(10**6):
                    key = b"%d:%d" % (number, i)
                    store[key] = key
                    done[key] = key
                    assert store[key] == key
                    if i % 20 == 0:
                        store.set_many({key + b"m": b"1"})
                        done[key + b"m"] = b"1"
                        len(store.keys())
                        for _ in zip(range(5), store):
                            pass
                    started[number] = i
                    if min(started) > 20:
                        ready.set()
            except perdure.ClosedError:
                return done
            pytest.fail("not closed")

        acknowledged = in_threads(work, 5)
        with perdure.open(here) as again:
            content = dict(again)
        for done in acknowledged:
            for key, value in done.items():
                assert content[key] == value


def test_close_by_two_threads_and_garbage(path):
    for _ in range(20):
        store = perdure.open(path)
        store["a"] = b"1"
        in_threads(lambda number: store.close() if number % 2 else store.pool.close(), 4)
        assert store.closed
    with perdure.open(path) as store:
        assert store["a"] == b"1"
