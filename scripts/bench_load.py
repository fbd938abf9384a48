"""How much of the machine other processes use, for scripts/bench_check.py: what /proc/stat says the
processors did, less what this process and its children did."""

import os
import time

TICKS = os.sysconf("SC_CLK_TCK")
LOOK_SECONDS = 1.5
IDLE_LOOKS = 4  # of which one must find the machine idle
# Processors that others may use: the kernel's own threads take some hundredths.
MOST_BEFORE = 0.15
MOST_BESIDE = 0.25
MOST_REPEATED = 10  # turns, before the machine counts as busy


class BusyMachine(Exception):
    """Others use the machine, so that what would be measured decides nothing."""

    def __init__(self, others):
        super().__init__(
            f"the machine is busy: others use {others:.2f} processors. Stop what else runs (top "
            "shows it) and start again; --force measures all the same, and decides nothing")


def busy_seconds(text):
    """Processor seconds that were not idle, of all processors, from the text of /proc/stat."""
    fields = [int(field) for field in text.split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    # Guest time is part of user and nice. Stolen time is another virtual machine's.
    return (user + nice + system + irq + softirq + steal) / TICKS


def read_busy():
    with open("/proc/stat", encoding="ascii") as file:
        return busy_seconds(file.read())


def own_seconds():
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Watch:
    def __init__(self, force, busy=read_busy, own=own_seconds, clock=time.monotonic,
                 sleep=time.sleep):
        self.force = force
        self.busy, self.own, self.clock, self.sleep = busy, own, clock, sleep
        self.repeated = 0
        self.shares = []

    def others(self, action):
        """(what action() returns, processors that others used meanwhile)."""
        begin, busy, own = self.clock(), self.busy(), self.own()
        result = action()
        elapsed = max(self.clock() - begin, 1e-3)
        used = (self.busy() - busy) - (self.own() - own)
        return result, max(0.0, used / elapsed)

    def require_idle(self):
        """Looks for a second or two, a few times if need be."""
        for _ in range(1 if self.force else IDLE_LOOKS):
            _, others = self.others(lambda: self.sleep(LOOK_SECONDS))
            if self.force or others <= MOST_BEFORE:
                return
        raise BusyMachine(others)

    def undisturbed(self, action):
        """What action() returns, from a time when others left the machine alone."""
        while True:
            result, others = self.others(action)
            if self.force or others <= MOST_BESIDE:
                self.shares.append(others)
                return result
            self.repeated += 1
            if self.repeated > MOST_REPEATED:
                raise BusyMachine(others)
            self.require_idle()

    def worst(self):
        return max(self.shares, default=0.0)
