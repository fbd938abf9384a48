#!/usr/bin/env python3
"""Counts the cache misses of searches with valgrind: figure 11 d of PhaST's paper, one thread.

  evaluation/cache_misses.py [--items N] [--cache BYTES] [--program FILE]

Runs the searches of perdure-paper-ordered under callgrind with simulated caches: 32 KiB for the
first level of data, --cache bytes for the last one. Prints a table as Markdown.

The exit status is that of a program that failed; 77 if there is no valgrind.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEARCHES = 50_000  # of each map: ordered/cache_misses.cc


def counted(program, items, cache):
    """Returns {map: {event: count}}."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--cache-sim=yes",
             "--I1=32768,8,64", "--D1=32768,8,64", f"--LL={cache},16,64",
             f"--callgrind-out-file={folder}/out", program, "--only", "11d", "--items",
             str(items)], capture_output=True, check=True)
        maps = {}
        for part in sorted(pathlib.Path(folder).glob("out.*"),
                           key=lambda path: int(path.suffix[1:])):
            text = part.read_text()
            name = re.search(r"^desc: Trigger: Client Request: (\S+)$", text, re.M)
            events = re.search(r"^events: (.*)$", text, re.M)
            totals = re.search(r"^(?:totals|summary): (.*)$", text, re.M)
            if name and events and totals:
                maps[name[1]] = dict(zip(events[1].split(), map(int, totals[1].split())))
        return maps


def main():
    """Prints a row for each map."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--cache", type=int, default=1 << 20)
    parser.add_argument("--program", default=str(ROOT / "build/release/perdure-paper-ordered"))
    given = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("cache_misses: valgrind is not installed", file=sys.stderr)
        return 77
    try:
        maps = counted(given.program, given.items, given.cache)
    except subprocess.CalledProcessError as error:
        sys.stderr.write(error.stderr.decode())
        return error.returncode
    if not maps:
        print("cache_misses: the program was built without valgrind's header", file=sys.stderr)
        return 77
    print(f"\n### Cache misses of a search, {given.items} entries, one thread, a simulated last "
          f"level of {given.cache >> 10} KiB (figure 11 d)\n")
    print("| map | reads | misses of the first level | of the last level | ratio | by phast |\n"
          "| --- | --- | --- | --- | --- | --- |")
    ours = maps["phast"]["DLmr"]
    for name, events in maps.items():
        first, last = events["D1mr"], events["DLmr"]
        by_ours = f"{last / ours:.2f}" if ours else "-"
        print(f"| {name} | {events['Dr'] / SEARCHES:.1f} | {first / SEARCHES:.2f} | "
              f"{last / SEARCHES:.2f} | {last / max(first, 1):.3f} | {by_ours} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
