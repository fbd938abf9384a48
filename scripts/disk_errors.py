#!/usr/bin/env python3
"""Lets the disk of a virtual machine fail under a pool, and verifies what is left.

    disk_errors.py GUEST CLI RUNS [--only KIND[,KIND]] [--file-systems NAME[,NAME]]
                   [--engines NAME[,NAME]]

GUEST is perdure-power-guest, CLI the command line. The machine is that of power_cuts.py. In each
run the disk fails while the guest changes a pool, or before it opens it:

    errors   requests fail at random, for a while
    failing  the same until the guest has ended
    gone     all requests fail; then the disk comes back, and the file system is mounted again
    full     the file system is full, and is emptied later
    thin     writes to blocks that have never been written fail, as if the disk below were full

The guest is told to close the pool, is killed, or the power is cut. Then the disk works again. The
file system stays mounted, or is mounted anew, and the pool is opened:

- Nothing is missing that sync() or close() had returned ok for, and the pool is as at one moment.
- If the open is refused with `live_missing` or `untrusted`, `perdure check FILE --accept` works,
  which the message names, and then the same holds. No other refusal is allowed on a file system
  that was mounted anew.
- Then the pool goes on, and can be closed.

A file system that cannot be mounted or unmounted, is damaged (e2fsck, xfs_repair, btrfs check) or
has emptied its journal, and a kernel that stops, are no errors of the library. They are counted
apart, and the run goes on with a new disk. So are runs in which no request had failed.

Before that, a guest that hides failures of fsync(2) from the library, and one that hides those of
write-backs, must lose something: otherwise these tests could not notice a loss.

What is wrong is in build/power/wrong-N: what the machine said and its disk. The runs of earlier
calls with the same programs count: they are in build/power/results.json.
"""

import argparse
import collections
import pathlib
import subprocess
import sys
import time

from engines import ENGINES
from power_machine import FILE_SYSTEMS, RESULTS, WORK, Disk, Results, is_damage, prepare
from volatile_disk import Fault

KINDS = ("errors", "failing", "gone", "full", "thin")
FAILS = (("read", "write", "flush"), ("write", "flush"), ("write",), ("flush",), ("read",))
ENDS = ("TERM", "TERM", "KILL", "KILL", "cut")
ACCEPTED = ("live_missing", "untrusted")
RUNS_OF_BOOT = 8
CANARY_RUNS = 60
FILL = ("for n in 512M 128M 32M 8M 2M 256K; do for i in 1 2 3 4; do "
        "fallocate -l $n /mnt/fill.$n.$i 2>/dev/null || break; done; done")
CHECKS = {"ext4": ("e2fsck", "-fn"), "xfs": ("xfs_repair", "-n"), "btrfs": ("btrfs", "check")}
EMPTY = "rm -f /mnt/fill*; sync"


class Wrong(Exception):
    """A promise is broken."""


class Died(Wrong):
    """The guest was ended by a signal. No damage of a file system excuses that."""


class Foreign(Exception):
    """The kernel or the file system cannot go on."""


