#!/usr/bin/env python3
"""Holds the tests to their budgets of processor time.

    budgets.py check PRESET     compare the last run of a preset with tests/budgets/seconds.txt
    budgets.py write PRESET     put the last run into that file

tests/timed.sh writes the seconds of each test to build/PRESET/test_times.txt. A component that
takes more than 1.5 times its budget, and 2 seconds more, fails. A slower machine gets more time, a
faster one no less: by the time of a fixed piece of work, or by the median component, whichever
took longer than when the budgets were written. All components together fail at 1.5 times the sum
of the budgets, by the fixed piece of work only.
"""

import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUDGETS = ROOT / "tests/budgets/seconds.txt"
MOST = 1.5
SMALL = 2.0  # seconds that every component may take beyond 1.5 times its budget
HEADER = """\
# Processor seconds of each component's tests, by preset; scripts/budgets.py writes and checks them.
# A feature that needs more time brings its seconds here, or takes them from another component.
"""


def speed():
    """Returns the seconds of a fixed piece of work, the fastest of five runs."""
    def work():
        began = time.process_time()
        total = 0
        for i in range(1_000_000):
            total = (total * 31 + i) & 0xFFFFFFFF
        return time.process_time() - began
    return min(work() for _ in range(5))


def spent(preset):
    path = ROOT / "build" / preset / "test_times.txt"
    if not path.exists():
        sys.exit(f"budgets: {path} is missing; run the tests of preset {preset} first")
    seconds = {}
    for line in path.read_text(encoding="ascii").splitlines():
        name, user, system = line.rsplit(" ", 2)
        seconds[name] = float(user) + float(system)  # the last run of a test counts
    components = {}
    for name, value in seconds.items():
        component = name.partition("/")[0]
        if component != "nightly":
            components[component] = components.get(component, 0) + value
    return components


def read():
    """Returns {(preset, component): seconds}. Preset "work" is the speed of the machine."""
    budgets = {}
    for line in BUDGETS.read_text(encoding="ascii").splitlines():
        if line and not line.startswith("#"):
            preset, component, seconds = line.split()
            budgets[preset, component] = float(seconds)
    return budgets


def check(preset):
    budgets = read()
    components = spent(preset)
    by_work = max(1.0, speed() / budgets["work", preset])
    ratios = [seconds / budgets[preset, component] for component, seconds in components.items()
              if budgets.get((preset, component), 0) >= 10]
    factor = max([by_work] + [statistics.median(ratios)] * (len(ratios) >= 5))
    over = []
    print(f"{'component':<14}{'seconds':>9}{'budget':>9}   (this machine gets {factor:.2f} of it)")
    for component, seconds in sorted(components.items()):
        budget = budgets.get((preset, component))
        if budget is None:
            over.append(f"{component} has no budget")
            print(f"{component:<14}{seconds:>9.1f}{'none':>9}")
            continue
        late = seconds > MOST * factor * budget + SMALL
        print(f"{component:<14}{seconds:>9.1f}{budget:>9.1f}{'   OVER' if late else ''}")
        if late:
            over.append(f"the tests of {component} took {seconds:.1f} s, more than {MOST} times "
                        f"their budget of {budget:.1f} s")
    spent_on_all = sum(components.values())
    budget_of_all = sum(budgets.get((preset, component), 0) for component in components)
    print(f"{'all':<14}{spent_on_all:>9.1f}{budget_of_all:>9.1f}")
    if spent_on_all > MOST * by_work * budget_of_all + SMALL:
        over.append(f"all tests took {spent_on_all:.1f} s, more than {MOST} times the budgets of "
                    f"{budget_of_all:.1f} s")
    if over:
        sys.exit("budgets: " + "; ".join(over) + "; make it cheaper, or write the new budget with "
                 f"scripts/budgets.py write {preset} and say why in the commit")


def write(preset):
    budgets = {key: value for key, value in read().items() if preset not in key}
    budgets["work", preset] = speed()
    for component, seconds in spent(preset).items():
        budgets[preset, component] = seconds
    lines = [f"{first} {second} {value:.{3 if first == 'work' else 1}f}\n"
             for (first, second), value in sorted(budgets.items())]
    BUDGETS.write_text(HEADER + "".join(lines), encoding="ascii")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in ("check", "write"):
        {"check": check, "write": write}[sys.argv[1]](sys.argv[2])
    else:
        sys.exit(__doc__)
