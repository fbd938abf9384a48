#!/usr/bin/env python3
"""Turns the JSON of scripts/figures.sh into tables, so that no figure is typed by hand.

  figures_table.py [DIR]             markdown tables on standard output (DIR: build/figures)
  figures_table.py --write [DIR]     puts them between the markers of docs/benchmarks.md
  figures_table.py --check [DIR]     every bound and its figure; exit status 1 if one does not hold

The speed of integers has no bound: scripts/bench_check.py compares it with another commit's.
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"

# Phases whose speed with two threads is compared with that of one.
SCALING = ("insert", "read", "read_batch", "update", "delete", "scan")


def load(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def phase(run, name):
    return next(p for p in run["phases"] if p["name"] == name)


def mops(run, name):
    return phase(run, name)["mops"]


class Checks:
    def __init__(self):
        self.rows = []

    def at_least(self, what, figure, bound, unit=""):
        self.rows.append((what, figure, ">=", bound, unit, figure >= bound))

    def at_most(self, what, figure, bound, unit=""):
        self.rows.append((what, figure, "<=", bound, unit, figure <= bound))

    def print(self):
        for what, figure, relation, bound, unit, holds in self.rows:
            verdict = "ok" if holds else "FAIL"
            print(f"{what:<58}{figure:>10.3f} {relation} {bound:<8.3f}{unit:<10}{verdict}")
        failed = sum(not row[-1] for row in self.rows)
        print(f"\n{len(self.rows) - failed} of {len(self.rows)} bounds hold")
        return 1 if failed else 0


def check(folder):
    checks = Checks()
    one, two = load(folder, "uniform_1"), load(folder, "uniform_2")
    print((folder / "machine.txt").read_text())
    for name in SCALING:
        checks.at_least(f"integers, 2 threads over 1, {name}", mops(two, name) / mops(one, name),
                        1.8)
    process = load(folder, "process")
    ours, rocksdb = load(folder, "strings")["runs"]
    checks.at_least("16-byte keys, 100-byte values, put", mops(ours, "load"), 1.0, "M/s")
    checks.at_least("16-byte keys, 100-byte values, get", mops(ours, "read"), 1.5, "M/s")
    checks.at_least("put over RocksDB's, same run", mops(ours, "load") / mops(rocksdb, "load"), 5)

    for shape in ("sequential", "clustered"):
        run = load(folder, shape)
        for name in (p["name"] for p in run["phases"]):
            checks.at_most(f"{shape} keys, time over uniform, {name}",
                           mops(one, name) / mops(run, name), 1.5)

    loaded = load(folder, "load")
    checks.at_most("persistent bytes per entry after load", loaded["bytes_per_entry_pm"], 28)
    checks.at_most("DRAM bytes per entry after load", loaded["bytes_per_entry_dram"], 4)
    checks.at_most("DRAM bytes per entry with scan orders", one["bytes_per_entry_dram"], 5.5)
    checks.at_most("open after kill -9 to first answer, 2 threads", loaded["first_lookup_seconds"],
                   0.5, "s")
    checks.at_most("open after close, 2 threads", loaded["reopen_clean_seconds"], 0.25, "s")
    files = load(folder, "churn_files")
    checks.at_most("file after churn over file after load",
                   files["file_after"] / files["file_before"], 2)
    checks.at_most("keys missing in all runs", missing(folder), 0)
    check_budgets(checks, one, process)
    return checks.print()


def missing(folder):
    total = 0
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text())
        for run in data.get("runs", [data]):
            total += run.get("missing", 0) + run.get("unexpected", 0)
    return total


def check_budgets(checks, emulated, process):
    """Write-backs and fences per operation. A split (17 and 2) leaves at least 28 entries in a
    leaf, so there is at most one in 28 insertions; an emptied leaf costs one of each."""
    budgets = {"insert": (1 + 17 / 28, 1 + 2 / 28), "update": (1, 1),
               "delete": (1 + 1 / 28, 1 + 1 / 28),
               "read": (0, 0), "read_batch": (0, 0), "scan": (0, 0)}
    for name, (flushes, fences) in budgets.items():
        checks.at_most(f"write-backs per {name}", phase(emulated, name)["flushes_per_op"], flushes)
        checks.at_most(f"fences per {name}", phase(emulated, name)["fences_per_op"], fences)
    for field in ("flushes_per_op", "fences_per_op"):
        checks.at_most(f"process durability, insert, {field}", phase(process, "insert")[field], 0)


def row(cells):
    return "| " + " | ".join(cells) + " |"


def table(header, rows):
    lines = [row(header), row(["---"] * len(header))]
    return "\n".join(lines + [row(cells) for cells in rows]) + "\n"


def phase_table(runs):
    """`runs`: (title, run). One row per phase, millions of operations per second and latencies."""
    rows = []
    for title, run in runs:
        for p in run["phases"]:
            counted = p["flushes_per_op"] is not None
            rows.append([title, p["name"], f"{p['mops']:.2f}", str(p["p50_ns"]), str(p["p99_ns"]),
                         str(p["p999_ns"]),
                         f"{p['flushes_per_op']:.2f}" if counted else "",
                         f"{p['fences_per_op']:.2f}" if counted else ""])
            title = ""
    return table(["run", "phase", "M/s", "p50 ns", "p99 ns", "p99.9 ns", "write-backs", "fences"],
                 rows)


def number(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def engine_table(runs):
    names = [p["name"] for p in runs[0]["phases"]]
    rows = [[run["engine"]] + [f"{mops(run, name):.2f}" for name in names]
            + [number(run["bytes_per_entry_pm"], 1), number(run["reopen_clean_seconds"], 4)]
            for run in runs]
    return table(["engine"] + names + ["bytes/entry", "open s"], rows)


def memory_table(folder):
    names = ("load", "uniform_1", "sequential", "clustered")
    return table(["run", "persistent B/entry", "DRAM B/entry", "open after close s",
                  "open after kill s", "first answer s"],
                 [[name] + [number(load(folder, name)[field], digits) for field, digits in
                            (("bytes_per_entry_pm", 1), ("bytes_per_entry_dram", 2),
                             ("reopen_clean_seconds", 4), ("reopen_killed_seconds", 4),
                             ("first_lookup_seconds", 4))] for name in names])


def commands(folder):
    lines = [path.read_text().strip() for path in sorted(folder.glob("*.command"))]
    return "```\n" + "\n".join(lines) + "\n```\n"


def huge_load(calibration):
    huge = calibration.get("load_huge_ns")
    return "" if huge is None else f" ({huge} ns with huge pages)"


def markdown(folder):
    one = load(folder, "uniform_1")
    machine = ", ".join((folder / "machine.txt").read_text().strip().splitlines())
    calibration = one["calibration"]
    integer_runs = [("1 thread", one), ("2 threads", load(folder, "uniform_2")),
                    ("`process`", load(folder, "process")),
                    ("sequential", load(folder, "sequential")),
                    ("clustered", load(folder, "clustered"))]
    parts = [
        f"Machine: {machine}. Calibration: write-back and fence {calibration['persist_ns']} ns, "
        f"dependent load {calibration['load_ns']} ns{huge_load(calibration)}, "
        f"compare-and-swap {calibration['cas_ns']} ns, a line from one thread to another "
        f"{calibration['transfer_ns']} ns.\n",
        f"### Integers, {one['records']:,} loaded\n", phase_table(integer_runs),
        "### Byte strings: 16-byte keys, 100-byte values\n",
        engine_table(load(folder, "strings")["runs"]),
        "### Other engines, same driver, same run (M/s)\n",
        engine_table(load(folder, "compare")["runs"]),
        "### YCSB, 2 threads\n", phase_table([("", load(folder, "ycsb"))]),
        "### Memory and opening\n", memory_table(folder),
        "### Commands\n", commands(folder)]
    return "\n".join(parts)


def write(folder):
    text = DOCUMENT.read_text()
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    DOCUMENT.write_text(f"{head}{BEGIN}\n{markdown(folder)}{END}{tail}")
    return 0


def main(arguments):
    mode = next((a for a in arguments if a.startswith("--")), "--print")
    folders = [a for a in arguments if not a.startswith("--")]
    if mode not in ("--print", "--write", "--check") or len(folders) > 1:
        print(__doc__, file=sys.stderr)
        return 2
    folder = pathlib.Path(folders[0]) if folders else ROOT / "build" / "figures"
    if not folder.is_dir():
        print(f"{folder}: not there; run scripts/figures.sh first", file=sys.stderr)
        return 2
    if mode == "--check":
        return check(folder)
    if mode == "--write":
        return write(folder)
    print(markdown(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
