"""Compares the package with other stores of Python, in turns: each round runs all of them.

  make bench-python
  build/venv/bin/python python/bench/compare.py [--entries N] [--rounds N] [--folder DIR]

Prints the median of the rounds, in microseconds per call, and the range. A store whose module is
not installed is left out; build/venv/bin/pip install lmdb rocksdict diskcache sqlitedict installs
them. What survives differs: see the column.
"""

import argparse
import importlib
import os
import random
import shelve
import shutil
import statistics
import tempfile
import time

VALUE = bytes(range(100))


class Perdure:
    survives = "a kill"

    def __init__(self, folder):
        self.module = importlib.import_module("perdure")
        self.store = self.module.open(os.path.join(folder, "pool"))

    def put(self, keys):
        store = self.store
        for key in keys:
            store[key] = VALUE

    def get(self, keys):
        store = self.store
        for key in keys:
            store[key]

    def close(self):
        self.store.close()


class Lmdb:
    survives = "a kill (one commit a call, sync=False)"

    def __init__(self, folder):
        self.env = importlib.import_module("lmdb").open(
            folder, map_size=4 << 30, sync=False, metasync=False, writemap=True)

    def put(self, keys):
        for key in keys:
            with self.env.begin(write=True) as txn:
                txn.put(key, VALUE)

    def get(self, keys):
        for key in keys:
            with self.env.begin() as txn:
                txn.get(key)

    def close(self):
        self.env.close()


class Rocksdict:
    survives = "a kill (its log)"

    def __init__(self, folder):
        module = importlib.import_module("rocksdict")
        self.db = module.Rdict(folder, module.Options(raw_mode=True))

    put = Perdure.put
    get = Perdure.get

    @property
    def store(self):
        return self.db

    def close(self):
        self.db.close()


class Diskcache:
    survives = "a kill"

    def __init__(self, folder):
        self.store = importlib.import_module("diskcache").Cache(folder, eviction_policy="none")

    put = Perdure.put
    get = Perdure.get
    close = Perdure.close


class Sqlitedict:
    survives = "a kill, up to the last commit of its thread"

    def __init__(self, folder):
        self.store = importlib.import_module("sqlitedict").SqliteDict(
            os.path.join(folder, "db"), autocommit=True, encode=bytes, decode=bytes)

    def put(self, keys):
        for key in keys:
            self.store[key.decode()] = VALUE

    def get(self, keys):
        for key in keys:
            self.store[key.decode()]

    def close(self):
        self.store.close()


class Shelve:
    survives = "nothing"

    def __init__(self, folder):
        self.store = shelve.open(os.path.join(folder, "db"))

    put = Sqlitedict.put
    get = Sqlitedict.get
    close = Sqlitedict.close


STORES = {"perdure": (Perdure, 1), "lmdb": (Lmdb, 1), "rocksdict": (Rocksdict, 1),
          "diskcache": (Diskcache, 50), "sqlitedict": (Sqlitedict, 50), "shelve": (Shelve, 10)}


def measure(name, folder, keys):
    """Returns seconds for a put and for a get. Slow stores get a part of the keys."""
    kind, share = STORES[name]
    part = keys[: len(keys) // share]
    store = kind(tempfile.mkdtemp(dir=folder))
    begin = time.perf_counter()
    store.put(part)
    middle = time.perf_counter()
    shuffled = random.sample(part, len(part))
    again = time.perf_counter()
    store.get(shuffled)
    end = time.perf_counter()
    store.close()
    return (middle - begin) / len(part), (end - again) / len(part)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=None)
    options = parser.parse_args()
    random.seed(1)
    keys = [b"user:%012d" % i for i in range(options.entries)]
    random.shuffle(keys)
    results = {}
    for _ in range(options.rounds):
        for name in STORES:
            folder = tempfile.mkdtemp(dir=options.folder)
            try:
                results.setdefault(name, []).append(measure(name, folder, keys))
            except ImportError:
                print(f"{name}: not installed")
            finally:
                shutil.rmtree(folder)
    print(f"{options.entries} entries of 100 bytes, median of {options.rounds} rounds, "
          "microseconds for a call")
    print("| store | `store[key] = value` | `store[key]` | entries | survives |")
    print("|---|---|---|---|---|")
    for name, rows in results.items():
        cells = []
        for column in zip(*rows):
            us = [1e6 * x for x in column]
            cells.append(f"{statistics.median(us):.2f} ({min(us):.2f} to {max(us):.2f})")
        kind, share = STORES[name]
        print(f"| {name} | {' | '.join(cells)} | {options.entries // share} | {kind.survives} |")


if __name__ == "__main__":
    main()
