#!/usr/bin/env python3
"""Compares the speed and the costs of this tree with those of a base commit.

  scripts/bench_check.py [--base COMMIT]   default: HEAD if files were changed, else HEAD~1
  scripts/bench_check.py --self 10         ten checks of the tree against itself: all must pass

The script builds `perdure bench` of the base, and nothing else of it, in build/bench-check/COMMIT,
and keeps it. Each turn runs both programs one after the other, and turns alternate which one is
first. A row is a phase of an engine. Each turn gives it a ratio, tree / base.

  FAIL        the upper end of the 95 % interval of the row's median ratio is below 0.95, after
              twice as many turns as the other rows
  unresolved  the interval contains 0.95, so this number of turns cannot decide
  ok          the whole interval is 0.95 or more

Write-backs, fences, allocations, written bytes, and the lines that the simulator counts
(tests/budgets/costs.txt) must not rise by more than 2 % per operation.

Exit status: 0 no row fails; 1 a row fails, or a key was lost; 2 wrong arguments, or something is
missing; 3 the machine is busy.
"""
import argparse
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

import bench_stats as stats
from bench_load import BusyMachine, Watch
from engines import ENGINES

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHECKS = ROOT / "build" / "bench-check"
TREE_BUILD = ROOT / "build" / "release"
LEDGER = "tests/budgets/costs.txt"
MEMORY = pathlib.Path("/dev/shm")
MEMORY_WANTED = 1 << 30
COUNTS = {"flushes_per_op": "write-backs", "fences_per_op": "fences",
          "allocs_per_op": "allocations", "bytes_written_per_op": "written bytes"}

# Short phases are listed several times; their results are merged into one row.
POINTS = "load,read,read_batch,read_batch,read_batch,read_missing,read_missing,update,delete"


def bench_options(engine, workload, records, operations, *more):
    return ["--engine", engine, "--workload", workload, "--records", records,
            "--operations", operations, *more]


# Records and operations of the runs of POINTS, if not 100K.
SIZES = {"phast": ("400K", "400K"), "level": ("400K", "400K"), "clevel": ("400K", "300K"),
         "pskiplist": ("200K", "200K")}
# name: options of `perdure bench`. A run takes less than a second on an idle machine.
RUNS = {
    **{engine: bench_options(engine, POINTS, *SIZES.get(engine, ("100K", "100K")))
       for engine in ENGINES},
    "phast strings": bench_options("phast", POINTS, "200K", "200K", "--key", "string:16",
                                   "--value", "string:100"),
    "phast ordered": bench_options("phast", "load,scan", "200K", "80K"),
    "pskiplist ordered": bench_options("pskiplist", "load,scan", "150K", "50K"),
    "as ordered": bench_options("as", "load,scan", "50K", "20K"),
}
# Only if both programs have --dependent.
DEPENDENT_RUNS = {
    f"{engine} dependent": bench_options(engine, "load,read,read,read_missing,update", "300K",
                                         "150K", "--dependent")
    for engine in ("phast", "level", "clevel")
}
# Runs whose `load` is no row, because another run has that row.
PREPARED = {"phast ordered", "pskiplist ordered", "as ordered", *DEPENDENT_RUNS}
COMMON = ["--durability", "emulated", "--threads", "1", "--touch", "128M", "--json"]


class Trouble(Exception):
    """Ends the check. args: exit status, message."""


def git(*arguments):
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, text=True, capture_output=True,
                              check=False)
    except FileNotFoundError:
        raise Trouble(2, "git is not installed; run make setup") from None
    return done.stdout if done.returncode == 0 else None


def base_commit(wanted):
    if git("rev-parse", "HEAD") is None:
        raise Trouble(2, f"{ROOT} is not a git checkout, so there is no base to compare with")
    if wanted is None:
        wanted = "HEAD" if git("status", "--porcelain").strip() else "HEAD~1"
    commit = git("rev-parse", "--verify", "--quiet", f"{wanted}^{{commit}}")
    if commit is None:
        raise Trouble(2, f"there is no commit '{wanted}'; name one of `git log`, or fetch it "
                         "(git fetch --unshallow, if the clone is shallow)")
    return commit.strip()


