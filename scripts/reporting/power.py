"""What a power failure may cost on a disk, beside the rate: the runs, tables and picture of
`report.py --power`."""

import statistics
from dataclasses import dataclass

from reporting import machine, tables
from reporting.plan import BENCH

DATA = "--key string:16 --value string:100"
MIXED = "load,update,update_many,read"
NOTHING, ALL = "nothing", "everything"
CHECKPOINT, KERNEL = "since a checkpoint", "30 s or so"
# The classes of loss, from none to all.
LOSSES = (NOTHING, "10 ms", "100 ms", "1 s", CHECKPOINT, KERNEL, ALL)


@dataclass
class Row:
    """An engine with the options that decide what a power failure may take."""
    name: str
    engine: str
    options: str
    loses: str


PROCESS = Row("perdure, process", "phast", "--durability process", ALL)
BUFFERED = Row("perdure, buffered", "phast", "--durability buffered", "100 ms")
SYNC = Row("perdure, buffered, sync", "phast", "--durability buffered --sync", NOTHING)
FAST = (PROCESS, Row("perdure, buffered, 1 s", "phast",
                     "--durability buffered --interval-ms 1000", "1 s"),
        BUFFERED, Row("perdure, buffered, 10 ms", "phast",
                      "--durability buffered --interval-ms 10", "10 ms"),
        Row("RocksDB", "rocksdb", "", KERNEL), Row("LevelDB", "leveldb", "", KERNEL),
        Row("LMDB, NOSYNC", "lmdb", "", ALL))
SLOW = (Row("Redis, everysec", "redis", "", "1 s"),
        Row("SQLite, WAL, NORMAL", "sqlite_wal", "", CHECKPOINT))
SYNCED = (SYNC, Row("RocksDB, sync", "rocksdb", "--sync", NOTHING),
          Row("LevelDB, sync", "leveldb", "--sync", NOTHING),
          Row("LMDB, sync", "lmdb", "--sync", NOTHING),
          Row("SQLite, WAL, FULL", "sqlite_wal", "--sync", NOTHING),
          Row("Redis, always", "redis", "--sync", NOTHING))


@dataclass
class PowerGroup:
    """Runs of the same work on several rows: run NAME/ROW. As plan.Group for report.py."""
    name: str
    title: str
    rows: tuple
    workload: str
    turns: int
    records: int
    operations: int
    threads: int
    latencies: bool = False

    @property
    def engines(self):
        return tuple(row.name for row in self.rows)

    def row(self, name):
        return next(row for row in self.rows if row.name == name)

    def command(self, name):
        row = self.row(name)
        return " ".join(f"{BENCH} --engines {row.engine} --workload {self.workload} "
                        f"--records {self.records} --operations {self.operations} "
                        f"--threads {self.threads} {DATA} {row.options}".split())


