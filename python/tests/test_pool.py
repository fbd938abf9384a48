"""Pool: modes, maps, check, stats, compact, a second process, read-only, logging."""

import logging
import os
import pathlib
import signal
import subprocess
import sys

import pytest

import perdure
from conftest import ENGINES, run_script, start_script


def test_kinds_of_paths(tmp_path):
    for number, make in enumerate([str, os.fsencode, pathlib.Path, lambda p: p]):
        path = tmp_path / f"ä{number}.perdure"
        with perdure.Pool(make(path)) as pool:
            pool.store()["a"] = b"1"
            assert pool.path == str(path)
        assert path.exists()
        with perdure.open(make(path)) as store:
            assert store["a"] == b"1" and store.path == str(path)


def test_modes(disk_path):
    for mode in ("existing", "read_only"):
        with pytest.raises(perdure.NotFoundError) as error:
            perdure.Pool(disk_path, mode=mode)
        assert isinstance(error.value, FileNotFoundError) and disk_path in str(error.value)
        with pytest.raises(FileNotFoundError):
            perdure.open(disk_path, mode=mode)
    assert not os.path.exists(disk_path)
    perdure.Pool(disk_path, mode="create_new").close()
    with pytest.raises(perdure.ExistsError) as error:
        perdure.Pool(disk_path, mode="create_new")
    assert isinstance(error.value, FileExistsError)
    perdure.Pool(disk_path, mode="existing").close()
    perdure.Pool(disk_path).close()


def test_modes_of_maps(pool):
    for make in (pool.store, pool.int_map):
        name = make.__name__
        with pytest.raises(perdure.NotFoundError):
            make(name, mode="existing")
        first = make(name, mode="create_new")
        with pytest.raises(perdure.ExistsError):
            make(name, mode="create_new")
        assert make(name, mode="existing").engine == first.engine == "phast"
    with pytest.raises(perdure.InvalidArgumentError):
        pool.store("store", mode="read_only")  # only in a pool that is read-only


def test_durability(disk_path):
    with perdure.Pool(disk_path) as pool:
        assert pool.info()["durability"] == "buffered"  # on a disk
    for name in ("power", "buffered", "process", "emulated"):
        with perdure.open(disk_path, durability=name) as store:
            store["a"] = name.encode()
            assert store.pool.info()["durability"] == name
        with perdure.open(disk_path, durability="auto") as store:  # that of the last open
            assert store.pool.info()["durability"] == name
            assert store["a"] == name.encode()
    with pytest.raises(perdure.InvalidArgumentError):
        perdure.Pool(disk_path, durability="forever")


def test_cuts(disk_path, tmp_path):
    memory = tmp_path / "memory"
    memory.mkdir()
    with perdure.Pool(disk_path, durability="buffered", interval=0.01, log_bytes=64 << 20,
                      memory_directory=memory, on_lag="report", on_log_failure="serve") as pool:
        store = pool.store()
        store["a"] = b"1"
        first = pool.epoch()
        pool.wait_durable(first)
        pool.sync()
        assert pool.epoch() > first and any(memory.iterdir())
        with pytest.raises(perdure.InvalidArgumentError):
            pool.wait_durable(1 << 40)
        pool.fold_log()
        pool.resume_log()  # nothing has failed
        figures = pool.stats()["buffered"]
        assert figures["cuts"] > 0 and figures["folds"] == 1 and figures["log_failed_at"] is None
        assert figures["stopped_thread"] is None
        assert figures["live_bytes"] > 0 and figures["log_bound_bytes"] == 64 << 20
        assert 0 <= figures["lag_seconds"] < 60
    assert not any(memory.iterdir())
    with perdure.Pool(disk_path, durability="process") as pool:
        assert pool.store()["a"] == b"1" and "buffered" not in pool.stats()
        pool.fold_log()
        with pytest.raises(perdure.UnsupportedError):
            pool.epoch()
    for wrong in ({"interval": 0}, {"interval": 1e9}, {"log_bytes": 1}, {"on_lag": "x"},
                  {"on_log_failure": "x"}, {"memory_directory": "relative"}):
        with pytest.raises(perdure.InvalidArgumentError):
            perdure.Pool(disk_path, durability="buffered", **wrong)


