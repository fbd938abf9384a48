#!/usr/bin/env python3
"""The bindings of YCSB: what its official client does through them is in the pool.

`make test-ycsb` builds what this needs. YCSB itself verifies the values that it reads
(dataintegrity), java the use of JNI (-Xcheck:jni), and this test what the command line finds in the
pool.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True

import run  # noqa: E402
from run import CLI, HERE, count, given, parsed  # noqa: E402

RECORDS = 1000
SIZES = {"recordcount": RECORDS, "operationcount": RECORDS}
# YCSB derives each value from the key and the name of the field, and compares what it reads.
VERIFIED = {"dataintegrity": "true", "fieldlengthdistribution": "constant", "fieldlength": 100}
ESCAPED = re.compile(rb"\\(.)", re.S)
NAMES = {b"t": b"\t", b"n": b"\n", b"r": b"\r", b"\\": b"\\"}


def unescaped(text):
    return ESCAPED.sub(lambda m: NAMES[m[1]], text)


def fields(record):
    """The names and values of a record, as Records.java describes its bytes."""
    found = {}
    while record:
        value = 6 + int.from_bytes(record[:2], "little")  # where it begins
        end = value + int.from_bytes(record[2:6], "little")
        found[record[6:value].decode()] = record[value:end]
        record = record[end:]
    return found


def java(binding, phase, *arguments, commands=""):
    """Runs the client and returns what it prints, also on standard error."""
    environment = os.environ | {"JAVA_OPTS": "-Xcheck:jni"}
    done = subprocess.run([HERE / "ycsb.sh", phase, binding, *arguments], input=commands,
                          env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert "in native method" not in done.stdout, done.stdout
    return done.stdout


class YcsbTest(unittest.TestCase):
    maxDiff = 2000

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="perdure-ycsb.", dir=run.scratch())
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "pool.perdure"

    def of(self, engine, **more):
        return {"perdure.path": self.path, "perdure.engine": engine,
                "perdure.size": "1G"} | {f"perdure.{name}": value for name, value in more.items()}

    def cli(self, *arguments):
        return subprocess.run([CLI, *arguments], stdout=subprocess.PIPE, check=True).stdout

    def records(self):
        """What the command line finds in the pool: {key: {field: value}}."""
        lines = self.cli("dump", self.path, "--map", "usertable").splitlines()
        entries = (line.split(b"\t") for line in lines)
        return {key.decode(): fields(unescaped(value)) for key, value in entries}

    def client(self, phase, workload, properties, expected, binding="perdure"):
        """Runs a workload with two threads. The operations must return what is expected."""
        output = java(binding, phase, "-P", str(HERE / "workloads" / workload), "-threads", "2",
                      *given(SIZES | properties))
        measured = parsed(output)
        returned = {(kind, name): int(value) for kind, values in measured.items()
                    for name, value in values.items() if name.startswith("Return=")}
        kinds = {kind for kind, _ in returned}
        self.assertEqual({name for _, name in returned}, {"Return=OK"}, output)
        self.assertEqual(kinds, expected, output)
        if "VERIFY" in kinds:
            self.assertEqual(count(measured, "VERIFY"), count(measured, "READ"))
        return measured

    # ---- workloads ------------------------------------------------------------------------------

    def workloads(self, engine, ordered):
        properties = self.of(engine, durability="emulated") | VERIFIED
        loaded = self.client("load", "a", properties, {"INSERT"})
        self.assertEqual(count(loaded, "INSERT"), RECORDS)
        # The last client thread has closed the pool. The next open would write it back, too.
        self.assertTrue(json.loads(self.cli("info", "--json", self.path))["synced"])
        self.assertEqual(len(self.records()), RECORDS)

        mixed = self.client("run", "a", properties, {"READ", "UPDATE", "VERIFY"})
        self.assertEqual(count(mixed, "READ") + count(mixed, "UPDATE"), RECORDS)
        for workload in "bc":
            kinds = {"READ", "VERIFY"} | ({"UPDATE"} if workload == "b" else set())
            self.client("run", workload, properties, kinds)
        modified = self.client("run", "f", properties, {"READ", "UPDATE", "VERIFY"})
        self.assertEqual(count(modified, "READ"), RECORDS)
        self.assertEqual(count(modified, "UPDATE"),
                         int(modified["READ-MODIFY-WRITE"]["Operations"]))

        latest = self.client("run", "d", properties, {"READ", "INSERT", "VERIFY"})
        records = RECORDS + count(latest, "INSERT")
        if ordered:
            scanned = self.client("run", "e", properties | {"recordcount": records},
                                  {"SCAN", "INSERT"})
            self.assertEqual(count(scanned, "SCAN") + count(scanned, "INSERT"), RECORDS)
            records += count(scanned, "INSERT")

        found = self.records()
        self.assertEqual(len(found), records)
        for key, record in found.items():
            self.assertEqual(sorted(record), [f"field{i}" for i in range(10)], key)
            for name, value in record.items():
                self.assertEqual(len(value), 100)
                self.assertTrue(value.startswith(f"{key}:{name}:".encode()), value)
        self.cli("check", "--deep", self.path)
        self.assertIn(engine, self.cli("list", self.path).decode())
        self.assertIn("emulated", self.cli("info", self.path).decode())

    def test_an_ordered_engine(self):
        self.workloads("phast", True)

    def test_a_hash_engine(self):
        self.workloads("clevel", False)

    def test_an_engine_with_versions(self):
        self.workloads("pskiplist", True)

    def test_scans_of_a_hash_engine(self):
        properties = SIZES | self.of("level")
        self.client("load", "a", self.of("level"), {"INSERT"})
        output = java("perdure", "run", "-P", str(HERE / "workloads/e"), *given(properties))
        scans = parsed(output)["SCAN"]
        self.assertGreater(scans["Return=NOT_IMPLEMENTED"], 0)
        self.assertNotIn("Return=OK", scans)

    def test_updates_replace_single_fields(self):
        properties = self.of("phast")
        self.client("load", "a", properties, {"INSERT"})
        before = self.records()
        self.client("run", "a", properties | {"readproportion": 0, "updateproportion": 1,
                                              "requestdistribution": "uniform"}, {"UPDATE"})
        after = self.records()
        self.assertEqual(before.keys(), after.keys())
        changed = 0
        for key, record in after.items():
            self.assertEqual(list(record), list(before[key]))
            changed += sum(value != before[key][name] for name, value in record.items())
        # 1000 updates hit some 950 of 10,000 fields.
        self.assertLessEqual(changed, RECORDS)
        self.assertGreater(changed, RECORDS * 8 // 10)

    # ---- single operations ----------------------------------------------------------------------

    COMMANDS = ("insert a x=1 y=2", "insert b x=3", "insert c x=4 y=5",
                "update a y=22 z=6", "read a", "read a y", "scan b 2", "scan a 2 y",
                "delete b", "delete b", "read b", "scan a 10", "scan a 0")

    def shell(self, binding, properties, commands):
        """What each command of YCSB's shell prints."""
        output = java(binding, "shell", *given(properties),
                      commands="\n".join([*commands, "quit", ""]))
        parts = output.split("Connected.\n")[1].split("> ")[1:]
        return [[line for line in part.splitlines()
                 if not re.fullmatch(r"\d+ ms|-+|\s*", line)] for part in parts][:len(commands)]

    EXPECTED = (["Result: OK"], ["Result: OK"], ["Result: OK"], ["Result: OK"],
                ["Return code: OK", "x=1", "y=22", "z=6"], ["Return code: OK", "y=22"],
                ["Result: OK", "Record 0", "x=3", "Record 1", "x=4", "y=5"],
                ["Result: OK", "Record 0", "y=22", "Record 1"],
                ["Return result: OK"], ["Return result: NOT_FOUND"], ["Return code: NOT_FOUND"],
                ["Result: OK", "Record 0", "x=1", "y=22", "z=6", "Record 1", "x=4", "y=5"],
                ["Result: OK", "0 records"])

    def test_single_operations(self):
        more = ("update d x=1", "insert e x=1 y=2", "insert e x=3", "read e", "delete e")
        printed = self.shell("perdure", self.of("as"), [*self.COMMANDS, *more])
        self.assertEqual(printed, [*self.EXPECTED, ["Result: NOT_FOUND"], ["Result: OK"],
                                   ["Result: OK"], ["Return code: OK", "x=3"],
                                   ["Return result: OK"]])
        # The shell does not close the pool, so the command line recovers it.
        self.assertEqual(self.records(), {"a": {"x": b"1", "y": b"22", "z": b"6"},
                                          "c": {"x": b"4", "y": b"5"}})

    def test_large_records(self):
        large = "v" * 9000  # more than the native methods have room for on the stack
        printed = self.shell("perdure", self.of("phast"),
                             [f"insert a x={large} y=1", "update a y=2", "read a", "scan a 1"])
        self.assertEqual(printed[2:], [["Return code: OK", f"x={large}", "y=2"],
                                       ["Result: OK", "Record 0", f"x={large}", "y=2"]])

    def test_values_of_others_are_refused(self):
        self.client("load", "a", self.of("phast"), {"INSERT"})
        for value in ("abc", "abcdefghij"):
            self.cli("put", self.path, "k", value, "--map", "usertable")
            printed = self.shell("perdure", self.of("phast"), ["read k", "update k a=1"])
            self.assertIn("Return code: ERROR", printed[0])
            self.assertIn("Result: ERROR", printed[1])
            self.assertIn("the value of this key is no record of YCSB", sum(printed, []))
            self.assertEqual(self.cli("get", self.path, "k", "--map", "usertable"),
                             value.encode() + b"\n")

    def test_properties(self):
        for properties, text in [
                ({}, "set perdure.path"),
                (self.of("btree"), "perdure.engine: there is no such engine"),
                (self.of("phast", durability="some"), "perdure.durability is some"),
                (self.of("phast", size="1X"), "perdure.size is 1X"),
                (self.of("phast", size="9000000000T"), "perdure.size is 9000000000T"),
                (self.of("phast", capacity="few"), "perdure.capacity is few")]:
            with self.subTest(text):
                output = java("perdure", "load", "-P", str(HERE / "workloads/a"),
                              *given(SIZES | properties))
                self.assertIn(text, output)
                self.assertEqual(count(parsed(output), "INSERT"), 0)
        # Without an engine: that of the map. Another one is refused.
        self.client("load", "a", self.of("level") | {"table": "mine"}, {"INSERT"})
        printed = self.shell("perdure", {"perdure.path": self.path}, ["insert a x=1"])
        self.assertEqual(printed, [["Result: OK"]])
        self.assertRegex(self.cli("list", self.path).decode(), r"(?s)mine.*level.*usertable.*phast")

    # ---- redis, and the comparison --------------------------------------------------------------

    def test_redis(self):
        for name in run.SETTINGS:
            with self.subTest(name):
                store = run.started(name, self.folder, None)
                self.addCleanup(store.server.kill)
                try:
                    printed = self.shell("redis", store.properties, self.COMMANDS)
                    self.assertEqual(printed, list(self.EXPECTED))
                    self.assertEqual(store.entries(), 2)
                finally:
                    store.stop()
                self.assertIsNotNone(store.server.poll())

    def test_comparison(self):
        done = subprocess.run(
            [HERE / "run.py", "--stores", "client,phast,clevel,redis,redis_aof", "--workloads",
             "a,d,e", "--records", str(RECORDS), "--seconds", "1", "--turns", "1", "--folder",
             self.folder], capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])
        rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| `")]
        self.assertEqual([row[0] for row in rows[:5]],
                         [f"| `{name}`" for name in ("client", "phast", "clevel", "redis",
                                                     "redis_aof")])
        for row in rows[:5]:
            empty = sum(not cell.strip(" |") for cell in row)
            self.assertEqual(empty, int("clevel" in row[0]), row)

    def test_comparison_finds_what_is_missing(self):
        store = run.started("phast", self.folder, "process")
        real = store.entries
        store.entries = lambda: real() - 1
        options = unittest.mock.Mock(records=RECORDS, workloads=[], threads=2, seconds=1)
        with self.assertRaisesRegex(run.Failed, "has 999 records instead of 1000"):
            run.turn("phast", store, options)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
