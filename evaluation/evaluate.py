#!/usr/bin/env python3
"""Runs the papers' evaluations, and writes their tables into docs/design/evaluation.md.

  evaluation/evaluate.py [NAME ...]

A name is ordered, hash, growing, skiplist or versions; without one all run.

The exit status is that of a program that failed.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from reporting import machine  # noqa: E402

PROGRAMS = ("ordered", "hash", "growing", "skiplist", "versions")
PAGE = ROOT / "docs/design/evaluation.md"


def main():
    """The programs print their tables; each goes between the markers of its name."""
    if unknown := set(sys.argv[1:]) - set(PROGRAMS):
        print(f"evaluation: no program {', '.join(sorted(unknown))}: one of "
              f"{', '.join(PROGRAMS)}", file=sys.stderr)
        return 2
    where = machine.place(machine.describe(ROOT, "/dev/shm"))  # before the page changes
    for name in sys.argv[1:] or PROGRAMS:
        command = f"build/release/perdure-paper-{name}"
        print(f"$ {command}", file=sys.stderr)
        done = subprocess.run(command.split(), cwd=ROOT, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            print(f"evaluation: exit status {done.returncode}", file=sys.stderr)
            return done.returncode
        text = f"```sh\n{command}\n```\n\nMachine: {where}.\n\n{done.stdout}"
        marked = re.compile(rf"(<!-- {name}: begin -->\n).*(<!-- {name}: end -->)", re.S)
        PAGE.write_text(marked.sub(lambda m: m[1] + text + m[2], PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