def test_backups(disk_path, tmp_path):
    folder, moments = tmp_path / "backup", []
    with perdure.Pool(disk_path, durability="buffered", interval=0.01,
                      keep_log_bytes=1 << 26) as pool:
        store = pool.store()
        for i in range(3):
            store["a"] = str(i).encode()
            made = pool.backup(folder)
            assert made["extended"] == (i != 0) and not made["closed"]
            assert made["first_epoch"] <= made["last_epoch"] and made["ends_unix_ns"] > 1e18
            moments.append((made["last_epoch"], made["ends_unix_ns"]))
        assert perdure.inspect_backup(os.fsencode(folder))["last_epoch"] == moments[2][0]
        for i, (epoch, ends) in enumerate(moments):
            for chosen in ({"epoch": epoch}, {"unix_ns": ends}):
                copy = disk_path + f"-{i}-{len(chosen)}-{next(iter(chosen))}"
                assert perdure.restore(folder, copy, **chosen) == epoch
                with perdure.open(copy, mode="existing") as again:
                    assert again["a"] == str(i).encode()
                    assert again.pool.info()["durability"] == "buffered"
        with pytest.raises(perdure.ExistsError):
            perdure.restore(folder, disk_path)
        for wrong in ({"epoch": 1 << 40}, {"unix_ns": 1}, {"unix_ns": 1 << 63},
                      {"epoch": 1, "unix_ns": 1}):
            with pytest.raises(perdure.InvalidArgumentError):
                perdure.restore(folder, disk_path + "-none", **wrong)
    with pytest.raises(perdure.ExistsError):
        perdure.back_up(disk_path, folder)  # of a closed pool
    assert perdure.back_up(disk_path, tmp_path / "closed")["closed"]
    with pytest.raises(perdure.NotFoundError):
        perdure.restore(tmp_path / "nothing", disk_path + "-none")


def test_destroy(disk_path, tmp_path):
    def names():
        return sorted(entry.name for entry in tmp_path.iterdir())

    with perdure.open(disk_path) as store, pytest.raises(perdure.BusyError, match="close it first"):
        perdure.destroy(disk_path)
    perdure.destroy(os.fsencode(disk_path))
    assert names() == []
    with pytest.raises(perdure.NotFoundError):
        perdure.destroy(disk_path)
    for file_is_gone in (False, True):
        killed = start_script("""
            import os, perdure, signal, sys
            store = perdure.open(sys.argv[1], durability="buffered")
            store["a"] = b"1"
            store.pool.sync()
            os.kill(os.getpid(), signal.SIGKILL)
        """, disk_path)
        killed.communicate(timeout=60)
        assert killed.returncode == -signal.SIGKILL and len(names()) == 4
        if file_is_gone:
            os.remove(disk_path)
        perdure.destroy(pathlib.Path(disk_path))
        assert names() == []
    pathlib.Path(disk_path).write_bytes(b"mine" * 10_000)
    with pytest.raises(perdure.CorruptionError):
        perdure.destroy(disk_path)
    assert names() == ["pool.perdure"]
    with pytest.raises(TypeError):
        perdure.destroy(7)


def test_several_maps(pool, path):
    made = {}
    for engine in ENGINES:
        store = pool.store(f"s {engine}", engine=engine, capacity=1000)
        ints = pool.int_map(f"i {engine}", engine=engine)
        store["k"], ints[1] = engine.encode(), 5
        made[store.name], made[ints.name] = store.engine, ints.engine
        assert store.engine == ints.engine == engine
        assert store.pool is pool and ints.pool is pool
    assert {m["name"]: m["engine"] for m in pool.maps()} == made
    assert set(pool.stats()["maps"]) == set(made)
    assert all(m["entries"] == 1 for m in pool.stats()["maps"].values())
    assert pool.check(deep=True)["ok"]
    pool.close()
    with perdure.Pool(path) as again:
        for engine in ENGINES:
            assert again.store(f"s {engine}")["k"] == engine.encode()
            assert again.int_map(f"i {engine}")[1] == 5
        with pytest.raises(perdure.InvalidArgumentError):
            again.store("s phast", engine="level")


def test_two_handles_of_a_map(pool):
    one, two = pool.store("m"), pool.store("m")
    one["a"] = b"1"
    assert two["a"] == b"1" and one is not two
    one.close()
    with pytest.raises(perdure.ClosedError):
        one["a"]
    assert two["a"] == b"1" and not pool.closed
    two.close()
    assert pool.store("m")["a"] == b"1"


