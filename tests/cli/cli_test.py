"""The command line, as scripts see it: exit statuses, output, usage, the text form."""

import contextlib
import os
import pathlib
import random
import shutil
import subprocess
import unittest

from cli_case import BUSY, CLI, COMMANDS, DONE, ENGINES, FAILURE, NEGATIVE, USAGE, CliTest, tsv


class CommandsTest(CliTest):
    def test_version_and_help(self):
        self.assertRegex(self.output("--version").decode(), r"^perdure \d+\.\d+\.\d+\n$")
        overview = self.output("--help").decode()
        for command in COMMANDS:
            self.assertIn(f"\n  {command} ", overview)
            if command != "bench":  # has its own parser
                text = self.output(command, "--help").decode()
                self.assertIn("EXAMPLES", text, command)
                self.assertIn(f"perdure {command} ", text)
        self.assertIn("EXAMPLES", overview)

    def test_put_get_del(self):
        self.create()
        self.run_cli("put", self.pool, "apple", "3")
        self.assertEqual(self.output("get", self.pool, "apple"), b"3\n")
        self.run_cli("put", self.pool, "apple", "4")
        self.assertEqual(self.output("get", self.pool, "apple"), b"4\n")
        self.run_cli("del", self.pool, "apple")
        self.assertEqual(self.output("get", self.pool, "apple", expect=NEGATIVE), b"")
        self.run_cli("del", self.pool, "apple", expect=NEGATIVE)

    def test_incr(self):
        self.create()
        self.assertEqual(self.output("incr", self.pool, "visits"), b"1\n")
        self.assertEqual(self.output("incr", self.pool, "visits", "41"), b"42\n")
        self.assertEqual(self.output("incr", self.pool, "visits", "--", "-50"), b"-8\n")
        self.assertEqual(self.output("get", self.pool, "visits"), b"-8\n")
        self.run_cli("put", self.pool, "large", str(2**64 - 2))
        self.assertEqual(self.output("incr", self.pool, "large"), b"18446744073709551615\n")
        for key, number, reason in (("large", "1", b"64 bits"), ("apple", "1", b"not a decimal")):
            self.run_cli("put", self.pool, "apple", "red")
            failed = self.run_cli("incr", self.pool, key, number, expect=USAGE)
            self.assertIn(reason, failed.stderr)
        self.assertEqual(self.output("get", self.pool, "large"), b"18446744073709551615\n")
        words = ("--map", "words", "--key", "u32", "--value", "u8")
        self.assertEqual(self.output("incr", self.pool, "7", "255", *words), b"255\n")
        for number in ("1", "-256"):
            failed = self.run_cli("incr", self.pool, "--map", "words", "--", "7", number,
                                  expect=USAGE)
            self.assertIn(b"from 0 to 255", failed.stderr)
        self.assertEqual(self.output("get", self.pool, "7", "--map", "words"), b"255\n")

    def test_apply(self):
        self.run_cli("create", self.pool)
        self.run_cli("put", self.pool, "0", "0", "--map", "visits", "--key", "u32",
                     "--value", "u64", "--engine", "clevel")
        changes = (b"absent\tada\nput\tada\t100\nput\ta\\tb\tx\\ny\ndel\tnever\n"
                   b"map\tvisits\nput\t7\t1\nmap\tdefault\nput\tbob\t1\nput\tbob\t2")
        self.assertEqual(self.output("apply", self.pool, "-", stdin=changes), b"")
        self.assertEqual(self.output("dump", self.pool),
                         b"a\\tb\tx\\ny\nada\t100\nbob\t2\n")
        self.assertEqual(self.output("get", self.pool, "7", "--map", "visits"), b"1\n")
        file = self.write("changes", b"require\tada\t100\nput\tada\t70\ndel\tbob\n")
        self.run_cli("apply", self.pool, file)
        refused = self.run_cli("apply", self.pool, file, expect=NEGATIVE).stderr
        self.assertIn(b"requirement 1 of the batch is not met", refused)
        self.assertEqual(self.output("dump", self.pool), b"a\\tb\tx\\ny\nada\t70\n")
        self.run_cli("apply", self.pool, "-", stdin=b"absent\tada\nput\tx\t1\n", expect=NEGATIVE)
        self.run_cli("apply", self.pool, "-", stdin=b"")
        self.assertTrue(self.json("check", self.pool, "--deep")["ok"])
        self.assertEqual(self.json("info", self.pool)["incompatible_features"], [1])

    def test_apply_of_bad_lines_changes_nothing(self):
        self.run_cli("create", self.pool)
        self.run_cli("put", self.pool, "0", "0", "--map", "visits", "--key", "u32",
                     "--value", "u64")
        for line, what in ((b"put\tx", "needs a key and a value"),
                           (b"del\tx\ty", "needs one field"),
                           (b"", "does not begin with put, del, require, absent or map"),
                           (b"erase\tx", "does not begin with"),
                           (b"put\tx\ty\tz", "too many tabs"),
                           (b"put\tx\\a\ty", "backslash"),
                           (b"map\tvisits\nput\t-1\t1", "is not a key of map 'visits'"),
                           (b"map\tvisits\nput\t1\tone", "is not a value of map 'visits'")):
            bad = self.errors("apply", self.pool, "-", stdin=b"put\ta\t1\n" + line + b"\n",
                              expect=USAGE)
            self.assertIn(what, bad)
            self.assertIn(f"line {2 + line.count(10)}: ", bad)
        self.assertIn("there is no map 'other'",
                      self.errors("apply", self.pool, "-", stdin=b"map\tother\n", expect=NEGATIVE))
        self.assertIn("cannot read", self.errors("apply", self.pool, self.folder / "none"))
        self.assertIn("cannot read", self.errors("apply", self.pool, self.folder))
        self.assertIn("no such file", self.errors("apply", self.folder / "none", "-"))
        self.assertEqual(self.output("dump", self.pool), b"")

    def test_keys_and_values_are_literal(self):
        for key, value in (("", ""), ("[a,b]", "{}"), ("a\\tb", "\\n"), ("%%", '"q"'),
                           ("@f", "a=b"), ("get", "list"), ("-5", "-1.5"),
                           ("tab\there", "line\nend")):
            self.run_cli("put", self.pool, key, value)
            self.assertEqual(self.output("get", self.pool, key), value.encode() + b"\n")
        for key, value in (("-k", "--map"), ("--", "++"), ("++", "--json")):
            self.run_cli("put", self.pool, "--", key, value)
            self.assertEqual(self.output("get", self.pool, "--", key), value.encode() + b"\n")
        raw = b"\xff\xfe\x01"
        self.run_cli("put", self.pool, raw, raw)
        self.assertEqual(self.output("get", self.pool, raw), raw + b"\n")

    def test_maps(self):
        self.create()
        self.run_cli("put", self.pool, "k", "other", "--map", "second")
        self.run_cli("get", self.pool, "k", expect=NEGATIVE)
        self.assertEqual(self.output("get", self.pool, "k", "--map", "second"), b"other\n")
        self.assertIn(b"third", self.run_cli("get", self.pool, "k", "--map", "third",
                                             expect=NEGATIVE).stderr)
        names = [map["name"] for map in self.json("list", self.pool)["maps"]]
        self.assertEqual(sorted(names), ["default", "second"])
        self.assertEqual(self.output("list", self.pool, "--map", "second"),
                         b"second\tphast\tbytes\tbytes\n")
        self.assertIn("--map NAME is required: the pool has default, second",
                      self.errors("drop", self.pool, expect=USAGE))
        self.assertEqual(self.json("list", self.pool)["maps"][0]["name"], "default")
        self.run_cli("drop", self.pool, "--map", "second")
        self.run_cli("drop", self.pool, "--map", "second", expect=NEGATIVE)
        self.run_cli("list", self.pool, "--map", "second", expect=NEGATIVE)
        self.assertEqual(self.output("list", self.pool), b"default\tphast\tbytes\tbytes\n")
        self.run_cli("put", self.pool, "k", "again", "--map", "second")
        self.assertEqual(self.output("scan", self.pool, "--map", "second"), b"k\tagain\n")

    def test_maps_of_integers(self):
        self.create("--key", "i32", "--value", "u16")
        self.assertEqual(self.output("list", self.pool), b"default\tphast\ti32\tu16\n")
        described = self.json("info", self.pool)["maps"][0]
        self.assertEqual((described["key_type"], described["value_type"]), ("i32", "u16"))
        entries = {"-2147483648": "0", "-7": "65535", "0": "1", "8": "2", "2147483647": "3"}
        for key, value in entries.items():
            self.run_cli("put", self.pool, "--", key, value)
        for key, value in entries.items():
            self.assertEqual(self.output("get", self.pool, "--", key), value.encode() + b"\n")
        text = "".join(f"{key}\t{value}\n" for key, value in entries.items()).encode()
        self.assertEqual(self.output("dump", self.pool), text)
        self.assertEqual(self.output("scan", self.pool, "--from", "-7", "--to", "8"),
                         b"-7\t65535\n0\t1\n")
        self.assertEqual(self.output("scan", self.pool, "--reverse", "--limit", "1"),
                         b"2147483647\t3\n")
        self.run_cli("del", self.pool, "0")
        self.run_cli("get", self.pool, "0", expect=NEGATIVE)
        for key in ("07", "+7", "-0", "7 ", "", "x", "2147483648", "0x7", "1e3"):
            self.assertIn("type i32, from -2147483648 to 2147483647",
                          self.errors("get", self.pool, "--", key, expect=USAGE))
        for value in ("65536", "-1", "", "0.5"):
            self.assertIn("type u16, from 0 to 65535",
                          self.errors("put", self.pool, "1", "--", value, expect=USAGE))
        self.assertIn("--from", self.errors("scan", self.pool, "--prefix", "1", expect=USAGE))
        # A dump loads into another map of the same types. A value that is no number is an error of
        # its line.
        other = str(self.folder / "other")
        self.run_cli("create", other, "--key", "i32", "--value", "u16")
        self.run_cli("load", other, self.write("dump.tsv", text), "--threads", "2")
        self.assertEqual(self.output("dump", other), text)
        errors = self.errors("load", other, self.write("bad.tsv", b"1\t1\nx\t2\n"))
        self.assertIn("type i32", errors)
        self.assertIn("line 2", errors)
        self.errors("create", str(self.folder / "third"), "--key", "u65", expect=USAGE)

    def test_maps_of_arrays(self):
        types = ("--key", "array:4", "--value", "array:9")
        for engine in ("level", "phast"):
            pool = str(self.folder / engine)
            self.run_cli("create", pool, "--engine", engine, *types)
            self.assertEqual(self.output("list", pool),
                             f"default\t{engine}\tarray:4\tarray:9\n".encode())
            self.assertEqual(self.json("info", pool)["maps"][0]["key"], "array")
            self.run_cli("put", pool, "user", "123456789")
            self.run_cli("put", pool, "uses", "12345678\u0001")
            self.assertEqual(self.output("get", pool, "user"), b"123456789\n")
            dump = self.output("dump", pool)
            self.assertEqual(sorted(dump.splitlines()),
                             [b"user\t123456789", b"uses\t12345678\x01"])
            for key in ("", "use", "users"):
                self.assertIn("4 bytes", self.errors("get", pool, "--", key, expect=USAGE))
            for value in ("", "12345678", "1234567890"):
                self.assertIn("9 bytes", self.errors("put", pool, "user", "--", value,
                                                     expect=USAGE))
        self.assertEqual(self.output("scan", pool, "--prefix", "use", "--limit", "1"),
                         b"user\t123456789\n")
        for wrong in (("--key", "array:17"), ("--value", "array:8"), ("--value", "array:16")):
            self.errors("create", str(self.folder / "wrong"), *wrong, expect=USAGE)

    def test_put_and_load_make_typed_maps(self):
        numbers = ["--map", "n", "--key", "u32", "--value", "u64"]
        # A refused command makes no file.
        self.assertIn("type u32", self.errors("put", self.pool, "k", "1", *numbers, expect=USAGE))
        self.assertFalse(os.path.exists(self.pool))
        self.run_cli("put", self.pool, "7", "1", *numbers)
        self.run_cli("load", self.pool, "-", "--map", "l", "--key", "i8", stdin=b"-1\tx\n")
        self.assertEqual(self.output("list", self.pool),
                         b"n\tphast\tu32\tu64\nl\tphast\ti8\tbytes\n")
        self.run_cli("put", self.pool, "8", "2", "--map", "n")
        self.run_cli("put", self.pool, "9", "3", *numbers)
        for wrong in (["--key", "u64"], ["--value", "bytes"], ["--key", "i32"]):
            errors = self.errors("put", self.pool, "9", "3", "--map", "n", *wrong, expect=USAGE)
            self.assertIn("keys of type u32 and values of type u64", errors)
        self.assertEqual(self.output("dump", self.pool, "--map", "n"), b"7\t1\n8\t2\n9\t3\n")

    def test_create(self):
        self.assertIn(b"created", self.create())
        self.assertIn("exists", self.errors("create", self.pool))
        other = self.errors("put", self.pool, "k", "v", "--engine", "level", expect=USAGE)
        self.assertIn("map 'default' is of engine phast, not level; leave out --engine, or use "
                      "another --map", other)
        other = str(self.folder / "other")
        created = self.json("create", other, "--max-size", "64M", "--engine", "phast",
                            "--durability", "process", "--map", "m")
        self.assertEqual((created["max_bytes"], created["durability"], created["map"]),
                         (64 << 20, "process", "m"))

    def test_max_size_of_an_existing_pool(self):
        for created in ("16M", "256M", str((3 << 20) - 7)):
            with self.subTest(created=created):
                self.run_cli("put", self.pool, "k", "v", "--max-size", created)
                size = self.json("info", self.pool)["max_bytes"]
                for other in ("512M", "4M"):
                    message = self.errors("put", self.pool, "k", "w", "--max-size", other,
                                          expect=USAGE)
                    self.assertIn(f"its maximum is {size} bytes, not the", message)
                    self.assertIn("perdure resize", self.errors(
                        "load", self.pool, "-", "--max-size", other, stdin=b"k\tx\n",
                        expect=USAGE))
                self.assertEqual(self.output("get", self.pool, "k"), b"v\n", "nothing changed")
                self.run_cli("put", self.pool, "k", "w", "--max-size", created)
                self.assertEqual(self.json("info", self.pool)["max_bytes"], size)
                os.unlink(self.pool)

    def test_resize(self):
        self.run_cli("create", self.pool, "--max-size", "1M")
        lines = tsv((b"%05d" % i, b"x" * 5000) for i in range(400))
        full = self.errors("load", self.pool, "-", stdin=lines)
        self.assertIn("the pool is full", full)
        self.assertIn("perdure resize", full)
        resized = self.json("resize", self.pool, "--max-size", "8M")
        self.assertEqual((resized["path"], resized["old_max_bytes"], resized["max_bytes"]),
                         (self.pool, 1 << 20, 8 << 20))
        self.run_cli("load", self.pool, "-", stdin=lines)
        self.assertEqual(self.output("dump", self.pool), lines)
        self.assertTrue(self.json("check", self.pool, "--deep")["ok"])
        info = self.json("info", self.pool)
        self.assertEqual((info["max_bytes"], info["incompatible_features"]), (8 << 20, [0]))
        self.assertRegex(self.output("info", self.pool), rb"incompatible features +resized\n")
        self.assertEqual(self.output("resize", self.pool, "--max-size", "16M").decode(),
                         f"resized {self.pool}: at most 16.0 MiB, before 8.0 MiB\n")
        self.assertEqual(self.output("dump", self.pool), lines)

    def test_resize_that_is_refused(self):
        self.assertIn("no such file", self.errors("resize", self.pool, "--max-size", "8M"))
        self.run_cli("create", self.pool, "--max-size", "4M")
        for size in ("4M", "1M"):
            self.assertIn("not larger than the present one of 4194304 bytes",
                          self.errors("resize", self.pool, "--max-size", size, expect=USAGE))
        self.assertIn("adds no room", self.errors("resize", self.pool, "--max-size",
                                                  str((4 << 20) + (16 << 10)), expect=USAGE))
        self.assertIn("from 1M to 4T",
                      self.errors("resize", self.pool, "--max-size", "5T", expect=USAGE))
        self.assertIn("--max-size", self.errors("resize", self.pool, expect=USAGE))
        with self.pool_in_use() as holder:
            self.assertIn(f"in use by process {holder.pid}",
                          self.errors("resize", self.pool, "--max-size", "8M", expect=BUSY))
        self.assertEqual(self.json("info", self.pool)["max_bytes"], 4 << 20)
        self.write("text", b"x" * 10000)
        self.assertIn("not a perdure pool",
                      self.errors("resize", self.folder / "text", "--max-size", "8M"))

    def test_layout_of_a_new_map(self):
        def stats(*arguments):
            pool = str(self.folder / "laid-out")
            self.output("create", pool, "--max-size", "256M", *arguments)
            found = self.json("stats", pool)["maps"][0]
            os.unlink(pool)
            return found

        for bits in (0, 3, 9):
            self.assertEqual(stats("--partition-bits", str(bits))["leaves"], 1 << bits)
        shifted = stats("--key", "u64", "--partition-bits", "4", "--partition-shift", "8")
        self.assertEqual(shifted["leaves"], 16)
        self.assertLess(stats("--capacity", "10")["leaves"], stats()["leaves"])
        for engine in ("level", "clevel"):
            small, large = (sum(level["slots"] for level in
                                stats("--engine", engine, "--capacity", capacity)["levels"])
                            for capacity in ("1", "100000"))
            self.assertGreaterEqual(large, 100000)
            self.assertLess(small, 10000)
        slots = [stats("--engine", "level", "--buckets", buckets)["levels"][0]["slots"]
                 for buckets in ("64", "4096")]
        self.assertEqual(slots[0] * 64, slots[1])
        self.run_cli("load", self.pool, "-", "--engine", "level", "--buckets", "4096",
                     stdin=b"k\tv\n")
        self.assertEqual(self.json("stats", self.pool)["maps"][0]["levels"][0]["slots"], slots[1])

    def test_layout_that_no_map_can_have(self):
        wrong = {("--partition-bits", "17"): "from 0 to 16",
                 ("--partition-bits", "4", "--partition-shift", "62"): "partition_shift 62",
                 ("--partition-bits", "4", "--engine", "clevel"): "engine phast, not clevel",
                 ("--partition-shift", "4", "--engine", "as"): "engine phast, not as",
                 ("--buckets", "100", "--engine", "level"): "power of two",
                 ("--buckets", "64"): "engine level, not phast",
                 ("--no-auto-shrink",): "engine level, not phast",
                 ("--capacity", "-1"): "--capacity",
                 ("--recovery-threads", "0"): "from 1 to 256",
                 ("--background-threads", "17"): "from 0 to 16"}
        for arguments, message in wrong.items():
            self.assertIn(message, self.errors("create", self.pool, *arguments, expect=USAGE))
            self.assertFalse(os.path.exists(self.pool), arguments)

    def test_verbose_and_threads(self):
        quiet = self.run_cli("create", self.pool, "--max-size", "256M", "--engine", "level")
        self.assertEqual(quiet.stderr, b"")
        threads = ("--recovery-threads", "2", "--background-threads", "2", "--interleave",
                   "--verbose")
        lines = tsv((b"%05d" % i, b"x") for i in range(5000))
        said = self.run_cli("load", self.pool, "-", *threads, stdin=lines).stderr.decode()
        self.assertIn(f"perdure: info: {self.pool}: opened in ", said)
        self.assertIn("map default: its table grew from", said)
        for command in (["get", "00007"], ["check"], ["stats"], ["sync"], ["compact"], ["dump"]):
            said = self.run_cli(command[0], self.pool, *command[1:], *threads).stderr.decode()
            self.assertIn("closed properly; 1 maps", said, command)
        copy = self.pool + ".copy"
        with self.pool_in_use():
            shutil.copy(self.pool, copy)
        said = self.run_cli("check", copy, "--accept", "--verbose").stderr.decode()
        self.assertIn("perdure: warning: ", said)
        self.assertIn("is accepted", said)

    def test_a_create_that_fails_leaves_no_file(self):
        self.errors("create", self.pool, "--map", "m" * 32, expect=USAGE)
        self.assertFalse(os.path.exists(self.pool))
        self.assertIn("phast, level, clevel",
                      self.errors("create", self.pool, "--engine", "nonesuch", expect=USAGE))
        self.assertFalse(os.path.exists(self.pool))
        self.create()

    def test_info_and_stats(self):
        self.create()
        self.run_cli("put", self.pool, "k", "v")
        info = self.json("info", self.pool)
        self.assertEqual(info["path"], self.pool)
        self.assertEqual(info["max_bytes"], 256 << 20)
        self.assertEqual((info["clean"], info["synced"], info["trusted"], info["in_use"]),
                         (True, True, True, False))
        self.assertEqual([map["name"] for map in info["maps"]], ["default"])
        self.assertIn(b"nothing acknowledged is lost", self.output("info", self.pool))
        stats = self.json("stats", self.pool)
        self.assertEqual([(map["name"], map["entries"]) for map in stats["maps"]], [("default", 1)])
        self.assertEqual(stats["max_bytes"], 256 << 20)
        self.assertEqual(stats["used_bytes"], stats["file_bytes"] - stats["free_bytes"])
        self.assertGreater(stats["used_bytes"], stats["assigned_bytes"])
        self.assertGreater(stats["disk_bytes"], 0)
        text = self.output("stats", self.pool)
        self.assertRegex(text, rb"\nused +\d.* of at most 256\.0 MiB \(\d+\.\d%\)\n")
        self.assertIn(b"entries", text)

    def test_stats_print_what_the_engine_has(self):
        shown = {"phast": (b"leaves", b"table"), "level": (b"table", b"leaves"),
                 "clevel": (b"table", b"leaves"), "as": (b"height", b"leaves"),
                 "ascs": (b"height", b"table"), "pskiplist": (b"leaves", b"table")}
        message = self.errors("create", self.pool, "--engine", "nonesuch", expect=USAGE)
        self.assertLessEqual(set(shown), set(message.split("(")[1].split(")")[0].split(", ")))
        for engine, (has, lacks) in shown.items():
            pool = f"{self.pool}-{engine}"
            self.run_cli("create", pool, "--engine", engine)
            if has == b"table":
                self.assertNotIn(b"% full", self.output("stats", pool))
            for key in range(9):
                self.run_cli("put", pool, str(key), "v")
            text = self.output("stats", pool)
            self.assertIn(has, text)
            self.assertNotIn(lacks, text)

    def test_sync_compact_check(self):
        self.create()
        self.run_cli("load", self.pool, "-", stdin=tsv((b"%05d" % i, b"x" * 500)
                                                       for i in range(5000)))
        self.assertTrue(self.json("sync", self.pool)["synced"])
        copy = self.folder / "copy"
        shutil.copyfile(self.pool, copy)
        self.assertEqual(self.output("get", copy, "00042"), b"x" * 500 + b"\n")
        report = self.json("check", self.pool, "--deep")
        self.assertEqual((report["ok"], report["violations"]), (True, []))
        self.assertGreaterEqual(report["entries"], 5000)
        self.run_cli("drop", self.pool, "--map", "default")
        before = self.json("stats", self.pool)
        given_back = self.json("compact", self.pool)["given_back_bytes"]
        self.assertGreater(given_back, 1 << 20)
        self.assertEqual(self.json("compact", self.pool)["given_back_bytes"], 0)
        after = self.json("stats", self.pool)
        self.assertLess(after["disk_bytes"], before["disk_bytes"] - given_back // 2)
        self.assertIn(b"ok", self.output("check", self.pool))
        self.assertIn(b"every key and checksum verified", self.output("check", self.pool,
                                                                      "--accept"))

    def test_check_counts_the_entries_of_users(self):
        self.run_cli("load", self.pool, self.write("in.tsv", b"a\t1\nb\t2\n"))
        self.assertIn(b".load", self.output("list", self.pool, "--all"))
        self.assertEqual(self.json("check", self.pool)["entries"], 2)

    def damage(self, *needles):
        """Flips a bit beside each needle, once, in the closed pool."""
        content = bytearray(pathlib.Path(self.pool).read_bytes())
        for needle in needles:
            content[content.index(needle)] ^= 1
        pathlib.Path(self.pool).write_bytes(content)

    def test_check_of_a_damaged_pool_says_all_that_is_wrong(self):
        self.run_cli("load", self.pool, "-", "--key", "u64", "--value", "u64", "--map", "n",
                     stdin=tsv((b"%d" % (i << 44), b"%d" % (i + (0xABCDEF << 32)))
                               for i in range(1, 20000)))
        self.run_cli("put", self.pool, "k", "some value or other")
        before = pathlib.Path(self.pool).read_bytes()
        self.damage(*((i + (0xABCDEF << 32)).to_bytes(8, "little") for i in (1, 9000, 19000)),
                    b"some value or other")
        damaged = pathlib.Path(self.pool).read_bytes()
        self.assertNotEqual(before, damaged)
        self.errors("get", self.pool, "k")
        for arguments in ([], ["--deep"], ["--read-only"], ["--accept"]):
            with self.subTest(arguments=arguments):
                report = self.json("check", self.pool, *arguments, expect=NEGATIVE)
                self.assertFalse(report["ok"])
                leaves = [text for text in report["violations"] if "checksum" in text]
                self.assertGreaterEqual(len(set(leaves)), 3, report)
                self.assertEqual(report["violation_count"], len(report["violations"]))
                text = self.output("check", self.pool, *arguments, expect=NEGATIVE)
                self.assertIn(b"violation: ", text)
                self.assertIn(b"NOT OK: %d violations; " % report["violation_count"], text)
                self.assertNotIn(b"verified", text)
        deep = self.json("check", self.pool, "--deep", expect=NEGATIVE)["violations"]
        self.assertTrue(any("record" in text for text in deep), deep)
        for text in deep:
            self.assertRegex(text, "^map (n|default): ")
            self.assertEqual("record" in text, text.startswith("map default: "), text)
        self.assertEqual(pathlib.Path(self.pool).read_bytes(), damaged, "it is only read")

    def test_check_of_what_is_no_pool_is_json_too(self):
        self.write("pool.perdure", b"no pool" * 10000)
        report = self.json("check", self.pool, expect=FAILURE)
        self.assertFalse(report["ok"])
        self.assertIn("not a perdure pool", report["error"])

    def test_scan(self):
        entries = [(b"user:%d" % i, b"v%d" % i) for i in range(10)] + [(b"a", b"\t\n\\\0"),
                                                                      (b"\xff\xff", b"last")]
        self.run_cli("load", self.pool, "-", stdin=tsv(entries))
        entries.sort()
        self.assertEqual(self.output("scan", self.pool), tsv(entries))
        self.assertEqual(self.output("scan", self.pool, "--reverse"), tsv(reversed(entries)))
        self.assertEqual(self.output("scan", self.pool, "--prefix", "user:", "--limit", "3"),
                         tsv(entries[1:4]))
        self.assertEqual(self.output("scan", self.pool, "--prefix", "user:", "--reverse", "--limit",
                                     "1"), b"user:9\tv9\n")
        self.assertEqual(self.output("scan", self.pool, "--from", "user:3", "--to", "user:5"),
                         tsv(entries[4:6]))
        self.assertEqual(self.output("scan", self.pool, "--prefix", b"\xff"), b"\xff\xff\tlast\n")
        self.assertEqual(self.output("scan", self.pool, "--from", "z", "--to", "b"), b"")
        self.assertEqual(self.output("scan", self.pool, "--to", ""), b"")
        self.assertEqual(self.output("scan", self.pool, "--limit", "0"), b"")

    def test_reader_that_goes_away(self):
        self.run_cli("load", self.pool, "-", stdin=tsv((b"%06d" % i, b"x" * 100)
                                                       for i in range(20000)))
        for command in ("scan", "dump"):
            process = subprocess.Popen([CLI, command, self.pool], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
            process.stdout.readline()
            process.stdout.close()
            self.assertEqual((process.wait(), process.stderr.read()), (DONE, b""))
            process.stderr.close()
            self.assertTrue(self.json("info", self.pool)["clean"])

    def test_full_output(self):
        self.run_cli("put", self.pool, "k", "v")
        with open("/dev/full", "wb") as full:
            for command in (["get", self.pool, "k"], ["scan", self.pool], ["dump", self.pool]):
                done = subprocess.run([CLI, *command], stdout=full, stderr=subprocess.PIPE,
                                      check=False)
                self.assertEqual((done.returncode, b"standard output" in done.stderr),
                                 (FAILURE, True))


class UsageTest(CliTest):
    def test_usage_errors(self):
        self.create()
        for arguments in ([], ["frobnicate"], ["get"], ["get", self.pool], ["put", self.pool, "k"],
                          ["put", self.pool, "k", "v", "more"], ["get", self.pool, "k", "--nope"],
                          ["scan", self.pool, "--limit", "many"],
                          ["scan", self.pool, "--limit", "-1"],
                          ["create", self.pool + "2", "--engine", "btree"],
                          ["create", self.pool + "2", "--max-size", "3X"],
                          ["create", self.pool + "2", "--max-size", "1K"],
                          ["create", self.pool + "2", "--key", "u65"],
                          ["load", self.pool, "-", "--skip", "-1"],
                          ["put", self.pool, "k" * 70000, "v"],
                          ["create", self.pool + "2", "--max-size", "99999999999G"],
                          ["create", self.pool + "2", "--durability", "maybe"],
                          ["load", self.pool], ["load", self.pool, "-", "--threads", "0"],
                          ["tag"], ["snapshot", self.pool], ["diff", self.pool, "1"],
                          ["get", self.pool, "k", "--version", "0"], ["trim", self.pool, "one"],
                          ["load", self.pool, "-", "--tag-every", "0"],
                          ["info"], ["check", self.pool, "--map", "default"], ["--nope"],
                          ["scan", self.pool, "--from"], ["incr", self.pool, "k", "many"],
                          ["restore", "a", "b", "--epoch", "x"], ["bench", "--nope"],
                          ["bench", "--records", "many"]):
            with self.subTest(arguments=arguments):
                done = subprocess.run([CLI, *arguments], stdin=subprocess.DEVNULL, check=False,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.assertEqual(done.returncode, USAGE, done)
                if arguments:
                    self.assertRegex(done.stderr, rb"^perdure: [^\n]+; [^\n]+\n$")
                for words in (b"Could not convert", b"not expected", b"required KEY"):
                    self.assertNotIn(words, done.stderr)
        self.assertFalse(os.path.exists(self.pool + "2"))

    def test_a_key_that_looks_like_an_option(self):
        for arguments in (["put", self.pool, "-k", "v"], ["get", self.pool, "-k"],
                          ["del", self.pool, "--map=x", "--key"]):
            self.assertIn(": there is no such option of " + arguments[0] + "; write -- before a "
                          "key or value that begins with -", self.errors(*arguments, expect=USAGE))
        self.run_cli("put", self.pool, "--", "-k", "v")
        self.assertEqual(self.output("get", self.pool, "--", "-k"), b"v\n")
        self.assertNotIn("--", self.errors("info", self.pool, "more", expect=USAGE).split(";")[0])

    def test_messages_call_standard_input_by_one_name(self):
        self.create()
        for command in ("load", "apply"):
            message = self.errors(command, self.pool, "-", stdin=b"no line\n",
                                  expect=USAGE if command == "apply" else FAILURE)
            self.assertIn("perdure: standard input: line 1: ", message)
            self.assertNotIn("-: ", message)


class TextFormTest(CliTest):
    def test_round_trip_of_any_bytes(self):
        seed = random.randrange(1 << 32)
        with self.subTest(seed=seed):
            rng = random.Random(seed)
            entries = {b"": b"", b"empty value": b"", b"\0": b"\0\0", b"nul\0key": b"nul\0value",
                       b"\\": b"\\\\", b"\t": b"\n", b"\\t": b"\\n", b"\r": b"\r\n",
                       b"\xff" * 9: b"\xff", b"k" * 65535: b"longest key",
                       b"large": rng.randbytes(1 << 20)}
            for _ in range(500):
                entries[rng.randbytes(rng.randrange(40))] = rng.randbytes(rng.randrange(300))
            text = tsv(sorted(entries.items()))
            source = self.write("in.tsv", text)
            self.run_cli("load", self.pool, source, "--threads", "3")
            self.assertEqual(self.output("dump", self.pool), text)
            self.run_cli("dump", self.pool, self.folder / "out.tsv")
            self.assertEqual((self.folder / "out.tsv").read_bytes(), text)
            other = self.folder / "other"
            self.run_cli("load", other, "-", stdin=text)
            self.assertEqual(self.output("dump", other, "-"), text)

    def test_last_line_without_newline(self):
        done = self.run_cli("load", self.pool, "-", stdin=b"a\t1\nb\t2")
        self.assertTrue(done.stderr.endswith(b"acknowledged 2\n"))
        self.assertEqual(self.output("dump", self.pool), b"a\t1\nb\t2\n")

    def test_empty_input(self):
        done = self.run_cli("load", self.pool, "-")
        self.assertTrue(done.stderr.endswith(b"acknowledged 0\n"))
        self.run_cli("load", self.pool, self.write("empty", b""))

    def test_equal_keys_last_wins_with_any_threads(self):
        lines = b"".join(b"key%d\t%d\n" % (i % 7, i) for i in range(30000))
        self.run_cli("load", self.pool, "-", "--threads", "4", stdin=lines)
        expected = b"".join(b"key%d\t%d\n" % (i, max(range(29990, 30000), key=lambda n:
                            (n % 7 == i, n))) for i in range(7))
        self.assertEqual(self.output("dump", self.pool), expected)

    def test_bad_lines(self):
        for number, line in enumerate((b"no tab", b"", b"k\tv\tmore", b"k\\x\tv", b"k\tv\\",
                                       b"k" * 65536 + b"\tv")):
            with self.subTest(line=line[:10]):
                source = self.write(f"{number}.tsv", b"a\t1\nb\t2\n" + line + b"\nc\t3\n")
                pool = self.folder / f"{number}.perdure"
                message = self.errors("load", pool, source)
                self.assertIn("line 3", message)
                self.assertIn("acknowledged 2\n", message)
                self.assertEqual(self.output("dump", pool), b"a\t1\nb\t2\n")
                outcome = self.json("load", pool, source, "--skip-bad")
                self.assertEqual((outcome["bad_lines"], outcome["acknowledged"]), (1, 4))
                self.assertEqual(self.output("dump", pool), b"a\t1\nb\t2\nc\t3\n")

    def test_not_a_tsv(self):
        source = self.write("zeros", bytes(1 << 20))
        self.assertIn("line 1", self.errors("load", self.pool, source))

    def test_dump_replaces_whole_files_only(self):
        self.run_cli("put", self.pool, "k", "v")
        target = self.write("out", b"old")
        target.chmod(0o640)
        link = self.folder / "link"
        link.symlink_to(target)
        self.run_cli("dump", self.pool, link)
        self.assertTrue(link.is_symlink())
        self.assertEqual((target.read_bytes(), target.stat().st_mode & 0o777), (b"k\tv\n", 0o640))
        self.run_cli("dump", self.pool, "/dev/null")
        self.errors("dump", self.pool, self.folder / "nowhere" / "out")
        self.errors("dump", self.pool, self.folder)
        self.run_cli("dump", self.pool, target, "--map", "none", expect=NEGATIVE)
        self.assertEqual(target.read_bytes(), b"k\tv\n")
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".tmp")], [])


