#!/usr/bin/env python3
"""Runs every guard: a program that tries to lose data, or to find lost data. Compares the figures
that each prints with its bars.

  scripts/guards.py figures|nightly [--engine E] [--only NAME[,NAME]] [--list]

figures takes up to 20 minutes per engine, nightly up to 95, on 2 cores, after the builds. Each
guard plants a bug of its own and must see it. A guard prints `PART.name=value` lines and exits with
0. PART is the engine or a part below it (heap, pool, relacy). The output of a guard is in
build/guards/ENGINE/MODE/NAME.log; the lines of all guards are in figures.txt beside it. Exit
status 1: a guard failed, ran out of time, did not print a figure that has a bar, or printed one
that misses its bar.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RELEASE = "build/release"
GUARD = RELEASE + "/perdure-guard"

# (comparison, bar in figures, bar in nightly). A bar that is a text names another figure. None: the
# figure is only printed.
Bar = tuple[str, float | str | None, float | str | None]
CANARY: Bar = ("<", 10, 10)
NONE: Bar = ("==", 0, 0)
SHOWN: Bar = (">=", None, None)
OF_VERSIONS: Bar = (">=", "keeps_versions", "keeps_versions")  # 0 only for engines without versions


class Machine:
    """A guard: one command, its budgets in minutes, and the figures that it must print."""

    def __init__(self, name: str, command: str, budgets: tuple[float, float],
                 bars: dict[str, Bar], at_night: dict[str, str] | None = None,
                 build: str = RELEASE) -> None:
        self.name = name
        self.command = command
        self.budgets = budgets
        self.bars = bars
        self.at_night = at_night or {}  # environment variables
        self.build = build


def of_parts(bars: dict[str, Bar]) -> dict[str, Bar]:
    """Returns the bars for the engine, whose name is omitted, and for heap and pool below it."""
    out = dict(bars)
    for part in ("heap", "pool"):
        for name, (comparison, *limits) in bars.items():
            first, second = (f"{part}.{x}" if isinstance(x, str) else x for x in limits)
            out[f"{part}.{name}"] = (comparison, first, second)
    return out


# {E} is the engine, {M} is figures or nightly. A new engine needs no change here.
MACHINES = [
    Machine("explore", GUARD + " explore --engine {E} --preset {M}", (6, 38),
            of_parts({
                "crash_images": (">=", 20_000, 1_000_000),
                "second_crash_images": (">=", 5_000, 100_000),
                "third_crash_images": SHOWN,
                "truncated_epochs": SHOWN,
                "bounded_epochs": SHOWN,
                "skipped_points": SHOWN,
                "violations": NONE,
                "leaks": NONE,
                "sites": (">=", 1, 1),
                "sites_crossed": ("==", "sites", "sites"),
                "canary_seconds": CANARY,
            })),
    Machine("interleave", GUARD + " interleave --engine {E} --preset {M}", (6, 15), {
        "pct_schedules_min": (">=", 25_000, 25_000),
        "exhaustive_scenarios": (">=", 1, 1),
        "schedule_truncated_epochs": SHOWN,
        "schedule_violations": NONE,
        "interleave_canary_seconds": CANARY,
    }),
    Machine("relacy", RELEASE + "/tests/relacy_kernels_test", (1, 5), {
        "relacy.executions": (">=", 40_000, 1_000_000),
        "relacy.errors": NONE,
        "relacy.planted_seen": ("==", "relacy.planted", "relacy.planted"),
        "relacy.canary_seconds": CANARY,
    }, {"PERDURE_RELACY_ITERATIONS": "200000"}),
    Machine("mutants", GUARD + " mutants --engine {E} --preset {M}", (6, 25), {
        "mutants": (">=", 100, 100),
        "mutants_killed": (">=", 100, 100),
        "mutants_argued": SHOWN,
        "heap.mutants_killed": (">=", 20, 20),
        "pool.mutants_killed": (">=", 20, 20),
        "mutants_survived": NONE,
        "historical_bugs": (">=", 10, 10),
        "historical_bugs_killed": ("==", "historical_bugs", "historical_bugs"),
        "mutants_canary_seconds": CANARY,
    }),
    Machine("torture", GUARD + " torture --engine {E} --preset {M}", (4, 30), {
        "lossy_kills": (">=", 500, 10_000),
        "ext4_kills": (">=", 200, 2_000),
        "plain_kills": SHOWN,
        "kills_in_recovery": (">=", 1, 1),
        "kills_in_create": (">=", 1, 1),
        "kills_in_growth": (">=", 1, 1),
        "kill_sites_hit": (">=", 1, 1),
        "lost_acks": NONE,
        "torture_together": (">=", 1_000, 1_000),
        "torture_together_in_flight": (">=", 20, 20),
        "torture_conditional": (">=", 1_000, 1_000),
        "counter_kills": (">=", 1_000, 10_000),
        "counter_additions": SHOWN,
        "counter_transfers": SHOWN,
        "keeps_versions": SHOWN,  # 0 or 1
        "torture_tags": OF_VERSIONS,
        "torture_trims": OF_VERSIONS,
        "torture_rollbacks": OF_VERSIONS,
        "torture_reads_at_versions": OF_VERSIONS,
        "versions_verified": OF_VERSIONS,
        "torture_canary_seconds": CANARY,
    }),
    Machine("lin", "scripts/lin.sh --engine {E} {M}", (4, 25), {
        "histories": (">=", 100, 100),
        "history_operations": (">=", 10_000_000, 10_000_000),
        "crash_histories": (">=", 1_000, 1_000),
        "crash_history_kills": (">=", 1_000, 1_000),
        "crash_history_in_flight": (">=", 100, 100),
        "keeps_versions": SHOWN,  # 0 or 1
        "history_tags": OF_VERSIONS,
        "history_version_reads": OF_VERSIONS,
        "history_trims": OF_VERSIONS,
        "history_reads_of_trimmed": OF_VERSIONS,
        "crash_history_tags": OF_VERSIONS,
        "crash_history_version_reads": OF_VERSIONS,
        "not_linearizable": NONE,
        "lin_canary_seconds": CANARY,
    }),
    Machine("faults", "scripts/faults.sh --engine {E} {M}", (4, 20), {
        "fault_points": (">=", 900, 1_000),
        "faults.kinds_missing": NONE,
        "faults.points.create_power": (">=", 1, 1),
        "faults.points.recover_power": (">=", 1, 1),
        "faults.points.reopen_power": (">=", 1, 1),
        "faults.power_pretended": SHOWN,
        "faults.planted_seen": ("==", "faults.planted", "faults.planted"),
        # Of the pool that was closed cleanly.
        "flips.clean": (">=", 65_536, 524_288),
        "flips.clean.unused": SHOWN,
        "flips.clean.lived_on": ("==", "flips.clean.unused", "flips.clean.unused"),
        "flips.unclean": (">=", 65_536, 65_536),
        "flips.observed": SHOWN,
        "flips.observed_unclean": SHOWN,
        "flips.open": SHOWN,
        "bit_flips": SHOWN,
        "silent_flips": NONE,
        "signals": NONE,
        "flips.planted_seen": (">=", 1, 1),
        "faults_canary_seconds": CANARY,
    }),
    Machine("fuzz", "scripts/fuzz.sh {M} --engine {E}", (4, 25), {
        "fuzz_executions": (">=", 1, 1_200_000),
        "parser_executions": (">=", 1, 1_000_000),
        "pool_executions": (">=", 1, 200_000),
        "fuzz_findings": NONE,
        "fuzz_canary_seconds": CANARY,
    }, build="build/fuzz"),
    Machine("coverage", "scripts/coverage.sh --engine {E} {M}", (5, 15), {
        "line_coverage": (">=", None, 95),
        "branch_coverage": (">=", None, 95),
        "heap.branch_coverage": SHOWN,
        "pool.branch_coverage": SHOWN,
    }, build="build/coverage"),
]
PRESETS = ("figures", "nightly")
TOTAL = (20, 95)  # minutes; nightly also runs `make ci`, which comes on top
COMPARE = {
    ">=": lambda value, bar: value >= bar,
    "==": lambda value, bar: value == bar,
    "<": lambda value, bar: value < bar,
}


def make_current(builds: set[str]) -> None:
    """Builds the programs from the tree as it is."""
    for build in sorted(builds):
        if not (ROOT / build / "build.ninja").exists():
            sys.exit(f"guards: there is no {build}; run `make guard-builds`")
        if subprocess.run(["ninja", "-C", build], cwd=ROOT, check=False).returncode != 0:
            sys.exit(f"guards: {build} cannot be built")


def run(machine: Machine, engine: str, mode: str, log: pathlib.Path,
        left: float) -> tuple[str, float]:
    """Runs a guard. Returns the problem of the command itself, or "", and its seconds."""
    command = machine.command.format(E=engine, M=mode).split()
    if not (ROOT / command[0]).exists():
        return f"there is no {command[0]}", 0
    budget = min(machine.budgets[PRESETS.index(mode)] * 60, left)
    if budget <= 0:
        return "no time was left", 0
    start = time.monotonic()
    with log.open("wb") as out:
        # In a process group of its own, so that no child outlives the budget.
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT,
                                   start_new_session=True,
                                   env=os.environ | (machine.at_night if mode == "nightly" else {}))
        try:
            status = process.wait(budget)
            problem = "" if status == 0 else f"exit status {status}"
        except subprocess.TimeoutExpired:
            problem = f"not done in {budget / 60:.1f} minutes"
        except KeyboardInterrupt:
            problem = "interrupted"
        if problem.startswith(("not done", "interrupted")):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if problem == "interrupted":
        sys.exit(130)
    return problem, time.monotonic() - start


def figures_in(log: pathlib.Path, engine: str) -> dict[str, str]:
    """Returns name -> value. A name begins with its part, unless the part is the engine."""
    line = re.compile(rf"(?:{re.escape(engine)}\.)?([\w.]+)=(-?[\d.]+)")
    text = log.read_text(errors="replace") if log.exists() else ""
    matches = (line.fullmatch(row.strip()) for row in text.splitlines())
    return {match[1]: match[2] for match in matches
            if match and re.match(rf"({re.escape(engine)}|heap|pool|relacy)\.", match[0])}


def judge(bar: Bar, mode: str, name: str, figures: dict[str, str]) -> tuple[str, str]:
    """Returns the bar as text, and what is wrong with the figure."""
    comparison, limit = bar[0], bar[1 + PRESETS.index(mode)]
    text = "" if limit is None else f"{comparison} {limit}"
    if name not in figures:
        return text, "missing"
    if limit is None:
        return text, ""
    wanted = figures.get(limit, "nan") if isinstance(limit, str) else limit
    return text, "" if COMPARE[comparison](float(figures[name]), float(wanted)) else "BELOW"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("mode", choices=PRESETS)
    parser.add_argument("--engine", default="phast")
    parser.add_argument("--only", default="", help="names of guards, separated by commas")
    parser.add_argument("--list", action="store_true", help="only print the commands")
    arguments = parser.parse_args()
    names = {machine.name for machine in MACHINES}
    unknown = set(filter(None, arguments.only.split(","))) - names
    if unknown:
        parser.error(f"there is no guard {', '.join(sorted(unknown))}; "
                     f"the guards are {', '.join(sorted(names))}")
    return arguments


def stop(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    arguments = parse()
    signal.signal(signal.SIGTERM, stop)
    mode, engine = arguments.mode, arguments.engine
    chosen = [m for m in MACHINES if not arguments.only or m.name in arguments.only.split(",")]
    if arguments.list:
        for machine in chosen:
            minutes = machine.budgets[PRESETS.index(mode)]
            print(f"{machine.name:11} {minutes:3g} min  {machine.command.format(E=engine, M=mode)}")
        return 0
    make_current({machine.build for machine in chosen})
    out = ROOT / "build" / "guards" / engine / mode
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    lines, rows, failed = [], [], []
    end = time.monotonic() + TOTAL[PRESETS.index(mode)] * 60
    for machine in chosen:
        print(f"{machine.name}: {machine.command.format(E=engine, M=mode)}", flush=True)
        log = out / f"{machine.name}.log"
        problem, seconds = run(machine, engine, mode, log, end - time.monotonic())
        figures = figures_in(log, engine)
        for name, value in figures.items():
            of_part = name.startswith(("heap.", "pool.", "relacy."))
            lines.append(f"{name}={value}" if of_part else f"{engine}.{name}={value}")
            print(lines[-1], flush=True)
        for name, bar in machine.bars.items():
            text, wrong = judge(bar, mode, name, figures)
            rows.append((machine.name, name, figures.get(name, "-"), text, wrong))
            if wrong:
                failed.append(f"{machine.name}: {name} is {wrong.lower()}")
        if problem:
            failed.append(f"{machine.name}: {problem}; see {log.relative_to(ROOT)}")
        rows.append((machine.name, "minutes", f"{seconds / 60:.1f}", "", problem))
    (out / "figures.txt").write_text("\n".join(lines) + "\n")
    table = [f"{m:11} {n:30} {v:>14}  {b:18} {w}".rstrip() for m, n, v, b, w in rows]
    (out / "summary.txt").write_text("\n".join(table + failed) + "\n")
    print("\n" + "\n".join(table))
    for what in failed:
        print(f"guards: {what}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