def test_check(disk_path):
    with perdure.open(disk_path) as store:
        store.update((b"%d" % i, b"x" * 5000) for i in range(50))
        report = store.pool.check()
        assert report["ok"] and report["violations"] == [] and report["entries"] == 50
        deep = store.pool.check(deep=True)
        assert deep["ok"] and deep["bytes"] > report["bytes"]
    data = pathlib.Path(disk_path).read_bytes()
    place = data.rindex(b"x" * 1000)
    with open(disk_path, "r+b") as file:
        file.seek(place)
        file.write(b"y")
    with perdure.Pool(disk_path, mode="read_only", allow_damage=True) as pool:
        report = pool.check(deep=True)
    assert not report["ok"] and report["violation_count"] >= 1
    assert report["violations"] and all(isinstance(line, str) for line in report["violations"])


def test_check_of_a_path(disk_path):
    with pytest.raises(perdure.NotFoundError):
        perdure.check(disk_path)
    with perdure.open(disk_path) as store:
        store.update((b"%d" % i, b"x" * 5000) for i in range(50))
        store.sync()
        with pytest.raises(perdure.BusyError):
            perdure.check(disk_path)
        assert perdure.check(disk_path, mode="read_only")["entries"] == 50  # its last cut
    report = perdure.check(disk_path, deep=True)
    assert report["ok"] and report["entries"] == 50
    with pytest.raises(TypeError):
        perdure.check(disk_path, unknown=1)
    with open(disk_path, "r+b") as file:
        file.write(b"\xff" * 8192)
    with pytest.raises((perdure.CorruptionError, perdure.FormatError)):
        perdure.check(disk_path)


