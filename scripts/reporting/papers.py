"""What the papers claim, as ratios to a baseline, and the same ratios of ours, which are read from
the tables of docs/design/evaluation.md. A ratio above 1: the paper's design is the better one.

The papers' numbers stand in the papers' pages, docs/papers, in the row that each claim names as its
source."""

import re
from dataclasses import dataclass
from typing import Callable

BEGIN = re.compile(r"<!-- (\w+): begin -->\n(.*?)<!-- \1: end -->", re.S)
CELL = re.compile(r"\**([\d.]+)\**(?: (?:\(([\d.]+) )?to ([\d.]+)\)?)?$")
FIRST = re.compile(r"\**([\d.]+)")
PERCENT = re.compile(r"[\d.]+ \(([+-][\d.]+)%\)$")


@dataclass(frozen=True)
class Ratio:
    """A measured ratio and its range; without a middle only the range is known."""
    middle: float | None
    low: float
    high: float


@dataclass(frozen=True)
class Claim:
    label: str
    low: float  # the paper's ratio, or the ends of its interval; `high` None: at least `low`
    high: float | None
    source: str  # the part of a row of the paper's page that has its number
    ours: Callable  # Tables -> Ratio; None: it is not measured


# ---- tables -------------------------------------------------------------------------------------

class Tables:
    """The tables of the evaluations: those of program NAME are between its markers."""

    def __init__(self, page):
        self.programs = {name: self.by_heading(text) for name, text in BEGIN.findall(page)}

    @staticmethod
    def by_heading(text):
        tables, heading = {}, ""
        for line in text.splitlines():
            if line.startswith("### "):
                heading = line[4:]
            elif line.startswith("|") and not line.startswith(("| ---", "|---")):
                cells = [cell.strip() for cell in line.split("|")[1:-1]]
                tables.setdefault(heading, []).append(cells)
        return tables

    def rows(self, program, heading):
        """The table whose heading begins so, as dictionaries by column; none if the program has
        not been run. An empty first cell repeats the one above."""
        found = [rows for title, rows in self.programs[program].items()
                 if title.startswith(heading)]
        if not self.programs[program]:
            return []
        if len(found) != 1:
            raise LookupError(f"evaluation.md has {len(found)} tables '{heading}' of {program}")
        columns, *rows = found[0]
        first = ""
        made = []
        for row in rows:
            first = row[0] or first
            # Of two columns with one name, the later one gets a number.
            named = {}
            for column, cell in zip(columns, [first, *row[1:]]):
                named[f"{column} 2" if column in named else column] = cell
            made.append(named)
        return made


def number(cell):
    found = CELL.match(cell)
    if found is None:
        raise LookupError(f"'{cell}' is no number")
    middle, low, high = found.groups()
    if high is None:
        return Ratio(float(middle), float(middle), float(middle))
    if low is None:  # 1.60 to 1.74
        return Ratio(None, float(middle), float(high))
    return Ratio(float(middle), float(low), float(high))


def only(rows, **wanted):
    """The row that has these cells."""
    found = [row for row in rows if all(row.get(c) == cell for c, cell in wanted.items())]
    if len(found) != 1:
        raise LookupError(f"evaluation.md has {len(found)} rows with {wanted}")
    return found[0]


# ---- how a ratio is read ------------------------------------------------------------------------

def rates(program, heading, mine, theirs, column, ratios=None, **more):
    """The rate of one row by that of another one, and the range that both ranges allow. The table
    `ratios` has the median of the turns' ratios, if the program prints it."""
    def ours(tables):
        rows = tables.rows(program, heading)
        if not rows:
            return None
        first = next(iter(rows[0]))
        one, other = (number(only(rows, **{first: name}, **more)[column])
                      for name in (mine, theirs))
        middle = one.middle / other.middle
        if ratios is not None:
            cell = only(tables.rows(program, ratios), **{first: theirs})[column]
            middle = float(FIRST.match(cell)[1])
        return Ratio(middle, one.low / other.high, one.high / other.low)
    return ours


def stated(program, heading, columns, **wanted):
    """A ratio that stands in the table; of two columns, both."""
    def ours(tables):
        rows = tables.rows(program, heading)
        if not rows:
            return None
        row = only(rows, **wanted)
        found = [number(row[column]) for column in columns]
        if len(found) == 1:
            return found[0]
        return Ratio(None, min(f.low for f in found), max(f.high for f in found))
    return ours


def percents(heading, column, choose, saved=True):
    """From how much less, or more, than RLS the column has in the rows that `choose` returns."""
    def ours(tables):
        rows = choose(tables.rows("skiplist", heading))
        if not rows:
            return None
        shares = [1 + float(PERCENT.match(row[column])[1]) / 100 for row in rows]
        ratios = sorted(1 / share if saved else share for share in shares)
        middle = ratios[0] if ratios[0] == ratios[-1] else None
        return Ratio(middle, ratios[0], ratios[-1])
    return ours


