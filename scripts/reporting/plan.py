"""What a report measures: runs of the benchmark programs, in groups. The runs of a group have the
same work and go in turns, so that a change of the machine meets all of them."""

from dataclasses import dataclass, field

BENCH = "build/compare/perdure-compare"

ORDERED = ("phast", "pskiplist", "as", "ascs")
HASHES = ("level", "clevel")
ENGINES = ORDERED[:1] + HASHES + ORDERED[1:]
ORDERED_LIBRARIES = ("art_olc", "btree_olc", "absl_btree", "std_map")
HASH_LIBRARIES = ("boost_flat", "libcuckoo", "tbb", "absl_flat")
STORES = ("lmdb", "lmdb_int", "leveldb", "leveldb_tuned", "rocksdb", "rocksdb_tuned", "sqlite",
          "sqlite_tuned", "pmemobj")
# Lines of 64 bytes that an operation must fetch in any design of its kind: a hash table's entry,
# or an ordered map's inner line and its entry; an insert into a hash table also the entry's bucket.
UNAVOIDABLE = {"insert": (2, 2), "read": (1, 2), "update": (1, 2), "delete": (1, 2)}
ALL_PHASES = "load,insert,read,read_missing,update,delete"


@dataclass
class Group:
    """Runs of the same work on several engines: run NAME/ENGINE is `options` on that engine."""
    name: str
    title: str
    engines: tuple
    workload: str
    options: str
    turns: int = 7
    records: int = 0
    threads: int = 1
    latencies: bool = False  # keep the latencies of the first turn
    tags: tuple = field(default=())

    def command(self, engine):
        return (f"{BENCH} --engines {engine} --workload {self.workload} --records {self.records} "
                f"--threads {self.threads} --durability emulated{self.options}")


def integers(records, turns, more_turns):
    """`turns` of the first table, which the README has; `more_turns` of the others."""
    few = records // 10
    fast = ENGINES + ORDERED_LIBRARIES + HASH_LIBRARIES
    scanned = ORDERED + ORDERED_LIBRARIES
    return [
        Group("integers_1", "Integers, one thread", fast, ALL_PHASES, "", turns, records, 1, True),
        Group("integers_2", "Integers, two threads", fast, ALL_PHASES, "", more_turns, records, 2),
        Group("scans", "Scans of 50 entries, one thread", scanned, "load,scan,scan_mixed",
              f" --operations {few}", more_turns, records, 1),
        Group("batches", "Batches, one thread", ENGINES,
              "load,read_batch,update_many,delete_many", "", more_turns, records, 1),
    ]


def stores(records, turns):
    names = ("phast", "clevel", *STORES)
    return [Group("stores", "Beside stores in files, integers, one thread", names, ALL_PHASES, "",
                  turns, records, 1)]


def strings(records, turns):
    names = (*ENGINES, "absl_btree", "absl_flat", "libcuckoo", "lmdb")
    return [Group("strings", "Keys of 16 bytes, values of 100, one thread", names,
                  "load,insert,read,update,delete", " --key string:16 --value string:100", turns,
                  records, 1)]


def shared(records, turns, threads):
    names = (*ENGINES, "art_olc", "btree_olc", "boost_flat", "libcuckoo", "tbb")
    few = max(records // 10, 1)
    return [Group(f"zipfian_{count}", f"Zipfian keys that all threads share, {count} threads",
                  names, "load,update,read",
                  f" --operations {records} --distribution zipfian --shared", turns, few, count,
                  tags=("shared",))
            for count in threads]


def sizes(counts, turns, slow_until):
    groups = []
    for count in counts:
        names = ENGINES if count <= slow_until else ENGINES[:4]
        groups.append(Group(f"size_{count}", f"{count:,} entries", names, "load,read,update", "",
                            turns, count, 1, tags=("size",)))
    return groups


def limits(counts, turns, slow_until):
    """Operations that cannot overlap, so that their time can be compared with what they cost."""
    groups = []
    for count in counts:
        names = ENGINES if count <= slow_until else ENGINES[:4]
        groups.append(Group(f"limit_{count}", f"{count:,} entries", names,
                            "load,insert,read,update,delete", " --dependent", turns, count, 1,
                            tags=("limit",)))
    return groups


def threads(records, counts, turns):
    return [Group(f"threads_{count}", f"{count} threads", ENGINES, "load,read,update", "", turns,
                  records, count, tags=("threads",)) for count in counts]


def ycsb(records, turns):
    return [Group("ycsb", "YCSB, two threads", ("phast", "pskiplist", "art_olc", "btree_olc"),
                  "load,ycsb_a,ycsb_b,ycsb_c,ycsb_f,ycsb_d,ycsb_e",
                  f" --distribution zipfian --operations {records // 2}", turns, records, 2)]


def short():
    """Twenty minutes on two processors."""
    million = 1_000_000
    return [*integers(million, 7, 3), *stores(million // 20, 3), *strings(million // 4, 3),
            *shared(million // 2, 3, (4, 16)),
            *sizes((100_000, 1_000_000, 4_000_000), 1, million),
            *limits((100_000, 1_000_000, 4_000_000), 1, million),
            *threads(million // 2, (1, 2, 4, 8, 16), 1), *ycsb(million // 2, 3)]


def full():
    """The same with ten million entries, and sizes up to fifty million: hours."""
    many = 10_000_000
    return [*integers(many, 7, 7), *stores(many // 10, 7), *strings(many // 4, 7),
            *shared(many, 7, (4, 16, 64)),
            *sizes((100_000, 1_000_000, 10_000_000, 50_000_000), 3, many),
            *limits((100_000, 1_000_000, 10_000_000, 50_000_000), 3, many),
            *threads(many, (1, 2, 4, 8, 16, 32, 64), 3), *ycsb(many, 7)]


def quick():
    """A minute: to try the report itself. Its figures mean nothing."""
    few = 20_000
    return [*integers(few, 2, 1), *stores(few // 10, 1), *strings(few, 1), *shared(few, 1, (4,)),
            *sizes((few // 2, few), 1, few), *limits((few // 2, few), 1, few),
            *threads(few, (1, 2), 1), *ycsb(few, 1)]


PLANS = {"short": short, "full": full, "quick": quick}
