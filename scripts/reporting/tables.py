"""The tables of docs/benchmarks.md, from a report's results."""

import sys

from bench_stats import median_interval
from reporting import machine, plan

TITLES = {"read_missing": "missing", "scan_mixed": "scan, 1 insert of 10"}


def title(phase):
    return TITLES.get(phase, phase.replace("_", " "))


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def significant(value):
    """A rate with three digits or two decimal places."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cell(values):
    """The median, and the interval that has it with 95 % confidence if there are enough turns."""
    if not values:
        return ""
    median, lower, upper = median_interval(values)
    if lower == float("-inf"):
        return significant(median)
    return f"{significant(median)} ({significant(lower)} to {significant(upper)})"


def rates(results, group, phases=None, intervals=True):
    names = phases or max((results.phases(f"{group.name}/{engine}") for engine in group.engines),
                          key=len)
    rows = []
    for engine in group.engines:
        values = [results.values(f"{group.name}/{engine}", phase) for phase in names]
        if any(values):
            rows.append([f"`{engine}`",
                         *(cell(v if intervals else v[:1]) for v in values)])
    return table(["M operations/s", *map(title, names)], rows)


def command(group):
    engines = ",".join(group.engines)
    return f"```sh\n{group.command(engines)}\n```\n"


def section(results, group, phases=None):
    turns = max(len(results.turns(f"{group.name}/{engine}")) for engine in group.engines)
    return (f"### {group.title}\n\n{group.records:,} entries; medians of {turns} turns.\n\n"
            f"{command(group)}\n{rates(results, group, phases)}")


def latencies(results, group):
    rows = [[f"`{engine}`",
             *(f"{results.median(f'{group.name}/{engine}', phase, point):.0f}"
               for phase in ("insert", "read", "update")
               for point in ("p50_ns", "p99_ns", "p999_ns"))]
            for engine in group.engines if results.turns(f"{group.name}/{engine}")]
    header = [f"{phase} {point}" for phase in ("insert", "read", "update")
              for point in ("p50", "p99", "p99.9")]
    return "### Latencies, one thread\n\nThe runs of the first table.\n\n" + table(
        ["ns", *header], rows)


def costs(results, group):
    rows = []
    for engine in plan.ENGINES:
        run = f"{group.name}/{engine}"
        if not results.turns(run):
            continue
        each = [f"{results.median(run, phase, 'flushes_per_op'):.2f}, "
                f"{results.median(run, phase, 'fences_per_op'):.2f}, "
                f"{results.median(run, phase, 'bytes_written_per_op'):.0f}"
                for phase in ("insert", "update", "delete")]
        times = [f"{results.of_run(run, field) * 1e3:.1f}"
                 for field in ("reopen_clean_seconds", "reopen_killed_seconds",
                               "first_lookup_seconds")]
        rows.append([f"`{engine}`", *each,
                     f"{results.of_run(run, 'bytes_per_entry_pm'):.1f}",
                     f"{results.of_run(run, 'bytes_per_entry_dram'):.1f}", *times])
    return ("### Costs, memory, opening\n\nWrite-backs, fences, and bytes stored to the pool, for "
            "each operation. An open is that of a map that `delete` has emptied.\n\n"
            + table(["", "insert", "update", "delete", "pool bytes/entry", "DRAM bytes/entry",
                     "open after close, ms", "after a kill, ms", "first read after it, ms"], rows))


def openings(results, groups):
    rows = []
    for engine in plan.ENGINES:
        cells = []
        for group in groups:
            run = f"{group.name}/{engine}"
            fields = ("close_seconds", "reopen_clean_seconds", "reopen_killed_seconds",
                      "first_lookup_seconds")
            cells.append(", ".join(f"{results.of_run(run, field) * 1e3:.1f}" for field in fields)
                         if results.turns(run) else "")
        rows.append([f"`{engine}`", *cells])
    return ("### Opening by size\n\nMilliseconds of a close, of an open after it, of an open after "
            "a kill, and from that open to the first lookup.\n\n"
            + table(["ms", *(group.title for group in groups)], rows))


def by_size(results, groups, heading):
    phases = ("load", "read", "update")
    rows = [[f"`{engine}`", phase,
             *(cell(results.values(f"{group.name}/{engine}", phase)) for group in groups)]
            for engine in plan.ENGINES for phase in phases]
    return (f"### {heading}\n\n"
            + table(["M operations/s", "", *(group.title for group in groups)], rows))


def limits(results, groups):
    phases = tuple(plan.UNAVOIDABLE)
    rows = []
    for engine in plan.ENGINES:
        for phase in phases:
            far = [results.distance(f"{group.name}/{engine}", engine, phase) for group in groups]
            rows.append([f"`{engine}`", phase,
                         *("" if value is None else f"{value:.2f}" for value in far)])
    counts = "; ".join(f"{phase} {hashed}, {ordered}"
                       for phase, (hashed, ordered) in plan.UNAVOIDABLE.items())
    return ("### Distance to the limit\n\n"
            "The time of an operation that depends on the one before, by the least that it can "
            "take: its fences times a calibrated write-back and fence, and the lines that any "
            "design must fetch times a calibrated load from memory. Lines of a hash table, of an "
            f"ordered map: {counts}. Small maps are in the caches, so their figures can be below "
            "1.\n\n" + command(groups[0]) + "\n"
            + table(["", "", *(group.title for group in groups)], rows))


def documents(results, groups):
    """The text between the markers of docs/benchmarks.md."""
    named = {group.name: group for group in groups}
    first = named["integers_1"]
    parts = [machine.sentence(results.machine) + "\n",
             section(results, first), section(results, named["integers_2"]),
             latencies(results, first), costs(results, first)]
    parts += [section(results, named[name]) for name in ("scans", "batches", "strings",
                                                         "stores")]
    parts += [section(results, group) for group in groups if "shared" in group.tags]
    sizes = [group for group in groups if "size" in group.tags]
    parts += [by_size(results, sizes, "By size"), openings(results, sizes),
              limits(results, [group for group in groups if "limit" in group.tags]),
              by_size(results, [group for group in groups if "threads" in group.tags],
                      "By threads"),
              section(results, named["ycsb"])]
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit("use scripts/report.py")
