#!/usr/bin/env python3
"""Counts the lines that operations take over from other cores, with simulated threads.

    coherence.py [--engine E]     64 threads: the figures of each engine and their bars
    coherence.py --planted        the same with the planted fault, which must be seen
    coherence.py --ratios         two threads by one: the model beside perdure bench

Exit status 1: a bar was missed, or the planted fault was not seen. docs/design/coherence.md says
what the figures mean.
"""

import argparse
import json
import pathlib
import subprocess
import sys

from engines import ENGINES

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Lines of infrastructure that an operation may take over, and threads that may wait for one line.
BARS = {"find.infrastructure": 0.05, "mutation.infrastructure": 1.0, "queue": 4}
HELD = ["phast", "level"]  # the engines that must meet them
# Objects whose lines the planted fault makes hot.
PLANTED = {"phast": "ordered::Nodes::Part", "level": "make_instance"}
OPERATIONS = ["find", "update", "insert", "erase"]
PHASES = {"find": "read", "update": "update", "insert": "insert", "erase": "delete"}


def build(preset):
    tree = ROOT / "build" / preset
    if not (tree / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", preset], cwd=ROOT, check=True,
                       stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", tree, "--target", "perdure_coherence"], check=True,
                   stdout=subprocess.DEVNULL)
    return tree / "perdure-coherence"


def measure(program, engine, threads, operations):
    """Returns the figures by name, without that of the engine, and the output."""
    done = subprocess.run([program, "--engine", engine, "--threads", str(threads), "--records",
                           "1000000", "--operations", str(operations)],
                          check=True, stdout=subprocess.PIPE, encoding="utf-8")
    figures = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition("=")
        if name.startswith(engine + ".") and value.replace(".", "").isdigit():
            figures[name.removeprefix(engine + ".")] = float(value)
    figures["queue"] = max(figures[f"{operation}.queue"] for operation in OPERATIONS)
    return figures, done.stdout


def missed(figures):
    return [f"{name} is {figures[name]:g}, the bar is {bar:g}"
            for name, bar in BARS.items() if figures[name] > bar]


def count(engines, operations):
    program = build("coherence")
    failed = []
    for engine in engines:
        figures, text = measure(program, engine, 64, operations)
        print(text, flush=True)
        if engine in HELD:
            failed += [f"{engine}: {what}" for what in missed(figures)]
    return failed


def count_planted(operations):
    program = build("coherence-shared")
    failed = []
    for engine, name in PLANTED.items():
        figures, text = measure(program, engine, 64, operations)
        print(text, flush=True)
        if not missed(figures):
            failed.append(f"{engine}: the planted fault meets every bar")
        hot = [line for line in text.splitlines() if line.startswith(f"{engine}.line")]
        if not any(name in line and ", content" not in line for line in hot):
            failed.append(f"{engine}: no hot line is named {name}")
    return failed


def bench(engine, threads):
    """Returns the rate of each phase in millions of operations a second."""
    done = subprocess.run([ROOT / "build/release/perdure", "bench", "--engine", engine,
                           "--threads", str(threads), "--records", "1M", "--durability", "emulated",
                           "--workload", "load,read,update,insert,delete", "--json"],
                          check=True, stdout=subprocess.PIPE, encoding="utf-8")
    return {phase["name"]: phase["mops"] for phase in json.loads(done.stdout)["phases"]}


def ratios(engines, operations):
    """The model has the time of the lines only; a measured operation of one thread has the rest."""
    program = build("coherence")
    print("engine operation model measured")
    for engine in engines:
        lines = [measure(program, engine, threads, operations)[0] for threads in (1, 2)]
        rates = [bench(engine, threads) for threads in (1, 2)]
        for operation in OPERATIONS:
            phase = PHASES[operation]
            one = 1e3 / rates[0][phase]  # ns
            more = lines[1][f"{operation}.ns"] - lines[0][f"{operation}.ns"]
            print(f"{engine} {operation} {2 * one / (one + more):.2f} "
                  f"{rates[1][phase] / rates[0][phase]:.2f}", flush=True)
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=ENGINES)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--ratios", action="store_true")
    options = parser.parse_args()
    engines = [options.engine] if options.engine else ENGINES
    if options.planted:
        failed = count_planted(options.operations)
    elif options.ratios:
        failed = ratios(engines, options.operations)
    else:
        failed = count(engines, options.operations)
    for what in failed:
        print(f"coherence: {what}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