class BenchTest(CliTest):
    def test_is_reached(self):
        self.assertIn(b"--workload", self.output("bench", "--help"))

    def bench(self, *arguments):
        return self.json("bench", "--path", self.pool, "--durability", "emulated",
                         "--records", "2K", *arguments)

    def test_workloads_of_versions(self):
        for options in ((), ("--threads", "2", "--key", "string:20", "--value", "string:30")):
            with self.subTest(options=options):
                result = self.bench("--engine", "pskiplist", "--operations", "3K", "--workload",
                                    "load,tag,update,tag,delete,read_version,history,snapshot",
                                    *options)
                phases = {phase["name"]: phase for phase in result["phases"]}
                self.assertEqual((result["missing"], phases["tag"]["operations"]), (0, 3000))
                self.assertEqual(phases["read_version"]["operations"], 3000)
                # Counts keys; each thread reads one version.
                threads = 2 if options else 1
                self.assertLessEqual(phases["snapshot"]["operations"], 8000 * threads)
                self.assertGreater(phases["snapshot"]["operations"], 100 * threads)

    def test_dependent_operations(self):
        workload = "load,insert,read,read_batch,read_missing,update,read,delete"
        for engine in ENGINES:
            for options in ((), ("--threads", "2", "--key", "string:20", "--value", "string:30")):
                with self.subTest(engine=engine, options=options):
                    result = self.bench("--engine", engine, "--operations", "1K", "--dependent",
                                        "--workload", workload, *options)
                    self.assertEqual((result["missing"], result["dependent"]), (0, True))
                    self.assertNotIn("unexpected", result)

    def test_keys_as_people_have_them(self):
        lines = self.write("lines", b"".join(b"line %d\n" % n for n in range(3000)))
        workload = "load,insert,read,read_missing,insert_many,update,delete,read"
        for engine, threads in (("phast", "2"), ("level", "1")):
            for keys in ("ids", "times", "paths", "urls", "uuid", "words", f"file:{lines}"):
                with self.subTest(engine=engine, keys=keys):
                    result = self.bench("--engine", engine, "--threads", threads, "--keys", keys,
                                        "--operations", "400", "--workload", workload)
                    self.assertEqual((result["missing"], result["keys"]),
                                     (0, keys.partition(":")[0]))
                    self.assertNotIn("unexpected", result)
                    integers = keys in ("ids", "times")
                    self.assertEqual(result["key"], "u64" if integers else "string")
                    if integers:
                        self.assertIsNone(result["key_bytes"])
                    else:
                        self.assertTrue(8 <= result["key_bytes"] <= 100, result["key_bytes"])
        result = self.bench("--engine", "pskiplist", "--threads", "2", "--keys", "times",
                            "--operations", "1K", "--workload",
                            "load,tag,read_version,scan,scan_mixed,snapshot")
        self.assertEqual(result["missing"], 0)
        self.assertNotIn("unexpected", result)
        self.assertIn(b"keys uuid of 36.0 bytes", self.output(
            "bench", "--path", self.pool, "--records", "100", "--keys", "uuid"))

    def test_keys_that_cannot_be(self):
        lines = self.write("lines", b"a\nb\n\na\nc\n")
        for options, status, message in (
                (("--keys", "id"), USAGE, "unknown keys 'id'"),
                (("--keys", "ids", "--key", "u64"), USAGE, "leave out --key u64"),
                (("--keys", "ids", "--distribution", "sequential"), USAGE,
                 "leave out --distribution sequential"),
                (("--keys", "urls", "--distribution", "clustered"), USAGE,
                 "leave out --distribution clustered"),
                (("--keys", "ids", "--workload", "load,ycsb_a"), USAGE, "leave out --keys ids"),
                (("--keys", f"file:{lines}", "--records", "2", "--workload", "load,insert"), USAGE,
                 "has 3 distinct lines, but the workloads insert 4 keys"),
                (("--keys", f"file:{self.folder}"), FAILURE, "Is a directory"),
                (("--keys", f"file:{lines}x"), FAILURE, "No such file"),
                (("--keys", "file:" + str(self.write("long", b"a\n" + b"x" * 65536))), USAGE,
                 "line 2 has 65536 bytes")):
            with self.subTest(options=options):
                self.assertIn(message, self.errors("bench", "--path", self.pool, *options,
                                                   expect=status))
        self.assertFalse(os.path.exists(self.pool))

    def test_names_of_db_bench(self):
        for workload, phases, options in (
                ("fillseq,readrandom,readmissing,overwrite",
                 ["load", "read", "read_missing", "update"], ("--keys", "ids")),
                ("fillseq,read,deleteseq", ["load", "read", "delete"],
                 ("--distribution", "sequential", "--key", "string:16", "--threads", "2")),
                ("filluniquerandom,overwrite,readrandom", ["load", "update", "read"], ()),
                ("filluniquerandom,readrandom", ["load", "read"], ("--keys", "uuid"))):
            with self.subTest(workload=workload, options=options):
                result = self.bench("--workload", workload, *options)
                self.assertEqual([phase["name"] for phase in result["phases"]], phases)
                self.assertEqual([phase["operations"] for phase in result["phases"]],
                                 [2000] * len(phases))
                self.assertEqual(result["missing"], 0)
        self.assertIn(b"fillseq filluniquerandom",
                      b" ".join(self.output("bench", "--help").split()))

    def test_names_of_db_bench_that_mean_something_else(self):
        for workload, options, message in (
                ("fillseq", (), "needs new keys that ascend"),
                ("fillseq", ("--keys", "uuid"), "needs new keys that ascend"),
                ("filluniquerandom", ("--distribution", "sequential"), "keys in random order"),
                ("filluniquerandom", ("--keys", "times"), "keys in random order"),
                ("load,readrandom", ("--distribution", "zipfian"), "chooses keys uniformly"),
                ("load,overwrite", ("--distribution", "latest"), "chooses keys uniformly"),
                ("load,readmissing", ("--distribution", "sequential"), "chooses keys uniformly"),
                ("load,deleteseq", (), "takes keys in ascending order"),
                ("load,filluniquerandom", (), "fills an empty database; put it first$")):
            with self.subTest(workload=workload, options=options):
                name = workload.rpartition(",")[2]
                other = "" if message.endswith("$") else ".*, or the workload '"
                self.assertRegex(
                    self.errors("bench", "--path", self.pool, "--workload", workload, *options,
                                expect=USAGE).strip(),
                    f"workload '{name}' .*{message}{other}")
        for name in ("fillrandom", "readseq", "seekrandom", "deleterandom", "Fillseq"):
            message = self.errors("bench", "--path", self.pool, "--workload", name, expect=USAGE)
            self.assertIn(f"unknown workload '{name}'; known: load insert", message)
            self.assertIn("names of db_bench: fillseq filluniquerandom overwrite readrandom "
                          "readmissing deleteseq", message)
        self.assertFalse(os.path.exists(self.pool))

    def test_scans_between_inserts(self):
        workload = "load,scan_mixed,read"
        for engine in ("phast", "as", "pskiplist"):
            for threads in ("1", "2"):
                result = self.bench("--engine", engine, "--threads", threads,
                                    "--workload", workload)
                self.assertEqual(result["missing"], 0)
                self.assertEqual(result["phases"][1]["operations"], 2000)
        self.errors("bench", "--path", self.pool, "--engine", "level", "--workload", workload,
                    expect=USAGE)

    def test_the_heap_alone(self):
        for threads in (1, 2):
            cost = self.json("bench", "--heap", "--threads", str(threads))
            self.assertEqual(cost["threads"], threads)
            self.assertGreater(cost["pair_ns"], 0)
            self.assertAlmostEqual(cost["pairs_per_s"] * cost["pair_ns"] / 1e9, threads, places=3)
            self.assertLess(cost["fences_per_pair"], 0.01)
        self.assertIn(b"2 threads: ", self.output("bench", "--heap", "--threads", "2"))

    def test_dependent_where_it_makes_no_sense(self):
        for workload in ("scan", "scan_mixed", "churn", "ycsb_a"):
            message = self.errors("bench", "--path", self.pool, "--dependent",
                                  "--workload", f"load,read,{workload}", expect=USAGE)
            self.assertIn(f"--dependent is not possible with workload '{workload}'", message)
        for options in (("--workload", "load"), ("--calibrate",), ("--heap",)):
            message = self.errors("bench", "--path", self.pool, "--dependent", *options,
                                  expect=USAGE)
            self.assertIn("--dependent changes none of the workloads", message)
        self.assertFalse(os.path.exists(self.pool))

    def test_engines_without_versions_are_refused(self):
        for workload in ("tag", "read_version", "history", "snapshot"):
            for engine in ("phast", "clevel"):
                message = self.errors("bench", "--engine", engine, "--path", self.pool,
                                      "--workload", f"load,tag,{workload}", expect=USAGE)
                self.assertIn(f"{engine} keeps no versions; use pskiplist", message)
                self.assertFalse(os.path.exists(self.pool))


if __name__ == "__main__":
    unittest.main()
