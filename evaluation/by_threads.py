#!/usr/bin/env python3
"""Prints the papers' figures by threads, for a machine with more than two processors.

  evaluation/by_threads.py [--threads 1,2,4,8,16] [--divide N] [--programs FOLDER]

Runs the programs of the evaluations with their options for threads, one run of each figure, and
prints their tables as Markdown on standard output; the time of each program goes to standard
error. --divide N: an Nth of the entries.

The exit status is that of a program that failed.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from reporting import machine  # noqa: E402


def commands(threads, divide):
    """Yields (title, program and arguments)."""
    items = max(1000, 1_000_000 // divide)
    several = [t for t in threads if t > 1]
    yield "PhaST, figures 11 and 12", ["ordered", "--only", "11,12,12b", "--runs", "1",
                                       "--threads", ",".join(map(str, threads)),
                                       "--items", str(items)]
    if several:
        yield "Level hashing, figure 17", [
            "hash", "--only", "17", "--runs", "1", "--threads", ",".join(map(str, several)),
            "--log-slots", str(max(14, 22 - (divide - 1).bit_length()))]
    for count in several:  # each also measures one thread
        yield f"Clevel hashing, figures 7, 8, 10 and 11, {count} threads", [
            "growing", "--only", "pointers,10,rehash", "--runs", "1", "--threads", str(count),
            "--items", str(items)]
    yield "The multi-version store, figures 2 to 5", [
        "versions", "--only", "pskiplist,LockedMap,ESkipList", "--runs", "1",
        "--threads", ",".join(map(str, threads)), "--keys", str(max(1000, items // 4))]


def numbers(text):
    """The value of --threads: numbers of threads."""
    found = sorted({int(number) for number in text.split(",")})
    if found[0] < 1:
        raise ValueError
    return found


def main():
    """Runs each program and prints what it prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=numbers, default=[1, 2, 4, 8, 16])
    parser.add_argument("--divide", type=int, default=1)
    parser.add_argument("--programs", default=str(ROOT / "build/release"))
    given = parser.parse_args()
    if given.divide < 1:
        parser.error("--divide: at least 1")
    print(f"Machine: {machine.place(machine.describe(ROOT, '/dev/shm'))}.")
    for title, (name, *arguments) in commands(given.threads, given.divide):
        program = os.path.join(given.programs, f"perdure-paper-{name}")
        print(f"\n## {title}\n\n```sh\n{' '.join([os.path.basename(program), *arguments])}\n```",
              flush=True)
        begin = time.monotonic()
        done = subprocess.run([program, *arguments], check=False)
        if done.returncode != 0:
            print(f"by_threads: {program}: exit status {done.returncode}", file=sys.stderr)
            return done.returncode
        print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
