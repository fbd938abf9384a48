"""Pool.drop(), and objects of a map that was dropped."""

import pytest

import perdure
from conftest import ENGINES, run_script


def test_drop(pool, path):
    pool.store("a")["k"] = b"1"
    pool.store("b")["k"] = b"2"
    pool.drop("a")
    assert [m["name"] for m in pool.maps()] == ["b"]
    with pytest.raises(perdure.NotFoundError):
        pool.drop("a")
    assert len(pool.store("a", engine="level")) == 0
    pool.close()
    with perdure.Pool(path) as again:
        assert sorted(m["name"] for m in again.maps()) == ["a", "b"]
        assert again.store("b")["k"] == b"2"
        assert again.check(deep=True)["leaked_blocks"] == 0


def test_space_is_reused(path):
    with perdure.Pool(path, max_size=16 << 20) as pool:
        for _ in range(10):
            store = pool.store("big")
            store.update((b"%d" % i, b"x" * 1000) for i in range(5000))
            pool.drop("big")
        assert pool.maps() == [] and pool.check(deep=True)["ok"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["store", "int_map"])
def test_objects_of_a_dropped_map(path, engine, kind):
    """Each call raises an error of the library; the map that gets the space is not damaged."""
    out = run_script("""
        from test_closed import calls_of_a_store, calls_of_ints
        kind, engine = sys.argv[2:]
        pool = perdure.Pool(sys.argv[1])
        make = getattr(pool, kind)
        if kind == "store":
            def entries(letter):
                return {b"%d" % i: letter * 300 for i in range(300)}
        else:
            def entries(letter):
                return {i: letter[0] for i in range(300)}
        old, second = make("old", engine=engine), make("old")
        old.update(entries(b"v"))
        key = next(iter(entries(b"v")))
        batch = pool.batch()
        batch.put(second, key, entries(b"b")[key])
        calls = {"batch": batch.commit}
        for handle in (old, second):
            made = calls_of_a_store(handle) if kind == "store" else calls_of_ints(handle)
            calls.update({f"{name} {len(calls)}": call for name, call in made.items()})
        if old.ordered:
            walk = iter(old.items())
            next(walk)
            calls["next"] = lambda: list(walk)
        if kind == "store" and engine == "pskiplist":
            version = old.at(old.tag())
            calls["version"] = lambda: version["1"]
            calls["scan of a version"] = lambda: list(version)
        pool.drop("old")
        new = make("new", engine=engine)
        new.update(entries(b"w"))
        for name, call in calls.items():
            try:
                result = call()
            except perdure.Error:
                continue
            except Exception as error:
                result = error
            print(f"{name}: {result!r:.60}")
        if [new.get(key) for key in entries(b"w")] != list(entries(b"w").values()):
            print("the new map has changed")
        if len(new) != 300:
            print("the new map has", len(new), "entries")
        for line in pool.check(deep=True)["violations"][:3]:
            print(line)
        """, path, kind, engine, folder=__file__.rpartition("/")[0])
    assert out == ""