class Tester:
    """A disk, the machine that has it, and the runs with it."""

    def __init__(self, kernel, engine, kind, chance, *options):
        self.disk, self.chance, self.options = Disk(kernel, engine, kind), chance, options
        self.machine = None
        self.boot()

    def boot(self):
        self.machine = self.disk.start(self.chance)
        self.mount()

    def mount(self):
        if not self.machine.mount(self.disk.kind):
            self.stopped()
            raise Foreign("the file system cannot be mounted")

    def stopped(self):
        if self.machine.is_over:
            raise Foreign(f"the kernel has stopped: {self.machine.last_words()}")

    def end(self):
        if self.machine is not None:
            self.disk.learn(self.machine)
            self.machine.cut(self.chance.random())
            self.machine = None

    # --- the pool ---

    def open(self):
        """Returns whether the pool is open; then what it has is right."""
        machine = self.machine
        is_open = machine.start_guest(self.disk.engine, self.chance.getrandbits(32), *self.options)
        self.look()
        if not is_open and machine.ended is None:
            self.hangs("open")
        if machine.ended is not None and machine.ended != 0:
            raise Died(f"the guest has ended with status {machine.ended}")
        if is_open:
            missing = self.disk.judge(machine.found)
            if missing:
                raise Wrong(missing)
        return is_open

    def look(self):
        self.disk.learn(self.machine)
        if self.machine.wrong is not None:
            raise Wrong(self.machine.wrong)
        self.stopped()

    def hangs(self, what):
        """A thread that waits in the kernel for the disk is no error of the library."""
        self.machine.do("for t in /proc/$(pidof perdure-power-guest)/task/*; do "
                        "grep State $t/status; cat $t/wchan; echo; done")
        if self.machine.do("true", 5) is None or "D (disk sleep)" in self.machine.last_words(40):
            raise Foreign(f"the kernel hangs in {what}")
        raise Wrong(f"the guest hangs in {what}: {self.machine.last_words(20)}")

    def stop(self, signal):
        """Returns whether the pool was closed."""
        machine = self.machine
        if machine.ended is None and not machine.stop_guest(signal):
            self.look()
            self.hangs("close")
        self.look()
        if machine.ended not in ((0, 137) if signal == "KILL" else (0,)):
            raise Died(f"the guest has ended with status {machine.ended}")
        return machine.closed == "ok"

    def accept(self):
        """Does what the message of a refusal says. Returns what is wrong, or None."""
        refusal = self.machine.refused or "nothing"
        if not refusal.startswith(ACCEPTED) or "--accept" not in refusal:
            return f"the pool is not opened: {refusal}"
        if self.machine.do("perdure check /mnt/pool --accept") != 0:
            return f"the pool is not accepted: {self.machine.last_words(1)}"
        return None

    # --- a run ---

    def begin(self, run):
        self.machine.disk.fault = run.fault
        if run.kind == "full":
            self.machine.do(FILL)

    def mend(self, run):
        self.machine.disk.fault = None
        if run.kind == "full":
            self.machine.do(EMPTY)

    def work_with(self, run):
        """Ends without a guest, but the disk can still fail."""
        if run.begins == "open":
            self.begin(run)
        if self.open():
            self.nap(0.05, 0.6)
            if run.begins == "work":
                self.begin(run)
            self.nap(0.05, 1.2)
            if run.kind == "errors":
                self.mend(run)
                self.nap(0.1, 0.8)
        elif run.begins != "open":
            raise Wrong(f"the pool is not opened: {self.machine.last_words()}")
        run.note(self.machine)
        if run.end == "cut":
            self.end()
        else:
            self.stop(run.end)
            run.note(self.machine)
            if run.opens_again:
                self.open()
                self.stop("KILL")
                run.note(self.machine)

    def verify(self, run):
        """The disk works. Sees to it that the pool goes on."""
        is_new = run.end == "cut"
        if is_new:
            self.boot()
        self.mend(run)
        for _ in range(3):
            if not is_new and (run.kind == "gone" or self.chance.random() < 0.5):
                self.mount_again()
                is_new = True
            if self.serves(run, is_new):
                return
            if is_new:
                raise Wrong(f"the pool does not go on: {self.machine.last_words()}")
            self.mount_again()
            is_new = True
        raise Wrong(f"the pool does not go on: {self.machine.last_words()}")

    def serves(self, run, is_new):
        """Whether the pool opens, works and closes. On a file system that was mounted anew an open
        that fails must say how to go on."""
        if not self.open():
            run.note(self.machine)
            refused = self.machine.refused
            failure = self.accept()
            self.look()
            if failure is not None and is_new:
                raise (Foreign if is_damage(failure) else Wrong)(failure)
            if failure is not None:
                return False
            run.accepted = refused.split()[0]
            if not self.open():
                run.note(self.machine)
                return False
        self.nap(0.05, 0.3)
        return self.stop("TERM")

    def mount_again(self):
        if self.machine.do("umount /mnt") != 0:
            self.stopped()
            raise Foreign(f"the file system cannot be unmounted: {self.machine.last_words(3)}")
        self.mount()
        self.machine.do(EMPTY)

    def blames_file_system(self):
        """After a run that is wrong: whether the file system itself is damaged. Adds to what is
        known."""
        machine = self.machine
        if machine is None or machine.is_over:
            return False
        machine.wrong = None
        machine.do("killall -KILL perdure-power-guest; ls -la /mnt /mnt/pool-log; df /mnt")
        machine.do("dmesg | tail -n 200")
        is_emptied = has_emptied_journal(machine.lines)
        return machine.do("umount /mnt") == 0 and (is_emptied or is_damaged_disk(self.disk))

    def nap(self, least, longest):
        self.machine.wait_for(lambda: self.machine.ended is not None,
                              self.chance.uniform(least, longest))