def run_quietly(command, cwd, log):
    with open(log, "a", encoding="utf-8") as out:
        done = subprocess.run(command, cwd=cwd, stdout=out, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise Trouble(2, f"{' '.join(map(str, command))}: exit status {done.returncode}; see {log}")


def has_tests(folder):
    cache = folder / "CMakeCache.txt"
    return cache.exists() and "PERDURE_TESTS:BOOL=ON" in cache.read_text()


def build(source, target, log, options=()):
    """Configures with the preset of the source, if necessary, and builds the targets."""
    if options or not has_tests(source / "build" / "release"):
        run_quietly(["cmake", "--preset", "release", *options], source, log)
    run_quietly(["cmake", "--build", "--preset", "release", "--target", *target], source, log)


def build_base(commit):
    """Returns the program of the base. Builds it from unpacked sources if it is not there."""
    folder = CHECKS / commit
    program = folder / "perdure"
    if program.exists():
        return program
    source = folder / "source"
    log = folder / "build.log"
    source.mkdir(parents=True, exist_ok=True)
    print(f"building perdure bench of {commit[:7]} (log: {log})", flush=True)
    archive = subprocess.Popen(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE)
    unpacked = subprocess.run(["tar", "-x", "-C", source], stdin=archive.stdout, check=False)
    if archive.wait() != 0 or unpacked.returncode != 0:
        raise Trouble(2, f"cannot unpack {commit} into {source}; is the disk full?")
    build(source, ["perdure_cli"], log, ["-DPERDURE_TESTS=OFF"])
    part = folder / "perdure.part"
    shutil.copy2(source / "build" / "release" / "perdure", part)
    part.rename(program)
    shutil.rmtree(source)  # 100 MB of objects, which are not needed again
    return program


def build_tree():
    CHECKS.mkdir(parents=True, exist_ok=True)
    log = CHECKS / "tree.log"
    print(f"building this tree (log: {log})", flush=True)
    build(ROOT, ["perdure_cli", "perdure_costs"], log)
    return TREE_BUILD / "perdure"


def knows(program, word):
    """Whether an option or an engine is in the help of the program."""
    done = subprocess.run([program, "bench", "--help"], text=True, capture_output=True, check=False)
    return re.search(rf"(?<![\w-]){word}\b", done.stdout) is not None


def merged(phases):
    """Returns {phase: speed and counts}. A repeated phase counts all its operations together."""
    results = {}
    for phase in phases:
        results.setdefault(phase["name"], []).append(phase)
    return {name: {"mops": sum(p["operations"] for p in parts)
                           / sum(p["seconds"] for p in parts) / 1e6,
                   **{field: statistics.mean(p[field] for p in parts) for field in COUNTS}}
            for name, parts in results.items()}


def bench(program, options):
    """Runs once and returns {phase: speed and counts}."""
    pool = MEMORY / f"perdure-bench-check.{os.getpid()}.perdure"
    command = [str(program), "bench", *options, *COMMON, "--path", str(pool)]
    try:
        done = subprocess.run(command, text=True, capture_output=True, check=False)
    finally:
        pool.unlink(missing_ok=True)
    if done.returncode == 0:
        return merged(json.loads(done.stdout)["phases"])
    lost = done.returncode == 1
    raise Trouble(1 if lost else 2, f"{' '.join(command)}: exit status {done.returncode}"
                  f"{', a key was lost' if lost else ''}\n{done.stderr.strip()}")


class Row:
    """A phase of an engine: the results of both programs in every turn."""

    def __init__(self, name):
        self.name = name
        self.base, self.tree = [], []

    def add(self, base, tree):
        self.base.append(base)
        self.tree.append(tree)

    def ratios(self):
        return [tree["mops"] / base["mops"] for base, tree in zip(self.base, self.tree)]

    def judge(self):
        return stats.judge_ratios(self.ratios())

    def line(self):
        median, lower, upper, verdict = self.judge()
        speeds = [statistics.median(p["mops"] for p in side) for side in (self.base, self.tree)]
        interval = f"{lower:.3f} to {upper:.3f}" if upper < math.inf else "too few turns"
        return (f"{self.name:<30}{median:>8.3f}   {interval:<16}"
                f"{speeds[0]:>9.3f}{speeds[1]:>10.3f}   {verdict}")

    def counts(self, side):
        return {f"{self.name}, {what}": statistics.median(p[field] for p in side)
                for field, what in COUNTS.items()}

    def risen(self):
        return stats.risen_counts(self.counts(self.base), self.counts(self.tree))


class Comparison:
    """All rows of a base and a tree."""

    def __init__(self, base, tree, runs, watch):
        self.programs = {"base": base, "tree": tree}
        self.runs = runs
        self.watch = watch
        self.rows = {}  # (run, phase): Row
        self.turns = dict.fromkeys(runs, 0)

    def turn(self, name):
        """Runs each program once. Repeats that if other processes used the machine meanwhile."""
        order = ["base", "tree"] if self.turns[name] % 2 == 0 else ["tree", "base"]
        results = self.watch.undisturbed(
            lambda: {side: bench(self.programs[side], self.runs[name]) for side in order})
        self.turns[name] += 1
        for phase in results["base"]:
            if phase == "load" and name in PREPARED:
                continue
            row = self.rows.setdefault((name, phase), Row(f"{name} {phase}"))
            row.add(results["base"][phase], results["tree"][phase])

    def run(self, turns):
        for number in range(turns):
            for name in self.runs:
                show(f"turn {number + 1} of {turns}: {name}")
                self.turn(name)
        # A row that would fail gets as many turns again, because noise seldom repeats.
        doubtful = {name for (name, _), row in self.rows.items() if row.judge()[3] == stats.FAIL}
        for name in self.runs:
            for number in range(turns if name in doubtful else 0):
                show(f"again, turn {number + 1} of {turns}: {name}")
                self.turn(name)
        show("")

    def report(self):
        """Prints the table. Returns whether a row fails."""
        print(f"{'row':<30}{'median':>8}   {'95 % interval':<16}{'base M/s':>9}{'tree M/s':>10}"
              "   verdict")
        verdicts = []
        for row in self.rows.values():
            verdicts.append(row.judge()[3])
            print(row.line())
        risen = [rise for row in self.rows.values() for rise in row.risen()]
        print_risen(risen)
        print(f"{len(verdicts)} rows: {verdicts.count(stats.OK)} ok, "
              f"{verdicts.count(stats.UNRESOLVED)} unresolved, {verdicts.count(stats.FAIL)} failed;"
              f" {len(risen)} counts per operation rose by more than 2 %")
        return stats.FAIL in verdicts or bool(risen)

    def save(self, path):
        path.write_text(json.dumps({row.name: {"ratios": row.ratios(), "base": row.base,
                                               "tree": row.tree} for row in self.rows.values()}))


def print_risen(risen):
    for name, before, after in risen:
        print(f"{name}: {before:g} per operation before, {after:g} now   {stats.FAIL}")


def show(text):
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)


