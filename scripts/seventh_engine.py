#!/usr/bin/env python3
"""Adds the engine of examples/engine to a copy of the tree, and runs the tests and guards on it.

  scripts/seventh_engine.py [--quick]

An engine is its own files and two lines in files of others: its number in include/perdure/options.h
and its line in src/index/engines.def. tests/budgets/costs.txt is written by perdure-costs. The
script makes these changes in build/seventh-engine/source, builds there, and runs

  the tests that run on every engine (tests/engines, the corpora of fuzz/, the ledger of costs, and
             tests/c/ranges_test.c, which opens a map of each by the C library)
  python     the tests of the Python package that open a store of the engine
  mutants    of the engine's sites: none may survive
  guards     explore, interleave, torture, faults and fuzz, at the length of figures

--quick: only the build and the tests. Exit status 1: something failed.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from engines import ENGINES

ROOT = pathlib.Path(__file__).resolve().parent.parent
OWN = ROOT / "examples" / "engine"
COPY = ROOT / "build" / "seventh-engine" / "source"
NAME = "chain"
NUMBER = 7
GUARDS = "explore,interleave,torture,faults,fuzz"


def copy_tree():
    """Copies what git tracks or would track. Keeps the build tree of the last run."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT,
                            check=True, capture_output=True, text=True).stdout
    wanted = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    places = {name: ROOT / name for name in wanted if not name.startswith("examples/engine/")}
    places |= {str(path.relative_to(OWN)): path for path in OWN.rglob("*") if path.is_file()}
    for path in list(COPY.rglob("*")):
        name = str(path.relative_to(COPY))
        if path.is_file() and not name.startswith("build/") and name not in places:
            path.unlink()
    for name, source in places.items():
        target = COPY / name
        target.parent.mkdir(parents=True, exist_ok=True)
        text = changed(name, source.read_bytes())
        if not target.exists() or target.read_bytes() != text:
            target.write_bytes(text)
            shutil.copymode(source, target)


def changed(name, text):
    """Returns the file's text with the engine's line, if it is one of the two."""
    if name == "include/perdure/options.h":
        return inserted(text, rb"enum class Engine : std::uint16_t \{\n(  \w+ = \d+,.*\n)+",
                        f"  {NAME} = {NUMBER},\n")
    if name == "src/index/engines.def":
        return inserted(text, rb"(PERDURE_ENGINE\(\w+\)\n)+", f"PERDURE_ENGINE({NAME})\n")
    return text


def inserted(text, after, line):
    found = re.search(after, text)
    if found is None:
        sys.exit(f"seventh-engine: no place for {line.strip()}")
    return text[:found.end()] + line.encode() + text[found.end():]


def run(*command, **options):
    began = time.monotonic()
    print("+", *command, flush=True)
    done = subprocess.run([str(word) for word in command], cwd=COPY, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"seventh-engine: exit status {done.returncode}")
    print(f"  {time.monotonic() - began:.0f} s", flush=True)


def targets(quick):
    """The programs that the tests and guards below run."""
    tests = [f"engines_{path.stem}" for path in (ROOT / "tests" / "engines").glob("*_test.cc")]
    fuzz = [f"fuzz_{path.stem.removesuffix('_target')}_replay"
            for path in (ROOT / "fuzz").glob("*_target.cc")]
    return ["perdure_cli", "perdure_costs", "c_ranges_test", *tests, *fuzz,
            *([] if quick else ["perdure_guard"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only the build and the tests")
    arguments = parser.parse_args()
    copy_tree()
    run("make", "setup")
    if not (COPY / "build/release/build.ninja").exists():
        run("cmake", "--preset", "release")
    run("cmake", "--build", "--preset", "release", "--target", *targets(arguments.quick))
    costs = COPY / "build" / "release" / "testing" / "perdure-costs"
    with open(COPY / "tests" / "budgets" / "costs.txt", "w", encoding="utf-8") as ledger:
        run(costs, stdout=ledger)
    others = "|".join(ENGINES)
    run("ctest", "--preset", "release", "-R", "^(engines|fuzz)/|^testers/costs|^c/ranges_test$",
        "-E", rf"\.({others})$")
    if not arguments.quick:
        run("make", "python")
        run("build/venv/bin/python", "-m", "pytest", "-k", NAME,
            env=os.environ | {"PYTHONPATH": "build/release/python"})
        run("build/release/perdure-guard", "mutants", "--engine", NAME)
        run("make", "build-fuzz")
        run("scripts/guards.py", "figures", "--engine", NAME, "--only", GUARDS)
    print(f"{NAME}: everything passed")


if __name__ == "__main__":
    main()
