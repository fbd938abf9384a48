#!/usr/bin/env python3
"""Measures the figures of docs/benchmarks.md and of the README, and writes their tables.

  benchmarks.py [--records N]   runs the benchmarks: 10,000,000 by default, 16 GB, half an hour
  benchmarks.py --continue      runs what a run that ended early has left out
  benchmarks.py --tables        prints the tables of the last run
  benchmarks.py --write         puts them between the markers of both documents
  benchmarks.py --papers        runs the papers' evaluations: docs/design/evaluation.md

The results stay in build/benchmarks, one JSON object a run. Run it on an idle machine. The exit
status is 1 if a key was missing in any run.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "benchmarks"
PERDURE = "build/release/perdure"
COMPARE = "build/compare/perdure-compare"
ENGINES = ("phast", "level", "clevel", "pskiplist", "as", "ascs")
ORDERED = ("phast", "pskiplist", "as", "ascs")
HASHES = tuple(engine for engine in ENGINES if engine not in ORDERED)
PHASES = "load,read,read_batch,read_missing,update,{scan}delete"


def engine_command(engine, threads, records):
    phases = PHASES.format(scan="scan," if engine in ORDERED else "")
    return (f"{PERDURE} bench --engine {engine} --workload {phases} --records {records} "
            f"--threads {threads} --touch 8G --calibrate --durability emulated")


def commands(records):
    """name -> command, without --path and --json."""
    few = max(records // 10, 1)
    runs = {f"{engine}_{threads}": engine_command(engine, threads, records)
            for threads in (1, 2) for engine in ENGINES}
    compare = (f"{COMPARE} --records {few} --durability emulated --workload "
               "load,insert,read,update,")
    runs["ordered"] = f"{compare}scan,delete --engines {','.join(ORDERED)},std_map,lmdb,rocksdb"
    runs["hashes"] = f"{compare}delete --engines {','.join(HASHES)},libcuckoo,tbb"
    runs["strings"] = (f"{compare}delete --key string:16 --value string:100 "
                       f"--engines {','.join(ENGINES)},lmdb,rocksdb")
    runs["ycsb"] = (f"{PERDURE} bench --engine phast --workload load,ycsb_a,ycsb_b,ycsb_c,ycsb_f,"
                    f"ycsb_d,ycsb_e --distribution zipfian --records {records} --threads 2 "
                    "--touch 8G --durability emulated")
    return runs


def output(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def machine(folder):
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = int(re.search(r"MemTotal:\s*(\d+)",
                           pathlib.Path("/proc/meminfo").read_text())[1]) / 2**20
    return [cpu[1] if cpu else platform.machine(), f"{os.cpu_count()} processors",
            f"{memory:.0f} GiB", f"Linux {platform.release()}",
            f"pools on {output('stat', '-f', '-c', '%T', folder)}",
            "load average {:.2f}".format(os.getloadavg()[0]),
            f"commit {output('git', 'rev-parse', '--short', 'HEAD')}",
            str(datetime.datetime.now(datetime.timezone.utc).date())]


def measure(records, continues):
    for program, target in ((PERDURE, "build"), (COMPARE, "bench-compare")):
        if not (ROOT / program).exists():
            sys.exit(f"benchmarks: {program} is missing; run make {target} first")
    if not continues:
        shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    memory = pathlib.Path("/dev/shm")
    enough = memory.is_dir() and shutil.disk_usage(memory).free > records * 200 + 2**30
    with tempfile.TemporaryDirectory(dir=memory if enough else RESULTS) as folder:
        if not (continues and (RESULTS / "machine").exists()):
            (RESULTS / "machine").write_text("\n".join(machine(folder)))
        for name, command in commands(records).items():
            if continues and (RESULTS / f"{name}.json").exists():
                continue
            print(f"$ {command}", file=sys.stderr)
            done = subprocess.run([*command.split(), "--path", f"{folder}/bench.perdure", "--json"],
                                  cwd=ROOT, stdout=subprocess.PIPE, text=True)
            if done.returncode > 1:
                sys.exit(f"benchmarks: exit status {done.returncode}")
            (RESULTS / f"{name}.command").write_text(command)
            (RESULTS / f"{name}.json").write_text(done.stdout)
    lost = sum(run.get("missing", 0) + run.get("unexpected", 0)
               for path in RESULTS.glob("*.json") for run in runs_of(path.stem))
    print(f"benchmarks: {lost} keys were missing or unexpected", file=sys.stderr)
    return 1 if lost else 0


# --- tables ---

def runs_of(name):
    data = json.loads((RESULTS / f"{name}.json").read_text())
    return data.get("runs", [data])


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def phases_of(run):
    return {phase["name"]: phase for phase in run["phases"]}


def number(value, digits=2):
    return "" if value is None else f"{value:.{digits}f}"


def speeds(runs, names):
    rows = []
    for run in runs:
        phases = phases_of(run)
        rows.append([f"`{run['engine']}`",
                     *(number(phases[n]["mops"]) if n in phases else "" for n in names)])
    return table(["M operations/s", *(n.replace("_", " ") for n in names)], rows)


def engine_runs(threads):
    return [runs_of(f"{engine}_{threads}")[0] for engine in ENGINES]


def costs():
    def pair(phase):
        return f"{phase['flushes_per_op']:.2f}, {phase['fences_per_op']:.2f}"
    rows = [[f"`{run['engine']}`", *(pair(phases_of(run)[n]) for n in ("load", "update", "delete")),
             number(run["bytes_per_entry_pm"], 1), number(run["bytes_per_entry_dram"], 1),
             number(run["reopen_clean_seconds"] * 1e3, 1),
             number(run["first_lookup_seconds"] * 1e3, 1)] for run in engine_runs(1)]
    return table(["write-backs, fences", "load", "update", "delete", "pool bytes/entry",
                  "DRAM bytes/entry", "open after close, ms", "first read after kill, ms"], rows)


def latencies():
    rows = [[f"`{run['engine']}`", *(str(phases_of(run)[n][p]) for n in ("load", "read", "update")
                                     for p in ("p50_ns", "p99_ns", "p999_ns"))]
            for run in engine_runs(1)]
    return table(["ns", *(f"{n} p{p}" for n in ("load", "read", "update")
                          for p in ("50", "99", "99.9"))], rows)


def libraries(*names):
    runs = [run for name in names for run in runs_of(name)]
    names = [phase["name"] for phase in max(runs, key=lambda run: len(run["phases"]))["phases"]]
    return speeds(runs, names)


def calibration():
    c = runs_of("phast_1")[0]["calibration"]
    huge = c["load_huge_ns"]
    return (f"write-back and fence {c['persist_ns']} ns; dependent load {c['load_ns']} ns"
            + ("" if huge is None else f", with huge pages {huge} ns")
            + f"; a cache line to another thread {c['transfer_ns']} ns")


def command(name):
    return "```sh\n" + (RESULTS / f"{name}.command").read_text().strip() + "\n```\n"


def place():
    return "Machine: " + ", ".join((RESULTS / "machine").read_text().splitlines())


def tables():
    records = phases_of(runs_of("phast_1")[0])["load"]["operations"]
    names = ["load", "read", "read_batch", "read_missing", "update", "delete", "scan"]
    return "\n".join([
        f"{place()}. {calibration().capitalize()}.\n",
        f"### The engines: {records:,} integers, one thread\n", command("phast_1"),
        "`--engine` and `scan` (engines that keep an order) differ by row.\n",
        speeds(engine_runs(1), names),
        "### The same with two threads\n", speeds(engine_runs(2), names),
        "### Latency, one thread\n", latencies(),
        "### Costs, memory, opening\n", costs(),
        "### Beside other libraries: integers\n", command("ordered"), command("hashes"),
        libraries("ordered", "hashes"),
        "### Beside other libraries: keys of 16 bytes, values of 100\n", command("strings"),
        libraries("strings"),
        "### YCSB, two threads\n", command("ycsb"),
        speeds(runs_of("ycsb"), [phase["name"] for phase in runs_of("ycsb")[0]["phases"]])])


def readme():
    return "\n".join([libraries("ordered", "hashes"), command("ordered"), command("hashes"),
                      f"{place()}. {calibration().capitalize()}.\n"])


def write():
    for path, text in (("docs/benchmarks.md", tables()), ("README.md", readme())):
        document = ROOT / path
        marked = re.compile(r"(<!-- figures: begin -->\n).*(<!-- figures: end -->)", re.S)
        document.write_text(marked.sub(lambda m: m[1] + text + m[2], document.read_text()))


def papers():
    """The programs print their tables; each goes between the markers of its name."""
    page = ROOT / "docs" / "design" / "evaluation.md"
    for name in ("hash", "skiplist", "versions"):
        command = f"build/release/perdure-paper-{name}"
        print(f"$ {command}", file=sys.stderr)
        done = subprocess.run(command.split(), cwd=ROOT, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"benchmarks: exit status {done.returncode}")
        where = ", ".join(machine(ROOT))
        text = f"```sh\n{command}\n```\n\nMachine: {where}.\n\n{done.stdout}"
        marked = re.compile(rf"(<!-- {name}: begin -->\n).*(<!-- {name}: end -->)", re.S)
        page.write_text(marked.sub(lambda m: m[1] + text + m[2], page.read_text()))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--continue", dest="continues", action="store_true")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--papers", action="store_true")
    options = parser.parse_args()
    if options.papers:
        return papers()
    if not (options.tables or options.write):
        return measure(options.records, options.continues)
    if not (RESULTS / "ycsb.json").exists():
        sys.exit("benchmarks: there is no finished run; run scripts/benchmarks.py first")
    if options.tables:
        print(tables())
    else:
        write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