def base_ledger(commit):
    """Returns the simulator's figures of the base, and where they come from."""
    text = git("show", f"{commit}:{LEDGER}")
    if text is not None:
        return text, f"{LEDGER} of {commit[:7]}"
    # If the base is older than the ledger: the first ledger has the figures of the commit before
    # it.
    first = (git("log", "--diff-filter=A", "--format=%H", "--", LEDGER) or "").split()
    text = git("show", f"{first[-1]}:{LEDGER}") if first else (ROOT / LEDGER).read_text()
    return text, f"the first {LEDGER}"


def check_costs(commit):
    """Compares the simulator's figures. Returns whether a figure rose."""
    text, origin = base_ledger(commit)
    program = TREE_BUILD / "testing" / "perdure-costs"
    done = subprocess.run([program], text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise Trouble(1, f"{program}: exit status {done.returncode}: {done.stderr.strip()}")
    before, after = stats.parse_ledger(text), stats.parse_ledger(done.stdout)
    risen = stats.risen_counts(before, after, stats.SIMULATED_SLACK)
    print_risen(risen)
    print(f"counted by the simulator: {len(before.keys() & after.keys())} figures compared with "
          f"{origin}, {len(risen)} rose by more than 2 %")
    return bool(risen)


def check_memory():
    try:
        free = shutil.disk_usage(MEMORY).free
    except OSError as error:
        raise Trouble(2, f"{MEMORY}: {error.strerror}; the pools need it") from None
    if free < MEMORY_WANTED:
        raise Trouble(2, f"{MEMORY}: {free >> 20} MiB are free, {MEMORY_WANTED >> 20} are needed; "
                         "remove files there, or start the container with a larger --shm-size")


def self_checks(arguments):
    """Checks the tree against a copy of itself. Every check must pass."""
    tree = build_tree()
    copy = CHECKS / "perdure-copy"
    shutil.copy2(tree, copy)
    failed = 0
    for number in range(arguments.self):
        print(f"\ncheck {number + 1} of {arguments.self}: the tree against itself")
        failed += compare(copy, tree, arguments)
    print(f"\n{arguments.self - failed} of {arguments.self} checks passed")
    return 1 if failed else 0


def compare(base, tree, arguments):
    runs = {name: options for name, options in RUNS.items() if knows(base, options[1])}
    if knows(base, "--dependent") and knows(tree, "--dependent"):
        runs |= DEPENDENT_RUNS
    if arguments.only:
        runs = {name: options for name, options in runs.items() if name.startswith(arguments.only)}
        if not runs:
            raise Trouble(2, f"--only {arguments.only}: there is no such run; the runs are "
                             f"{', '.join([*RUNS, *DEPENDENT_RUNS])}")
    watch = Watch(arguments.force)
    watch.require_idle()
    begin = time.monotonic()
    comparison = Comparison(base, tree, runs, watch)
    comparison.run(arguments.turns)
    failed = comparison.report()
    comparison.save(CHECKS / "last.json")
    print(f"{time.monotonic() - begin:.0f} s; others used {watch.worst():.0%} of a processor at "
          f"most, {watch.repeated} turns were repeated")
    return failed


def parse(arguments):
    parser = argparse.ArgumentParser(
        usage="scripts/bench_check.py [--base COMMIT] [--turns N] [--self N] [--only NAME] "
              "[--force]",
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="the commit to compare with")
    parser.add_argument("--turns", type=int, default=stats.LEAST_TURNS,
                        help=f"at least {stats.LEAST_TURNS}, fewer with --force")
    parser.add_argument("--self", type=int, default=0, metavar="N",
                        help="N checks of the tree against itself")
    parser.add_argument("--only", help="the runs whose names begin with this")
    parser.add_argument("--force", action="store_true",
                        help="run on a busy machine too; its ratios decide nothing")
    parsed = parser.parse_args(arguments)
    if parsed.turns < 1 or (parsed.turns < stats.LEAST_TURNS and not parsed.force):
        parser.error(f"--turns {parsed.turns}: use {stats.LEAST_TURNS} or more")
    if parsed.self < 0 or (parsed.self and parsed.base):
        parser.error("--self takes a number above 0, and no --base")
    return parsed


def main(arguments):
    parsed = parse(arguments)
    try:
        check_memory()
        if parsed.self:
            return self_checks(parsed)
        commit = base_commit(parsed.base)
        base, tree = build_base(commit), build_tree()
        print(f"base {commit[:7]}, {parsed.turns} turns", flush=True)
        failed = compare(base, tree, parsed)
        failed |= check_costs(commit)
    except BusyMachine as busy:
        print(f"bench-check: {busy}", file=sys.stderr)
        return 3
    except Trouble as trouble:
        print(f"bench-check: {trouble.args[1]}", file=sys.stderr)
        return trouble.args[0]
    print("FAILED" if failed else "passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
