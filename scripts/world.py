#!/usr/bin/env python3
"""Puts pools into a world that misbehaves, and verifies what is left of them.

    world.py CLI OWNER [--only NAME[,NAME]] [--file-systems KIND[,KIND]] [--list]

CLI is the command line, OWNER is perdure-world-owner. Disks are full, go away and come back, or are
cloned; files are replaced under an open pool; containers have a boot id of their own; another user
prepares and races the files of a pool. What sync() has returned for must be there afterwards, or
the error must have been told. The disks are files in main memory, on loop devices.

Prints one line for each case: name, file system, outcome. What this machine lacks is skipped, and
said so. Needs root. Exit status 1: a case failed, or all were skipped.

A restart of the machine cannot be made here, nor be faked so that the library takes it for one: its
clocks go on. scripts/power_cuts.py does that.
"""

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import world_cases
from world_disks import Disk, Skip
from world_owner import Owner, World, Wrong

LONGEST = 600  # characters of an outcome
INSIDE = "PERDURE_WORLD_NAMESPACE"  # of mounts


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("cli", type=pathlib.Path)
    parser.add_argument("owner", type=pathlib.Path)
    parser.add_argument("--only", default="", help="names of cases, separated by commas")
    parser.add_argument("--file-systems", default=",".join(world_cases.ALL))
    parser.add_argument("--list", action="store_true", help="only print the cases")
    arguments = parser.parse_args()
    arguments.only = set(filter(None, arguments.only.split(",")))
    unknown = arguments.only - {name for name, *_ in world_cases.CASES}
    if unknown:
        parser.error(f"there is no case {', '.join(sorted(unknown))}; see --list")
    return arguments


def chosen(arguments):
    kinds = arguments.file_systems.split(",")
    for name, case, wanted, room in world_cases.CASES:
        if arguments.only and name not in arguments.only:
            continue
        for kind in wanted:
            if kind in kinds:
                yield name, case, kind, room


def run_case(arguments, case, kind, room):
    """Returns a word for the result, and the outcome."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-world."))
        os.chmod(folder, 0o755)  # another user may come by
        try:
            disk = Disk(stack, folder, kind, room)
            world = World(arguments.cli.resolve(), folder)
            stack.callback(world.end)
            return "right", case(world, disk)
        except Skip as why:
            return "SKIPPED", str(why)
        except (Wrong, OSError, subprocess.SubprocessError) as what:
            return "WRONG", str(what).replace(folder + "/", "")[:LONGEST]


def enter_namespace():
    """So that no mount is left behind."""
    if INSIDE in os.environ:
        return
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable,
                          *sys.argv])


def stop(_number, _frame):
    raise KeyboardInterrupt


def main():
    arguments = parse()
    if arguments.list:
        for name, _, kinds, _ in world_cases.CASES:
            print(f"{name:26} {' '.join(kinds)}")
        return 0
    if os.geteuid() != 0:
        sys.exit("world: mounting needs root; nothing was tested")
    enter_namespace()
    signal.signal(signal.SIGTERM, stop)
    Owner.program = arguments.owner.resolve()
    results = []
    for name, case, kind, room in chosen(arguments):
        began = time.monotonic()
        result, outcome = run_case(arguments, case, kind, room)
        results.append(result)
        print(f"{result:8} {name:26} {kind:6} {time.monotonic() - began:5.1f} s  "
              + " ".join(outcome.split()), flush=True)
    counts = {result: results.count(result) for result in ("right", "WRONG", "SKIPPED")}
    print(", ".join(f"{result}: {number}" for result, number in counts.items()))
    return 0 if counts["WRONG"] == 0 and counts["right"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