def has_emptied_journal(lines):
    """Of what the kernel has said: whether the last mount did. After a write-back of metadata that
    failed, ext4 of Linux 6.1 does, and so loses what fsync(2) had returned ok for."""
    last = 0
    for at, line in enumerate(lines):
        if "unmounting filesystem" in line:
            last = at
    return any("Clearing recovery information on journal" in line for line in lines[last:])


def is_damaged_disk(disk):
    """Of a file system that is not mounted."""
    done = subprocess.run([*CHECKS[disk.kind], disk.path], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    return b"? no" in done.stdout if disk.kind == "ext4" else done.returncode != 0


class Run:
    """What is drawn for one run, and what is noted."""

    def __init__(self, kind, chance):
        self.kind = kind
        self.begins = chance.choice(("open", "work", "work"))
        self.end = chance.choice(ENDS)
        self.opens_again = chance.random() < 0.3
        self.fault = None
        if kind in ("errors", "failing"):
            self.fault = Fault("errors", chance.random(), chance.choice(FAILS),
                               chance.choice((0.05, 0.3, 0.8)))
        elif kind != "full":
            self.fault = Fault(kind, chance.random())
        self.failed, self.accepted = set(), None

    def note(self, machine):
        self.failed.update(machine.failed)
        for call in ("refused", "closed"):
            said = getattr(machine, call)
            if said and said != "ok":
                self.failed.add(f"{call} {said.split()[0]}")

    def outcome(self):
        if self.accepted:
            return "accepted"
        if self.fault and not any(self.fault.counts.values()):
            return "untouched"
        return "right"

    def figures(self, disk, outcome, began):
        return {"kind": self.kind, "engine": disk.engine, "file_system": disk.kind,
                "begins": self.begins, "end": self.end, "outcome": outcome,
                "accepted": self.accepted, "failed": sorted(self.failed),
                "requests": self.fault.counts if self.fault else None,
                "seconds": round(time.monotonic() - began, 2)}


def try_run(tester, run):
    """Returns a word for the outcome, and what has happened."""
    try:
        tester.work_with(run)
        tester.verify(run)
        return run.outcome(), None
    except Foreign as what:
        return "foreign", str(what)
    except Wrong as what:
        if tester.blames_file_system() and not isinstance(what, Died):
            return "foreign", f"{tester.disk.kind} is damaged: {what}"
        return "WRONG", str(what)


def keep(tester, run, what):
    """Returns the folder with all that is known about a run that is wrong."""
    number = 1
    while (WORK / f"wrong-{number}").exists():
        number += 1
    folder = WORK / f"wrong-{number}"
    folder.mkdir()
    lines = [what, str(vars(run)), str(run.fault and vars(run.fault)),
             f"durable {tester.disk.durable} lagged {tester.disk.lagged}"]
    if tester.machine is not None:
        lines += tester.machine.lines
    (folder / "log").write_text("\n".join(lines) + "\n")
    tester.end()
    subprocess.run(["cp", "--sparse=always", tester.disk.path, folder / "disk"], check=True)
    return folder


class Runs:
    """All runs. A disk that cannot go on is made anew."""

    def __init__(self, kernel, chance, *options):
        self.kernel, self.chance, self.options = kernel, chance, options
        self.tester, self.place, self.left = None, None, 0

    def next(self, place, kind):
        """Returns the tester, the run, its outcome and what has happened."""
        began = time.monotonic()
        if self.left == 0 or self.place != place:
            self.give_up()
            self.place, self.left = place, RUNS_OF_BOOT
            self.tester = Tester(self.kernel, *place, self.chance, *self.options)
        self.left -= 1
        run = Run(kind, self.chance)
        outcome, what = try_run(self.tester, run)
        return self.tester, run.figures(self.tester.disk, outcome, began), run, what

    def give_up(self):
        if self.tester is not None:
            self.tester.end()
        self.tester, self.left = None, 0


def canary(kernel, chance, hide, kinds):
    """A planted error must be noticed."""
    runs = Runs(kernel, chance, hide)
    for number in range(CANARY_RUNS):
        place = "phast", FILE_SYSTEMS[number // RUNS_OF_BOOT % 3]
        _, figures, _, what = runs.next(place, kinds[number % len(kinds)])
        if figures["outcome"] == "WRONG":
            print(f"{hide} is noticed in run {number + 1}, {figures['kind']} on {place[1]}: {what}",
                  flush=True)
            runs.give_up()
            return True
        if figures["outcome"] == "foreign":
            runs.give_up()
    runs.give_up()
    print(f"{hide} is not noticed in {CANARY_RUNS} runs: these tests notice no loss")
    return False


def report(runs):
    """Prints a table. Returns whether nothing is wrong."""
    words = ("right", "accepted", "untouched", "foreign", "WRONG")
    print(f"{'':16}" + "".join(f"{word:>11}" for word in words))
    counts = collections.Counter((run["file_system"], run["kind"], run["outcome"]) for run in runs)
    for place in FILE_SYSTEMS:
        for kind in KINDS:
            row = [counts[place, kind, word] for word in words]
            if any(row):
                print(f"{place:8}{kind:8}" + "".join(f"{number:11}" for number in row))
    codes = collections.Counter(code for run in runs for code in run["failed"])
    print("runs with a call that failed: "
          + ", ".join(f"{code} {number}" for code, number in codes.most_common()))
    total = collections.Counter(run["outcome"] for run in runs)
    seconds = sum(run["seconds"] for run in runs) / max(len(runs), 1)
    print(f"{len(runs)} runs of {seconds:.1f} s: "
          + ", ".join(f"{word} {total[word]}" for word in words))
    return total["WRONG"] == 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("guest", type=pathlib.Path)
    parser.add_argument("cli", type=pathlib.Path)
    parser.add_argument("runs", type=int)
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--file-systems", default=",".join(FILE_SYSTEMS))
    parser.add_argument("--engines", default=",".join(ENGINES))
    return parser.parse_args()


def main():
    arguments = parse()
    kinds, places, engines = (text.split(",") for text in (
        arguments.only, arguments.file_systems, arguments.engines))
    programs = arguments.guest.resolve(), arguments.cli.resolve()
    ready = prepare(*programs)
    if ready is None:
        return 1
    kernel, chance = ready
    results = Results("errors", *programs)
    if not results.list and not (canary(kernel, chance, "hide=sync", ("errors", "failing", "gone"))
                                 and canary(kernel, chance, "hide=write-back", ("errors", "thin"))):
        return 1
    runs = Runs(kernel, chance)
    while len(results.list) < arguments.runs:
        number = len(results.list)
        turn = number // RUNS_OF_BOOT
        place = engines[turn // len(places) % len(engines)], places[turn % len(places)]
        tester, figures, run, what = runs.next(place, kinds[number % len(kinds)])
        if figures["outcome"] == "WRONG":
            print(f"run {number}, {' '.join(place)}, {figures['kind']}: {what}; see "
                  f"{keep(tester, run, what)}", flush=True)
        elif figures["outcome"] == "foreign":
            print(f"run {number}, {' '.join(place)}, {figures['kind']}: {what}", flush=True)
        if figures["outcome"] in ("WRONG", "foreign"):
            runs.give_up()
        results.add(figures)
        if len(results.list) % 10 == 0:
            print(f"{len(results.list)} runs", flush=True)
    runs.give_up()
    print(f"the results are in {RESULTS}")
    return 0 if report(results.list) else 1


if __name__ == "__main__":
    sys.exit(main())
