"""The processor time that other processes use, for scripts/bench_check.py: the busy time of
/proc/stat, less the time of this process and its children."""

import os
import time

TICKS = os.sysconf("SC_CLK_TCK")
LOOK_SECONDS = 1.5
IDLE_LOOKS = 4  # one of them must find the machine idle
# The number of processors that other processes may use. Threads of the kernel use some hundredths.
MOST_BEFORE = 0.15
MOST_BESIDE = 0.25
MOST_REPEATED = 10  # turns, before the machine counts as busy


class BusyMachine(Exception):
    """Other processes use the machine, so a measurement would decide nothing."""

    def __init__(self, others):
        super().__init__(
            f"the machine is busy: other processes use {others:.2f} processors. Stop them (top "
            "lists them) and start again; --force measures anyway, and decides nothing")


def busy_seconds(text):
    """Returns the busy seconds of all processors, from the text of /proc/stat."""
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
        """Returns (the result of action(), the processors that others used meanwhile)."""
        begin, busy, own = self.clock(), self.busy(), self.own()
        result = action()
        elapsed = max(self.clock() - begin, 1e-3)
        used = (self.busy() - busy) - (self.own() - own)
        return result, max(0.0, used / elapsed)

    def require_idle(self):
        """Measures for one or two seconds, several times if necessary. Raises BusyMachine."""
        for _ in range(1 if self.force else IDLE_LOOKS):
            _, others = self.others(lambda: self.sleep(LOOK_SECONDS))
            if self.force or others <= MOST_BEFORE:
                return
        raise BusyMachine(others)

    def undisturbed(self, action):
        """Returns the result of action() from a time when others did not use the machine."""
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
