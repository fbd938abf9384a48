#!/usr/bin/env python3
"""Cuts the power of a virtual machine while it changes a pool, and verifies what its disk has left.

    power_cuts.py GUEST CLI CUTS [ENGINE ..]

GUEST is perdure-power-guest, CLI the command line. The disk of the machine (power_machine.py)
forgets what was not flushed (volatile_disk.py), and keeps a random part of it. After each cut the
machine boots again: the pool must be as it was at one moment, with everything that was said to be
durable (power_guest.cc). Each engine has a disk of its own with ext4, xfs and btrfs, which every
cut goes on with.

Before that, some cuts of a disk that ignores flushes must lose data: otherwise these tests could
not notice a loss.

The cuts of earlier runs with the same program count: they are in build/power/results.json.
"""

import pathlib
import statistics
import sys
import time

from engines import ENGINES
from power_machine import FILE_SYSTEMS, Disk, Results, is_damage, prepare

CANARIES = 12


def cut(disk, chance, acked):
    """Boots, verifies, works, cuts. `acked`: what the guest before had acknowledged. Returns what
    is wrong, figures, and what this guest had acknowledged."""
    machine = disk.start(chance)
    figures, wrong = {}, None
    if not machine.mount(disk.kind):
        wrong = "the file system cannot be mounted"
    elif not machine.start_guest(disk.engine, chance.getrandbits(32)):
        wrong = machine.wrong or f"the pool is not opened: {machine.last_words()}"
    else:
        wrong = disk.judge(machine.found)
        if acked:
            figures["lost_ms"] = lost_ms(acked, machine.found)
            # The last ones were not reported.
            figures["lost_operations"] = max(sum(acked[-1][1]) - sum(machine.found), 0)
        machine.wait_for(lambda: machine.acked)
        time.sleep(chance.uniform(0.05, 2.5))
        if machine.failed or machine.ended is not None:
            wrong = wrong or f"the guest has stopped: {machine.last_words()}"
    figures["undecided"], figures["changed"] = machine.cut(chance.random())
    figures["flushes"] = machine.disk.flushes
    disk.learn(machine)
    return wrong or machine.wrong, figures, machine.acked


def lost_ms(acked, found):
    """From the first report of an operation that is gone to the last report."""
    gone = [at for at, counts in acked if any(a > b for a, b in zip(counts, found))]
    return acked[-1][0] - gone[0] if gone else 0


def canary(kernel, chance):
    for _ in range(CANARIES):
        disk, acked = Disk(kernel, "phast", "ext4", ignores_flushes=True), []
        for _ in range(3):
            wrong, _, acked = cut(disk, chance, acked)
            if wrong is not None and not is_damage(wrong) and "mounted" not in wrong:
                print(f"a disk that ignores flushes loses data: {wrong}", flush=True)
                return True
            if wrong is not None:  # of the file system
                break
    print(f"{CANARIES} disks that ignore flushes have lost nothing: these tests notice no loss")
    return False


def report(cuts):
    for kind in FILE_SYSTEMS:
        print(f"{kind}: {sum(one['file_system'] == kind for one in cuts)} cuts")
    lost = sorted(one["lost_ms"] for one in cuts if "lost_ms" in one) or [0]
    undecided = sorted(one["undecided"] for one in cuts)
    print(f"{len(cuts)} cuts, none wrong. After {len(lost)} of them: lost at most {lost[-1]} ms, "
          f"median {statistics.median(lost)} ms; blocks that were not flushed: median "
          f"{statistics.median(undecided)}, at most {undecided[-1]}")


def main():
    programs = [pathlib.Path(name).resolve() for name in sys.argv[1:3]]
    wanted, engines = int(sys.argv[3]), sys.argv[4:] or ENGINES
    ready = prepare(*programs)
    if ready is None:
        return 1
    kernel, chance = ready
    results = Results("cuts", *programs)
    if not results.list and not canary(kernel, chance):
        return 1
    disks, acked = {}, {}
    while len(results.list) < wanted:
        turn = len(results.list) // 5
        place = engines[turn // 3 % len(engines)], FILE_SYSTEMS[turn % 3]
        if place not in disks:
            disks[place] = Disk(kernel, *place)
        wrong, figures, acked[place] = cut(disks[place], chance, acked.get(place))
        if wrong is not None:
            print(f"cut {len(results.list)}, {' '.join(place)}: {wrong}; the disk is "
                  f"{disks[place].path}")
            return 1
        results.add({"engine": place[0], "file_system": place[1], **figures})
        if len(results.list) % 10 == 0:
            print(f"{len(results.list)} cuts", flush=True)
    report(results.list)
    return 0


if __name__ == "__main__":
    sys.exit(main())