def plan(scale=1):
    """Twenty minutes. `scale` divides the work."""
    turns = 3 if scale == 1 else 1
    def group(name, title, rows, workload, records, operations, threads):
        return PowerGroup(name, title, rows, workload, turns, records // scale,
                          operations // scale, threads)
    few, many, million = 20_000, 500_000, 1_000_000
    return [
        group("power_fast", "One thread", FAST, MIXED, many, 2 * million, 1),
        group("power_slow", "One thread, slower stores", SLOW, MIXED, many, 100_000, 1),
        group("power_sync", "One thread, each change durable", SYNCED, "load,update", few, few, 1),
        group("power_sync_64", "64 threads, each change durable", SYNCED, "load,update", few,
              100_000, 64),
        group("power_two", "Two threads", FAST, MIXED, many, 2 * million, 2),
        group("power_long_1", "20 million updates, one thread", (PROCESS, BUFFERED),
              "load,update", 2 * million, 20 * million, 1),
        group("power_long_2", "20 million updates, two threads", (PROCESS, BUFFERED),
              "load,update", 2 * million, 20 * million, 2),
    ]


def rates(results, group):
    phases = group.workload.split(",")
    def thousands(row, phase):
        run = f"{group.name}/{row.name}"
        if group.threads <= 2:
            return [value * 1e3 for value in results.values(run, phase)]
        # Some stores let a few threads go first: what counts is when the last one has ended.
        return [count / seconds / 1e3 for count, seconds in zip(
            results.values(run, phase, "operations"), results.values(run, phase, "wall_seconds"))]
    rows = [[row.name, row.loses, *(tables.cell(thousands(row, phase)) for phase in phases)]
            for row in group.rows]
    return tables.table(["thousand operations/s", "a power failure takes",
                         *map(tables.title, phases)], rows)


def commands(group):
    return "".join(["```sh\n", *(f"{group.command(row.name)}\n" for row in group.rows), "```\n"])


def together(group):
    if "update_many" not in group.workload:
        return ""
    return (" `update many` passes 64 updates in a call; RocksDB, LevelDB, LMDB and SQLite get "
            "them one by one.")


def section(results, group):
    turns = max(len(results.turns(f"{group.name}/{row.name}")) for row in group.rows)
    return (f"### {group.title}\n\n{group.records:,} entries; {group.operations:,} operations in "
            f"each phase after `load`; medians of {turns} turns.{together(group)}\n\n"
            f"{commands(group)}\n{rates(results, group)}")


def median_cut(results, group, field):
    turns = results.turns(f"{group.name}/{BUFFERED.name}")
    return statistics.median(turn["cuts"][field] for turn in turns)


def long_runs(results, groups):
    """The price of `buffered`, folding included, and what it writes."""
    rows = []
    for group in groups:
        def rate(row, phase):
            return results.median(f"{group.name}/{row.name}", phase)
        changed = group.records + group.operations
        log = median_cut(results, group, "log_bytes")
        rows.append([str(group.threads),
                     *(f"{rate(BUFFERED, phase) / rate(PROCESS, phase):.2f}"
                       for phase in ("load", "update")),
                     f"{log / changed:.0f}",
                     f"{median_cut(results, group, 'folds'):.0f}",
                     f"{median_cut(results, group, 'fold_bytes') / max(log, 1):.2f}",
                     f"{median_cut(results, group, 'longest_stop_ns') / 1e6:.2f}"])
    first = groups[0]
    return ("### The price of `buffered`\n\n"
            f"{first.records:,} entries, then {first.operations:,} updates, with folds of the log. "
            "The rates of `buffered` by those of `process`, in turns; what its threads wrote; and "
            "the longest time that all stores had to wait for a cut.\n\n"
            f"{commands(first)}{commands(groups[1])}\n"
            + tables.table(["threads", "load", "update", "log, bytes/change", "folds",
                            "folded bytes by those of the log", "longest stop, ms"], rows))


def sentence(kept):
    return (f"Machine: {machine.place(kept)}; other programs used at most "
            f"{kept.get('others', 0):.2f} processors. A write of 4 KiB and its `fdatasync` take "
            f"{kept['calibration']['sync_ns'] / 1e6:.3f} ms. Much less than a millisecond means "
            "that the disk does not flush its cache, as those of many virtual machines: a disk "
            "that does makes each sync slower.")


def documents(results, groups):
    """The text between the markers `power` of docs/benchmarks.md."""
    named = {group.name: group for group in groups}
    parts = [sentence(results.machine) + "\n",
             "![Updates by what a power failure takes](pictures/power.svg)\n"]
    parts += [section(results, group) for name, group in named.items() if "long" not in name]
    parts.append(long_runs(results, [named["power_long_1"], named["power_long_2"]]))
    return "\n".join(parts)


def readme(results, groups):
    """The text between the markers `power` of the README."""
    return ("![Updates by what a power failure takes](docs/pictures/power.svg)\n\n"
            f"Keys of 16 bytes, values of 100, one thread, on a disk, {results.machine['date']}; "
            "[the tables, the machine and the commands](docs/benchmarks.md#power).\n")


def picture(results, groups):
    """Each row of one thread: its updates a second by what a power failure takes."""
    from reporting import pictures  # needs matplotlib
    figure, axis = pictures.plt.subplots(figsize=(8, 4))
    points = []
    for group in groups[:3]:
        for row in group.rows:
            rate = results.median(f"{group.name}/{row.name}", "update")
            if rate is not None:
                points.append((LOSSES.index(row.loses), rate * 1e6, row.name))
            many = results.median(f"{group.name}/{row.name}", "update_many")
            if row.engine == "redis" and many is not None:
                points.append((LOSSES.index(row.loses), many * 1e6, "Redis, 64 requests at once"))
    words = []
    column, below = None, 0  # the place and height of the label before
    for place, rate, name in sorted(points, key=lambda point: (point[0], -point[1])):
        ours = name.startswith("perdure")
        axis.plot(place, rate, marker="o" if ours else "s", linestyle="none",
                  color=pictures.COLOURS["phast"] if ours else "#666666")
        text = {"fontsize": 8, "fontweight": "bold" if ours else "normal"}
        if ours and place != 0:
            axis.annotate(name.replace(", ", "\n"), (place, rate), xytext=(0, 6), ha="center",
                          textcoords="offset points", **text)
        else:
            height = min(rate, below / 1.35) if place == column else rate
            axis.annotate(name, (place, height), xytext=(8, 0), textcoords="offset points",
                          va="center", **text)
            column, below = place, height
        words.append(f"{name}: {rate:,.0f}, loses {LOSSES[place]}")
    axis.set_yscale("log")
    axis.set_xlim(-0.3, len(LOSSES) - 0.2)
    rates_shown = [rate for _, rate, _ in points]
    axis.set_ylim(min(rates_shown) / 4, max(rates_shown) * 4)  # with room for labels
    axis.set_xticks(range(len(LOSSES)), LOSSES)
    axis.set_xlabel("what a power failure may take")
    axis.set_ylabel("updates/s")
    figure.tight_layout()
    return pictures.svg(figure, "Updates a second by what a power failure may take. "
                        + "; ".join(words))