def middle_size(rows):
    sizes = sorted({int(row["items"]) for row in rows})
    return [row for row in rows if int(row["items"]) == sizes[len(sizes) // 2]]


def at(latency):
    return lambda rows: [row for row in rows if row["write latency"] == latency]


def of_stream(operation):
    """Zipfian keys, or those of an older table."""
    return lambda rows: [row for row in rows if row["operations"].endswith(operation)][:1]


def unmeasured(_):
    return None


# ---- claims -------------------------------------------------------------------------------------

def phast():
    usual = ("Million operations a second, one thread (figure 7)",
             "`phast` by the others, and PhaST")
    ycsb = ("YCSB, million operations a second, one thread", "`phast` by the others in YCSB")
    narrow = ("Million operations a second, keys in 1 %", "`phast` by the others with these keys")
    figure_7 = (("FAST-FAIR", "insert", 1.61), ("FPTree", "insert", 1.33),
                ("NV-Skiplist", "insert", 2.56), ("wB+-Tree", "insert", 3.76),
                ("WORT", "insert", 4.05), ("FAST-FAIR", "search", 1.30), ("FPTree", "search", 1.22),
                ("NV-Skiplist", "search", 2.42), ("wB+-Tree", "search", 2.87),
                ("FAST-FAIR", "scan of 50", 0.67), ("FPTree", "scan of 50", 0.94))
    rows = [(other, column, f"{other}, {column}", value, usual)
            for other, column, value in figure_7]
    rows += [(other, "load", f"{other}, YCSB load (figure 9)", value, ycsb)
             for other, value in (("FPTree", 1.38), ("NV-Skiplist", 3.27))]
    rows += [("FPTree", column, f"FPTree, {column}, one partition (figure 15 a)", value, narrow)
             for column, value in (("insert", 1.18), ("search", 1.07), ("update", 1.07))]
    return [Claim(label, value, value, f"| {label} | {value:.2f} |",
                  rates("ordered", heading, "phast", other, column, ratios))
            for other, column, label, value, (heading, ratios) in rows]


def level():
    gains = "What level gains"
    resizes = "Resizes of level"
    made = [Claim(f"{other}, insert at 0.9 and 200 ns", value, None,
                  f"| 11 | {source} | over {value} |",
                  stated("hash", gains, ("here",),
                         ratio=f"insert at 0.9 and 200 ns, {short} / level"))
            for other, short, value, source in (
                ("BCH", "BCH", 3.0, "insert at 0.9 and 200 ns, BCH / `level`"),
                ("PFHT", "PFHT", 1.8, "the same, PFHT / `level`"),
                ("path hashing", "path", 1.4, "the same, path hashing / `level`"))]
    made.append(Claim("the others, update at 600 ns", 1.2, 2.1,
                      "| 12 | update at 600 ns, the others / `level` | 1.2 to 2.1 |",
                      stated("hash", gains, ("here",),
                             ratio="update at 600 ns, the others / level")))
    for resize, value, row in (("expansion at 0.85", 4.3, "first expansion, the paper's load"),
                               ("shrink at 0.30", 1.4, "shrink, the paper's load")):
        label = f"full rehash (by copies, by moves),\n{resize} and 600 ns"
        source = f"| 15 | {resize} and 600 ns, full rehash / in place | over {value} |"
        made.append(Claim(label, value, None, source,
                          stated("hash", resizes, ("ratio", "ratio 2"),
                                 **{"write-back": "600 ns", "resize": row})))
    return made


def clevel():
    made = [Claim("cmap, YCSB load, 2 threads", 1.4, 1.4, "| 10 | cmap, YCSB load | 1.4 |",
                  rates("growing", "YCSB, million operations a second, 2 threads", "clevel",
                        "cmap", "load",
                        "`clevel` by the others in YCSB, and the paper's ratio, 2 threads"))]
    for column, low, high in (("find", 1.2, 5.0), ("find missing", 1.4, 9.0)):
        for other, row in (("level hashing", "level"), ("CCEH", "CCEH"), ("cmap", "cmap"),
                           ("P-CLHT", "P-CLHT")):
            made.append(Claim(f"{other}, {column}, 2 threads", low, high,
                              f"| 7 | {other}, {column} | {low} to {high} |",
                              rates("growing", "Million operations a second, 2 threads", "clevel",
                                    row, column,
                                    "`clevel` by the others, and the paper's ratio, 2 threads")))
    return made


def less(percent):
    return 1 / (1 - percent / 100)


def skiplists():
    # Of each engine the percentages of figures 6, 7, 8, 9 a (two) and 10 (two).
    as_ = skiplist("as", 67.5, (32.3, 40.9), (38.7, 47.1), (18.6, 41.6), (49.1, 65.1), (
        "| 6 | write-backs of an insert, `as` | -67.5 % |",
        "| 7 | latency of an insert, 4 million, `as` | -32.3 to -40.9 % |",
        "| 8 | latency of a deletion, 4 million, `as` | -38.7 to -47.1 % |"))
    ascs = skiplist("ascs", 75, (36.2, 54.2), (44.9, 57.8), (27.4, 48.3), (65.0, 80.5), (
        "| 6 | the same, `ascs` | -75 % |",
        "| 7 | the same, `ascs` | -36.2 to -54.2 % |",
        "| 8 | the same, `ascs` | -44.9 to -57.8 % |"))
    return as_ + ascs


def skiplist(engine, flushes, insert, erase, by_latency, throughput, sources):
    made = [Claim(f"{engine}: write-backs of an insert", less(flushes), less(flushes), sources[0],
                  percents("Write-backs of an insert", engine, middle_size))]
    for name, (low, high), source in (("insert", insert, sources[1]),
                                      ("delete", erase, sources[2])):
        made.append(Claim(f"{engine}: latency of {name}, kinds of keys", less(low), less(high),
                          source, percents(f"Latency of {name} in ns, write latency", engine,
                                           middle_size)))
    for latency, percent, source in (("300 ns", by_latency[0], "-18.6, -27.4 % |"),
                                     ("1200 ns", by_latency[1], "-41.6, -48.3 % |")):
        made.append(Claim(f"{engine}: insert at {latency}", less(percent), less(percent),
                          f"random keys, `as`, `ascs` | {source}",
                          percents("Latency of insert in ns by write latency, random", engine,
                                   at(latency))))
    for operation, percent, source in (("inserts", throughput[0], "+49.1, +65.0 % |"),
                                       ("deletes", throughput[1], "+65.1, +80.5 % |")):
        ratio = 1 + percent / 100
        made.append(Claim(f"{engine}: throughput of {operation}", ratio, ratio,
                          f"`as`, `ascs` | {source}",
                          percents("Throughput", engine, of_stream(operation), saved=False)))
    return made


def versions():
    def one_thread(other, column):
        return rates("versions", "Million operations or keys/s, threads: 1", "pskiplist", other,
                     column, ratios="`pskiplist` by the others, threads: 1")
    return [Claim("SQLiteReg, insert, one thread", 1.35, 1.35,
                  "| 2 | insert and remove by SQLiteReg, one thread | 1.35 |",
                  one_thread("SQLiteReg", "insert")),
            Claim("SQLiteReg, remove, one thread", 1.35, 1.35,
                  "| 2 | insert and remove by SQLiteReg, one thread | 1.35 |",
                  one_thread("SQLiteReg", "remove")),
            Claim("ESkipList (DRAM), insert, one thread", 1 / 12, 1 / 12,
                  "| 2 | insert and remove by ESkipList, one thread | 1/12 |",
                  one_thread("ESkipList", "insert")),
            Claim("SQLiteReg, finds, 512 nodes", 1.25, 1.25,
                  "| Finds over 512 nodes: 25 % above SQLiteReg |", unmeasured),
            Claim("SQLiteReg, merged snapshots, 512 nodes", 1.2, 1.2,
                  "| Merged snapshots of 512 nodes: 50 times as fast as the naive merge, 20 % "
                  "ahead of SQLiteReg |", unmeasured),
            Claim("naive merge, merged snapshots, 512 nodes", 50, 50,
                  "| Merged snapshots of 512 nodes: 50 times as fast as the naive merge, 20 % "
                  "ahead of SQLiteReg |", unmeasured)]


@dataclass(frozen=True)
class Paper:
    title: str
    page: str  # in docs/papers
    engine: str  # whose colour and marker ours have
    baseline: str
    claims: list


PAPERS = [
    Paper("PhaST", "phast", "phast", "rate of phast by that of another structure", phast()),
    Paper("Level hashing", "level", "level", "time of another table, or of a full rehash, by that "
          "of level", level()),
    Paper("Clevel hashing", "clevel", "clevel", "rate of clevel by that of another table",
          clevel()),
    Paper("Atomic skiplists", "atomic_skiplists", "as", "RLS (one record) by ours; of throughput, "
          "ours by RLS", skiplists()),
    Paper("The multi-version store", "pskiplist", "pskiplist",
          "rate of pskiplist by that of another store", versions()),
]
# Write-backs and fences of an operation that a paper states, of PhaST without a split. Sources:
# docs/papers/phast.md ("2 write-backs and 2 fences an insert"); docs/design/evaluation.md, level
# hashing ("log-free inserts with two write-backs").
COSTS = {("phast", "flushes_per_op"): 2, ("phast", "fences_per_op"): 2,
         ("level", "flushes_per_op"): 2}