@pytest.mark.parametrize("engine", ["phast", "as"])  # `as` is verified in the background
def test_check_lists_damage_that_an_open_refuses(path, engine):
    with perdure.open(path, engine=engine, max_size=32 << 20, durability="process") as store:
        store.update((b"%d" % i, b"x" * 5000) for i in range(500))
    whole = pathlib.Path(path).read_bytes()
    refused = 0
    for page in range(300, len(whole) // 4096, 30):
        with open(path, "wb") as file:
            file.write(whole[: page * 4096] + b"\xa5" * 4096 + whole[(page + 1) * 4096 :])
        report = perdure.check(path, deep=True)
        assert report["ok"] is (report["violation_count"] == 0)
        refused += not report["ok"]
    assert refused > 10


def test_info_of_a_path(disk_path):
    with pytest.raises(FileNotFoundError):
        perdure.info(disk_path)
    with perdure.open(disk_path, engine="level", max_size=1 << 30) as store:
        used = perdure.info(disk_path)
        assert used["in_use"] and used["owner_pid"] == os.getpid() and not used["clean"]
        assert used.keys() == store.pool.info().keys()
        assert used["maps"] == store.pool.maps() and used["maps"][0]["engine"] == "level"
    closed = perdure.info(disk_path)
    assert closed["clean"] and closed["synced"] and closed["trusted"] and not closed["in_use"]
    assert closed["trust_note"] == closed["live"] == "" and closed["uuid"] == used["uuid"]
    with pytest.raises(perdure.Error):
        perdure.info(os.path.dirname(disk_path))


def test_a_damaged_header(disk_path):
    perdure.Pool(disk_path).close()
    with open(disk_path, "r+b") as file:
        file.write(b"\xff" * 8192)
    with pytest.raises((perdure.CorruptionError, perdure.FormatError)):
        perdure.Pool(disk_path)
    with open(disk_path, "wb") as file:
        file.write(b"not a pool" * 1000)
    with pytest.raises((perdure.CorruptionError, perdure.FormatError)):
        perdure.Pool(disk_path)


def test_stats_and_info(disk_path):
    with perdure.Pool(disk_path, durability="process", max_size=1 << 30) as pool:
        pool.store("a").update((b"%d" % i, b"x") for i in range(100))
        stats, info = pool.stats(), pool.info()
        assert stats["maps"]["a"]["entries"] == 100
        assert stats["maps"]["a"]["engine"] == "phast"
        assert 0 < stats["allocated_bytes"] <= stats["used_bytes"] <= stats["max_bytes"]
        assert stats["max_bytes"] == info["max_bytes"] <= 1 << 30
        assert info["path"] == disk_path and len(info["uuid"]) == 36
        assert info["synced"] is False
        pool.sync()
        assert pool.info()["synced"] is True
        assert info["medium"] in ("page", "volatile_ram", "cache_line", "eadr", "network")


def test_compact(disk_path):
    with perdure.open(disk_path) as store:
        store.update((b"%d" % i, b"x" * 10000) for i in range(2000))
        store.clear()
        freed = store.pool.compact()
        assert isinstance(freed, int) and freed > 5_000_000
        assert len(store) == 0
        store["a"] = b"1"
        assert store["a"] == b"1"


def test_full(path):
    with perdure.Pool(path, max_size=4 << 20) as pool:
        store, ints = pool.store(), pool.int_map()
        with pytest.raises(perdure.PoolFullError):
            for i in range(100):
                store[b"%d" % i] = b"x" * 100_000
        count = len(store)
        assert count > 5
        with pytest.raises(perdure.PoolFullError):
            store.set_many((b"m%d" % i, b"x" * 100_000) for i in range(100))
        with pytest.raises(perdure.PoolFullError):
            with store.batch() as batch:
                for i in range(100):
                    batch[b"b%d" % i] = b"x" * 100_000
        assert not any(key.startswith(b"b") for key in store)
        store.clear()
        store["again"] = b"x" * 100_000
        ints[1] = 1
        assert pool.check(deep=True)["ok"]


def test_logging(path, caplog):
    with caplog.at_level(logging.DEBUG, logger="perdure"):
        with perdure.open(path) as store:
            store["a"] = b"1"
            store.sync()
    assert any(record.name == "perdure" and path in record.getMessage()
               for record in caplog.records)
    assert all(record.levelno in (logging.INFO, logging.WARNING, logging.ERROR)
               for record in caplog.records)


def test_a_log_handler_that_raises_or_calls_the_pool(path):
    out = run_script("""
        import logging
        class Handler(logging.Handler):
            def emit(self, record):
                store["log"] = b"x"
                raise RuntimeError("from the handler")
        logger = logging.getLogger("perdure")
        logger.setLevel(logging.DEBUG)
        store = perdure.open(sys.argv[1])
        logger.addHandler(Handler())
        try:
            store.sync()
        except RuntimeError as error:
            print(error)
        print(store["log"])
        """, path)
    assert "b'x'" in out


def test_open_closes_the_pool(path):
    store = perdure.open(path, name="mine", engine="as", max_size=1 << 30)
    assert (store.name, store.engine) == ("mine", "as")
    assert store.pool.info()["max_bytes"] <= 1 << 30
    store.close()
    assert store.closed and store.pool.closed and "closed" in repr(store)
    with pytest.raises(perdure.InvalidArgumentError):
        perdure.open(path, engine="phast", name="mine")
    with perdure.open(path, name="mine", mode="existing") as again:  # the failure held no lock
        assert again.engine == "as"


def test_close_without_sync(disk_path):
    store = perdure.open(disk_path)
    store["a"] = b"1"
    store.close(sync=False)
    with perdure.open(disk_path) as store:
        assert store.pool.info()["clean"] and not store.pool.info()["synced"]
        assert store["a"] == b"1"


def test_a_path_that_is_no_utf8(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff.perdure"
    with perdure.open(path) as store:
        store["a"] = b"1"
        assert os.fsencode(store.path) == os.fsencode(store.pool.path) == path
        assert "perdure.Store" in repr(store) and "perdure.Pool" in repr(store.pool)
        assert os.fsencode(store.pool.info()["path"]) == path
    with perdure.open(os.fsdecode(path), mode="existing") as store:
        assert store["a"] == b"1"


def test_package_without_numpy(path):
    program = (f"import sys; sys.modules['numpy'] = None; import perdure; "
               f"s = perdure.open({path!r}); s['a'] = b'1'; "
               f"i = s.pool.int_map(); i[1] = 2; print(s['a'], i[1])")
    folder = str(pathlib.Path(perdure.__file__).parents[1])
    out = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True,
                         env={**os.environ, "PYTHONPATH": folder})
    assert out.stdout.split() == ["b'1'", "2"], out.stderr
