#!/usr/bin/env python3
"""Measures perdure beside other libraries, and writes the tables and pictures.

  report.py            measures for twenty minutes, then writes docs/benchmarks.md, its picture,
                       and the page build/report/report.html
  report.py --full     the same with more entries: hours; its results and its page are files of
                       their own, and no document changes
  report.py --render   writes the documents and the page of the results that are there
  report.py --page     writes the page alone
  report.py --quick    a minute; tries the report itself and writes into build/report
  report.py --power    twenty minutes: what a power failure costs on a disk, beside the rate;
                       writes its part of docs/benchmarks.md and of the README
  report.py --power --quick
                       tries that in a minute, and writes into build/report

A report that was stopped goes on where it was, if the sources are the same. It does not start on a
busy machine, unless --force is given. Results are in bench/results, one JSON file a report. The
page also has the papers' claims beside the tables of docs/design/evaluation.md.

Exit status: 0 done; 1 a key was missing or unexpected in some run; 3 the machine is busy, a
program is missing, or there is no disk; 130 stopped.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from bench_load import BusyMachine, Watch  # noqa: E402
from reporting import machine, page, plan, power, results, tables  # noqa: E402

FILES = {"short": ROOT / "bench/results/report.json", "full": ROOT / "bench/results/full.json",
         "quick": ROOT / "build/report/quick.json", "power": ROOT / "bench/results/power.json",
         "power-quick": ROOT / "build/report/power.json"}
PLANS = {**plan.PLANS, "power": power.plan, "power-quick": lambda: power.plan(100)}
PAGES = ROOT / "build/report"
PICTURE = ROOT / "docs/pictures/rates.svg"
POWER_PICTURE = ROOT / "docs/pictures/power.svg"


def place(records):
    """A folder for pools: memory, if there is enough of it."""
    memory = pathlib.Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > records * 200 + 2**30
    return memory if roomy else ROOT / "build"


def place_on_disk():
    """A folder for pools on a disk, where a power failure takes something."""
    folder = ROOT / "build"
    kind = machine.output("stat", "-f", "-c", "%T", str(folder), cwd=ROOT)
    if kind in ("tmpfs", "ramfs", "nfs"):
        print(f"report: {folder} is on {kind}; --power measures a local disk", file=sys.stderr)
        sys.exit(3)
    return folder


def run_turn(group, engine, turn, kept, folder):
    command = group.command(engine)
    print(f"{group.name}/{engine}, turn {turn + 1} of {group.turns}", file=sys.stderr, flush=True)
    done = subprocess.run([*command.split(), "--path", f"{folder}/report.perdure", "--json"],
                          cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"report: exit status {done.returncode}: {command}")
    run = json.loads(done.stdout)["runs"][0]
    kept.add(f"{group.name}/{engine}", command,
             results.shortened(run, group.latencies and turn == 0))


def measure(groups, kept, force, on_disk):
    if not (ROOT / plan.BENCH).exists():
        sys.exit(f"report: {plan.BENCH} is missing; run make bench-compare first")
    watch = Watch(force)
    watch.require_idle()
    most = max(group.records for group in groups)
    with tempfile.TemporaryDirectory(dir=place_on_disk() if on_disk else place(most)) as folder:
        if not kept.begin(machine.describe(ROOT, folder)):
            kept.machine["calibration"] = machine.calibrate(ROOT, f"{folder}/calibrate.perdure")
            kept.save()
        for group in groups:
            for turn in range(group.turns):
                for engine in group.engines:
                    if len(kept.turns(f"{group.name}/{engine}")) <= turn:
                        _, others = watch.others(
                            lambda: run_turn(group, engine, turn, kept, folder))
                        kept.machine["others"] = max(kept.machine.get("others", 0),
                                                     round(others, 2))
    kept.machine["finished"] = True
    kept.save()


def put_between_markers(path, text, name="figures"):
    marked = re.compile(rf"(<!-- {name}: begin -->\n).*(<!-- {name}: end -->)", re.S)
    document = path.read_text()
    path.write_text(marked.sub(lambda m: m[1] + text + m[2], document))


def render_page(name, groups, kept):
    from reporting import papers, pictures  # needs matplotlib
    evaluation = papers.Tables((ROOT / "docs/design/evaluation.md").read_text())
    made = pictures.all_pictures(kept, groups) + pictures.of_papers(evaluation)
    PAGES.mkdir(parents=True, exist_ok=True)
    html = PAGES / f"{FILES[name].stem}.html"
    html.write_text(page.page(kept, groups, made))
    print(f"report: wrote {html.relative_to(ROOT)}", file=sys.stderr)


def render_documents(name, groups, kept):
    """Writes what stands in the documents."""
    from reporting import pictures  # needs matplotlib
    if name == "quick":
        (FILES[name].with_suffix(".md")).write_text(tables.documents(kept, groups))
    if name != "short":
        return
    put_between_markers(ROOT / "docs/benchmarks.md", tables.documents(kept, groups))
    PICTURE.parent.mkdir(exist_ok=True)
    first = groups[0]
    PICTURE.write_text(pictures.bars(kept, first, ("insert", "read", "update"), first.title))


def render_power(name, groups, kept):
    if name == "power":
        put_between_markers(ROOT / "docs/benchmarks.md", power.documents(kept, groups), "power")
        put_between_markers(ROOT / "README.md", power.readme(kept, groups), "power")
        POWER_PICTURE.write_text(power.picture(kept, groups))
        return
    FILES[name].with_suffix(".md").write_text(power.documents(kept, groups)
                                              + power.readme(kept, groups))
    FILES[name].with_suffix(".svg").write_text(power.picture(kept, groups))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="hours, with more entries")
    parser.add_argument("--quick", action="store_true", help="a minute, to try the report")
    parser.add_argument("--power", action="store_true",
                        help="what a power failure costs on a disk")
    parser.add_argument("--render", action="store_true", help="only write documents and the page")
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--force", action="store_true",
                        help="measure on a busy machine too; the figures then say little")
    options = parser.parse_args()
    name = "full" if options.full else "quick" if options.quick else "short"
    if options.power:
        name = "power-quick" if options.quick else "power"
    groups = PLANS[name]()
    kept = results.Results(FILES[name])
    try:
        if not (options.render or options.page):
            measure(groups, kept, options.force, options.power)
    except BusyMachine as busy:
        print(f"report: {busy}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("report: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    if not kept.machine.get("finished"):
        print(f"report: {FILES[name].relative_to(ROOT)} has no finished report", file=sys.stderr)
        return 3
    if options.power:
        render_power(name, groups, kept)
    else:
        render_page(name, groups, kept)
        if not options.page:
            render_documents(name, groups, kept)
    print(f"report: {kept.lost()} keys were missing or unexpected", file=sys.stderr)
    return 1 if kept.lost() else 0


if __name__ == "__main__":
    sys.exit(main())
