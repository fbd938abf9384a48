"""Compares IntMap's calls on arrays with C++ batches, in turns.

  make bench-python
  build/venv/bin/python python/bench/batches.py [--keys N] [--rounds N]

Both use random 64-bit keys, engine phast, durability `process`, a pool in /dev/shm, and one thread.
The C++ side is `perdure bench`, whose time includes the making of its keys.
"""

import argparse
import json
import os
import statistics
import subprocess
import time

import numpy as np

import perdure

PATH = "/dev/shm/perdure-batches.perdure"


def in_cpp(program, count, *workload):
    out = subprocess.run(
        [program, "bench", "--engine", "phast", "--durability", "process", "--touch", "256M",
         "--batch", "256", "--json", "--path", PATH, *workload],
        check=True, capture_output=True, text=True).stdout
    phase = json.loads(out)["phases"][-1]
    return phase["seconds"] / phase["operations"] * 1e9


def in_python(count, seed):
    keys = np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)
    with perdure.Pool(PATH, mode="create_new", durability="process") as pool:
        ints = pool.int_map()
        begin = time.perf_counter()
        ints.put_many(keys, keys)
        middle = time.perf_counter()
        shuffled = np.random.default_rng(seed + 1).permutation(keys)
        again = time.perf_counter()
        values, mask = ints.find_many(shuffled)
        end = time.perf_counter()
        assert mask.all() and (values == shuffled).all()
    os.remove(PATH)
    return (middle - begin) / count * 1e9, (end - again) / count * 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--program", default="build/release/perdure")
    options = parser.parse_args()
    n = str(options.keys)
    rows = {"put_many": ([], []), "find_many": ([], [])}
    for seed in range(options.rounds):
        rows["put_many"][0].append(
            in_cpp(options.program, n, "--workload", "insert_many", "--records", "1",
                   "--operations", n))
        rows["find_many"][0].append(
            in_cpp(options.program, n, "--workload", "load,read_batch", "--records", n))
        put, find = in_python(options.keys, seed)
        rows["put_many"][1].append(put)
        rows["find_many"][1].append(find)
    print(f"{options.keys} keys, nanoseconds for a key, median of {options.rounds} rounds (range)")
    print("| call | C++ | Python | Python / C++ |")
    print("|---|---|---|---|")
    for call, (cpp, python) in rows.items():
        cells = [f"{statistics.median(x):.0f} ({min(x):.0f} to {max(x):.0f})"
                 for x in (cpp, python)]
        ratio = statistics.median(p / c for p, c in zip(python, cpp))
        print(f"| `{call}` | {cells[0]} | {cells[1]} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
