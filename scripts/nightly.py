#!/usr/bin/env python3
"""Runs what `make nightly` promises, one step after the other, and prints one table.

  scripts/nightly.py [--engine E] [--only STEP[,STEP]] [--again] [--list]

A step that fails does not stop the others. A run that was stopped goes on where it was: a step that
was right for this commit is not run again, unless the checkout has changes, or with --again. The
output of a step is in build/nightly/STEP.txt. The exit status is 1 if a step is not right.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

# {E} is the engine. In the order of what notices most in the least time. A step builds what it
# runs: the one before it may have been right for this commit in an earlier build.
STEPS = {
    "ci": "make ci",
    "docs": "make test-docs",
    "other projects": "make other-projects",
    "asan": "make asan",
    "papers": "make papers",
    "guards": "make guard-builds && scripts/guards.py nightly --engine {E}",
    "tests": "make build && ctest --test-dir build/release -L '^nightly$' -j2 --output-on-failure "
             "--no-tests=ignore",
    "seventh engine": "scripts/seventh_engine.py --quick",
    "world": "make world",
    "cross": "make cross",
    "packages": "make dist wheel test-packages",
    "ycsb": "make test-ycsb",
}


def state_of_the_checkout():
    """The commit; None if the checkout has changes, which no earlier run has seen."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, check=True, text=True,
                              stdout=subprocess.PIPE).stdout.strip()
    return None if git("status", "--porcelain") else git("rev-parse", "HEAD")


class Night:
    """The results of the steps so far, which a file keeps."""

    def __init__(self, folder, commit):
        self.folder, self.commit, self.results = folder, commit, {}
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "results.json"
        if commit is not None and self.file.exists():
            kept = json.loads(self.file.read_text())
            if kept["commit"] == commit:
                self.results = kept["results"]

    def is_right(self, key):
        return key in self.results and self.results[key]["status"] == 0

    def run(self, name, key, command):
        log = self.folder / f"{name.replace(' ', '-')}.txt"
        begin = time.monotonic()
        with log.open("w") as output:
            status = subprocess.run(command, shell=True, cwd=ROOT, check=False, stdout=output,
                                    stderr=subprocess.STDOUT).returncode
        self.results[key] = {"status": status, "minutes": (time.monotonic() - begin) / 60}
        if self.commit is None:
            return  # what an earlier run has found for a commit stays
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps({"commit": self.commit, "results": self.results}, indent=1))
        part.replace(self.file)


def run(steps, night, again=False, say=print):
    """Runs the steps, a dict of names and commands. Returns the rows of the table."""
    rows = []
    for name, command in steps.items():
        key = f"{name}: {command}"
        earlier = night.is_right(key) and not again
        if not earlier:
            say(f"nightly: {name}: {command}")
            night.run(name, key, command)
        result = night.results[key]
        state = "right" if result["status"] == 0 else f"WRONG ({result['status']})"
        rows.append((name, state + (", earlier" if earlier else ""), result["minutes"]))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", default="phast")
    parser.add_argument("--only", default="", metavar="STEP[,STEP]")
    parser.add_argument("--again", action="store_true", help="also what was right before")
    parser.add_argument("--list", action="store_true", help="print the steps, and run none")
    arguments = parser.parse_args()
    wanted = [name for name in arguments.only.split(",") if name]
    unknown = [name for name in wanted if name not in STEPS]
    if unknown:
        parser.error(f"no step {unknown[0]!r}; there are: {', '.join(STEPS)}")
    steps = {name: command.format(E=arguments.engine) for name, command in STEPS.items()
             if not wanted or name in wanted}
    if arguments.list:
        for name, command in steps.items():
            print(f"{name:16} {command}")
        return 0
    rows = run(steps, Night(ROOT / "build/nightly", state_of_the_checkout()), arguments.again)
    print(f"\n{'step':16} {'minutes':>8}  result")
    for name, state, minutes in rows:
        print(f"{name:16} {minutes:8.1f}  {state}")
    wrong = [name for name, state, _ in rows if not state.startswith("right")]
    for name in wrong:
        print(f"see build/nightly/{name.replace(' ', '-')}.txt")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
