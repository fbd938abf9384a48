"""The command line, as scripts see it: exit statuses, output, what a kill leaves, bad input."""

import contextlib
import json
import os
import pathlib
import pty
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLI = os.environ.get("PERDURE_CLI", str(ROOT / "build/release/perdure"))
DONE, NEGATIVE, USAGE, FAILURE = 0, 1, 2, 3
COMMANDS = ("create", "info", "list", "drop", "sync", "compact", "check", "put", "get", "del",
            "scan", "load", "dump", "stats", "tag", "history", "snapshot", "diff", "trim",
            "rollback", "bench")
SMALL = os.environ.get("PERDURE_SAN") == "1"


def scratch_root():
    """Main memory where there is room: containers often have 64 MiB of /dev/shm."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage("/dev/shm").free >= 1 << 30:
            return "/dev/shm"
    return None


def escape(text):
    return text.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n")


def tsv(entries):
    return b"".join(escape(k) + b"\t" + escape(v) + b"\n" for k, v in entries)


class CliTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="perdure-cli.", dir=scratch_root())
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.pool = str(self.folder / "pool.perdure")

    def run_cli(self, *arguments, stdin=b"", expect=DONE, **options):
        """Runs the command line; checks its status and that every error is told as it should be."""
        done = subprocess.run([CLI, *map(os.fspath, arguments)], input=stdin, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                              **options)
        self.assertEqual(done.returncode, expect, (arguments, done.stdout[-500:], done.stderr))
        if expect in (USAGE, FAILURE):
            self.assertIn(b"perdure: ", done.stderr)
            self.assertIn(b"; ", done.stderr, "an error says what to do")
        return done

    def output(self, *arguments, **options):
        return self.run_cli(*arguments, **options).stdout

    def errors(self, *arguments, expect=FAILURE, **options):
        return self.run_cli(*arguments, expect=expect, **options).stderr.decode(errors="replace")

    def json(self, *arguments, **options):
        return json.loads(self.output(*arguments, "--json", **options))

    def create(self, *arguments):
        return self.output("create", self.pool, "--max-size", "256M", *arguments)

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path

    @contextlib.contextmanager
    def pool_in_use(self):
        """A process that has the pool open, with one entry in it, until the block ends."""
        holder = subprocess.Popen([CLI, "load", self.pool, "-"], stdin=subprocess.PIPE,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            holder.stdin.write(b"held\tvalue\n")
            holder.stdin.flush()
            for line in holder.stderr:
                if line == b"acknowledged 1\n":
                    break
            else:
                self.fail("the holder ended")
            yield holder
        finally:
            if holder.poll() is None:
                holder.kill()
            holder.wait()
            with contextlib.suppress(BrokenPipeError):
                holder.stdin.close()
            holder.stderr.close()


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
            self.assertIn("type i32", self.errors("get", self.pool, "--", key, expect=USAGE))
        for value in ("65536", "-1", "", "0.5"):
            self.assertIn("type u16", self.errors("put", self.pool, "1", "--", value,
                                                  expect=USAGE))
        self.assertIn("--from", self.errors("scan", self.pool, "--prefix", "1", expect=USAGE))
        # A dump loads into another map of the same types; what is no number is a line's fault.
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
        # Nothing is made by a command that is refused.
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
        other = str(self.folder / "other")
        created = self.json("create", other, "--max-size", "64M", "--engine", "phast",
                            "--durability", "process", "--map", "m")
        self.assertEqual((created["max_bytes"], created["durability"], created["map"]),
                         (64 << 20, "process", "m"))

    def test_a_create_that_fails_leaves_no_file(self):
        self.errors("create", self.pool, "--map", "m" * 32, expect=USAGE)
        self.assertFalse(os.path.exists(self.pool))
        self.assertIn("phast, level, clevel",
                      self.errors("create", self.pool, "--engine", "nonesuch", expect=USAGE))
        self.assertFalse(os.path.exists(self.pool))
        self.create()

    def test_durability_of_create_stays(self):
        self.create("--durability", "emulated")
        self.run_cli("put", self.pool, "k", "v")
        self.assertEqual(self.json("info", self.pool)["durability"], "emulated")
        self.run_cli("put", self.pool, "k", "v", "--durability", "process")
        self.assertEqual(self.json("info", self.pool)["durability"], "process")

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
        self.assertGreater(stats["file_bytes"], 0)
        self.assertIn(b"entries", self.output("stats", self.pool))

    def test_stats_print_what_the_engine_has(self):
        for engine, has, lacks in (("phast", b"leaves", b"table"), ("level", b"table", b"leaves"),
                                   ("clevel", b"table", b"leaves"), ("as", b"height", b"leaves"),
                                   ("ascs", b"height", b"table"),
                                   ("pskiplist", b"leaves", b"table")):
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
        self.run_cli("drop", self.pool)
        self.assertGreater(self.json("compact", self.pool)["given_back_bytes"], 1 << 20)
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

    def test_check_shows_a_bar_on_a_terminal_only(self):
        entries = [(b"key%07d" % i, b"v" * 64) for i in range(20_000)]
        self.run_cli("load", self.pool, "-", stdin=tsv(entries))
        self.assertEqual(self.run_cli("check", self.pool, "--deep").stderr, b"")
        leader, terminal = pty.openpty()
        shown = b""
        with os.fdopen(leader, "rb", buffering=0) as screen:
            with subprocess.Popen([CLI, "check", self.pool, "--deep"], stderr=terminal,
                                  stdout=subprocess.DEVNULL) as check:
                os.close(terminal)
                with contextlib.suppress(OSError):  # EIO: nobody holds the other end
                    while text := screen.read(4096):
                        shown += text
                self.assertEqual(check.wait(), DONE)
        self.assertRegex(shown, rb"\r\x1b\[K\[[#.]{24}\] +\d+%  .* of .*ETA \d+:\d\d")
        self.assertTrue(shown.endswith(b"\r\x1b[K"), "the line is taken away at the end")

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
                self.assertIn(b"NOT OK", text)
        deep = self.json("check", self.pool, "--deep", expect=NEGATIVE)["violations"]
        self.assertTrue(any("record" in text for text in deep), deep)
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
                          ["info"], ["check", self.pool, "--map", "default"]):
            with self.subTest(arguments=arguments):
                done = subprocess.run([CLI, *arguments], stdin=subprocess.DEVNULL, check=False,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.assertEqual(done.returncode, USAGE, done)
                self.assertNotEqual(done.stderr, b"")
                self.assertNotIn(b"Could not convert", done.stderr)
        self.assertFalse(os.path.exists(self.pool + "2"))


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


class LoadTest(CliTest):
    LINES = 20_000 if SMALL else 200_000

    def big_input(self):
        entries = [(b"key%07d" % (i * 7919 % self.LINES), b"value of %d" % i)
                   for i in range(self.LINES)]
        return self.write("big.tsv", tsv(entries)), entries

    def load_and_signal(self, source, signal_number, threads, at):
        """Signals the loader once `at` lines are acknowledged. Answers the last number it said."""
        loader = subprocess.Popen([CLI, "load", self.pool, source, "--threads", str(threads)],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        acknowledged, sent = 0, False
        for line in loader.stderr:
            if line.startswith(b"acknowledged ") and line.endswith(b"\n"):
                acknowledged = int(line.split()[1])
            if acknowledged >= at and not sent:
                loader.send_signal(signal_number)
                sent = True
        loader.stderr.close()
        return loader.wait(), acknowledged

    def test_nothing_acknowledged_is_lost(self):
        source, entries = self.big_input()
        for threads in (1, 3):
            with self.subTest(threads=threads), contextlib.ExitStack() as stack:
                stack.callback(lambda: os.path.exists(self.pool) and os.unlink(self.pool))
                status, acknowledged = self.load_and_signal(source, signal.SIGKILL, threads,
                                                            self.LINES // 4)
                if status == DONE:
                    self.skipTest("the machine was too busy to kill the loader in time")
                self.assertEqual(status, -signal.SIGKILL)
                dumped = set(self.output("dump", self.pool).split(b"\n")[:-1])
                lines = tsv(entries).split(b"\n")[:-1]
                self.assertTrue(dumped.issuperset(lines[:acknowledged]))
                self.assertTrue(dumped.issubset(lines))
                self.run_cli("check", self.pool, "--deep")

                done = self.run_cli("load", self.pool, source, "--threads", str(threads))
                self.assertIn(b"resuming", done.stderr)
                first = next(line for line in done.stderr.split(b"\n") if b"acknowledged" in line)
                self.assertGreaterEqual(int(first.split()[1]), acknowledged)
                self.assertTrue(done.stderr.endswith(b"acknowledged %d\n" % self.LINES))
                self.assertEqual(self.output("dump", self.pool), tsv(sorted(entries)))

    def test_interrupt(self):
        source, entries = self.big_input()
        status, acknowledged = self.load_and_signal(source, signal.SIGTERM, 2, self.LINES // 8)
        if status == DONE:
            self.skipTest("the machine was too busy to stop the loader in time")
        self.assertEqual(status, FAILURE)
        self.assertTrue(self.json("info", self.pool)["clean"])
        outcome = self.json("load", self.pool, source)
        self.assertEqual((outcome["resumed_at"], outcome["acknowledged"]),
                         (acknowledged, self.LINES))
        self.assertEqual(self.output("dump", self.pool), tsv(sorted(entries)))

    def test_interrupt_while_waiting_for_input(self):
        with self.pool_in_use() as holder:
            holder.send_signal(signal.SIGINT)
            self.assertEqual(holder.wait(timeout=20), FAILURE)
        self.assertEqual(self.output("get", self.pool, "held"), b"value\n")

    def test_loaded_already(self):
        source = self.write("in.tsv", b"a\t1\nb\t2\n")
        self.assertEqual(self.json("load", self.pool, source)["records"], 2)
        done = self.run_cli("load", self.pool, source)
        self.assertIn(b"loaded already", done.stderr)
        self.assertTrue(done.stderr.endswith(b"acknowledged 2\n"))
        # By another name, but the same file; then into another map, which knows nothing of it.
        (self.folder / "link").symlink_to(source)
        self.assertEqual(self.json("load", self.pool, self.folder / "link")["records"], 0)
        self.assertEqual(self.json("load", self.pool, source, "--map", "m")["records"], 2)
        self.assertEqual(self.json("load", self.pool, source, "--restart")["records"], 2)
        self.run_cli("drop", self.pool)
        self.assertEqual(self.json("load", self.pool, source)["records"], 2)

    def test_changed_input_starts_over(self):
        source = self.write("in.tsv", b"a\t1\nb\t2\n")
        self.run_cli("load", self.pool, source)
        before = source.stat()
        for content in (b"a\t5\nb\t6\n", b"a\t1\nb\t2\nc\t3\n"):  # same size; same beginning
            source.write_bytes(content)
            os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
            done = self.run_cli("load", self.pool, source)
            self.assertIn(b"has changed", done.stderr)
            self.assertEqual(self.output("dump", self.pool), content)

    def test_skip(self):
        lines = b"a\t1\nb\t2\nc\t3\n"
        outcome = self.json("load", self.pool, "-", "--skip", "2", stdin=lines)
        self.assertEqual((outcome["records"], outcome["acknowledged"]), (1, 3))
        self.assertEqual(self.output("dump", self.pool), b"c\t3\n")

    def test_full_pool(self):
        self.run_cli("create", self.pool, "--max-size", "8M")
        source = self.write("in.tsv", tsv((b"%06d" % i, b"x" * 1000) for i in range(20000)))
        message = self.errors("load", self.pool, source)
        acknowledged = int(message.split("acknowledged ")[-1].split()[0])
        self.assertIn(f"line {acknowledged + 1} of ", message)
        self.assertGreater(acknowledged, 1000)
        self.assertEqual(self.output("dump", self.pool).count(b"\n"), acknowledged)
        self.run_cli("del", self.pool, "000000")
        self.run_cli("check", self.pool)


class VersionsTest(CliTest):
    def put(self, key, value):
        self.run_cli("put", self.pool, key, value, "--engine", "pskiplist")

    def tag(self):
        return self.output("tag", self.pool).decode().strip()

    def test_versions(self):
        self.put("apple", "3")
        self.put("a\tb", "\n")
        first = self.tag()
        self.put("apple", "4")
        self.put("plum", "1")
        second = self.tag()
        self.run_cli("del", self.pool, "apple")
        third = self.tag()
        self.assertLess(int(first), int(second))
        for version, value in ((first, b"3\n"), (second, b"4\n")):
            self.assertEqual(self.output("get", self.pool, "apple", "--version", version), value)
        self.run_cli("get", self.pool, "apple", "--version", third, expect=NEGATIVE)
        self.assertIn("no tag has closed it", self.errors(
            "get", self.pool, "apple", "--version", str(int(third) + 1), expect=USAGE))
        self.assertEqual(self.output("history", self.pool, "apple").decode(),
                         f"{first}\t+\t3\n{second}\t+\t4\n{third}\t-\n")
        self.assertEqual(self.output("history", self.pool, "none", expect=NEGATIVE), b"")
        before = [(b"a\tb", b"\n"), (b"apple", b"3")]
        after = [(b"a\tb", b"\n"), (b"apple", b"4"), (b"plum", b"1")]
        self.assertEqual(self.output("snapshot", self.pool, first), tsv(before))
        self.assertEqual(self.output("snapshot", self.pool, second), tsv(after))
        self.assertEqual(self.output("snapshot", self.pool, second, "--prefix", "a", "--reverse"),
                         tsv(after[1::-1]))
        self.assertEqual(self.output("snapshot", self.pool, second, "--limit", "1"), tsv(after[:1]))
        self.assertEqual(self.output("diff", self.pool, first, second),
                         b"-\tapple\t3\n+\tapple\t4\n+\tplum\t1\n")
        self.assertEqual(self.output("diff", self.pool, third, second, "--to", "b"),
                         b"+\tapple\t4\n")
        self.run_cli("rollback", self.pool, second)
        self.assertEqual(self.output("scan", self.pool), tsv(after))
        self.assertEqual(self.output("trim", self.pool, second).decode(), second + "\n")
        self.assertIn("it was trimmed", self.errors("snapshot", self.pool, first, expect=USAGE))
        self.assertEqual(self.output("snapshot", self.pool, second), tsv(after))
        self.run_cli("check", self.pool, "--deep")

    def test_types_of_versioned_maps(self):
        self.run_cli("put", self.pool, "--engine", "pskiplist", "--key", "i32", "--value", "u64",
                     "--", "-7", "1")
        self.assertEqual(self.tag(), "1")
        self.run_cli("put", self.pool, "--", "-7", "2")
        self.assertEqual(self.output("get", self.pool, "--version", "1", "--", "-7"), b"1\n")
        self.assertEqual(self.output("history", self.pool, "--", "-7"), b"1\t+\t1\n2\t+\t2\n")

    def test_other_engines_keep_no_versions(self):
        self.create()
        self.run_cli("put", self.pool, "k", "v")
        for arguments in (["tag"], ["history", "k"], ["snapshot", "1"], ["diff", "1", "1"],
                          ["trim", "1"], ["rollback", "1"]):
            command = [arguments[0], self.pool, *arguments[1:]]
            self.assertIn("keeps no versions", self.errors(*command), command)
        self.assertIn("phast", self.errors("get", self.pool, "k", "--version", "1"))
        self.assertIn("phast", self.errors("load", self.pool, "-", "--tag-every", "1",
                                           stdin=b"a\tb\n", expect=USAGE))

    def states(self, entries, every):
        """The state behind each line that is a multiple of `every`."""
        state, states = {}, []
        for number, (key, value) in enumerate(entries, 1):
            state[key] = value
            if number % every == 0:
                states.append(tsv(sorted(state.items())))
        return states

    def test_load_closes_versions(self):
        entries = [(b"%d" % (i * 7 % 10), b"%d" % i) for i in range(20)]
        for threads in (1, 3):
            for every in (1, 3, 20, 50):
                with self.subTest(threads=threads, every=every):
                    outcome = self.json("load", self.pool, "-", "--threads", str(threads),
                                        "--tag-every", str(every), stdin=tsv(entries))
                    states = self.states(entries, every)
                    self.assertEqual(outcome["tags"], len(states))
                    for version, state in enumerate(states, 1):
                        self.assertEqual(self.output("snapshot", self.pool, str(version)), state)
                    os.unlink(self.pool)

    def test_killed_load_keeps_its_versions(self):
        lines, every = (4_000, 50) if SMALL else (40_000, 500)
        entries = [(b"%d" % (i * 7919 % 1000), b"%d" % i) for i in range(lines)]
        source = self.write("in.tsv", tsv(entries))
        command = ["load", self.pool, str(source), "--threads", "2", "--tag-every", str(every)]
        loader = subprocess.Popen([CLI, *command], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE)
        acknowledged = 0
        for line in loader.stderr:
            if line.startswith(b"acknowledged "):
                acknowledged = int(line.split()[1])
            if acknowledged >= lines // 4:
                loader.kill()
        loader.stderr.close()
        if loader.wait() == DONE:
            self.skipTest("the machine was too busy to kill the loader in time")
        states = self.states(entries, every)
        for again in (False, True):
            if again:
                self.run_cli(*command)
                self.assertEqual(self.output("snapshot", self.pool, self.tag()), states[-1])
            for version in range(1, acknowledged // every + 1):
                self.assertEqual(self.output("snapshot", self.pool, str(version)),
                                 states[version - 1], version)
        self.run_cli("check", self.pool, "--deep")


class BadInputTest(CliTest):
    READERS = ("info", "list", "stats", "check", "scan", "dump", "sync", "compact")

    def refused(self, path, *words, commands=READERS):
        for command in commands:
            with self.subTest(command=command):
                message = self.errors(command, path)
                self.assertIn(str(path), message)
                for word in words:
                    self.assertIn(word, message)

    def test_missing(self):
        self.refused(self.folder / "nowhere")
        self.errors("get", self.folder / "nowhere", "k")
        self.errors("del", self.folder / "nowhere", "k")
        self.errors("put", self.folder / "no" / "where", "k", "v")
        self.errors("load", self.pool, self.folder / "nowhere")
        self.assertEqual(os.listdir(self.folder), [])

    def test_directory_and_fifo(self):
        self.refused(self.folder)
        self.errors("put", self.folder, "k", "v")
        self.errors("load", self.pool, self.folder)
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        self.refused(fifo)
        self.errors("put", fifo, "k", "v")
        self.refused("/dev/null")

    def test_symbolic_links_are_followed(self):
        self.create()
        link = self.folder / "link"
        link.symlink_to("pool.perdure")
        self.run_cli("put", link, "k", "v")
        self.assertEqual(self.output("get", self.pool, "k"), b"v\n")
        dangling = self.folder / "dangling"
        dangling.symlink_to("nowhere")
        self.refused(dangling)

    def test_not_a_pool(self):
        for name, content in (("empty", b""), ("text", b"hello\n" * 100), ("zeros", bytes(1 << 21)),
                              ("noise", random.Random(1).randbytes(1 << 21))):
            with self.subTest(name=name):
                path = self.write(name, content)
                self.refused(path)
                self.errors("put", path, "k", "v")
                self.assertEqual(path.read_bytes(), content, "a refused file is left alone")

    def test_truncated(self):
        self.create()
        self.run_cli("load", self.pool, "-", stdin=tsv((b"%06d" % i, b"x" * 100)
                                                       for i in range(5000)))
        content = pathlib.Path(self.pool).read_bytes()
        for size in (1, 100, 4096, 8192, len(content) // 2, len(content) - 4096):
            with self.subTest(size=size):
                path = self.write("short", content[:size])
                self.refused(path, commands=("check", "scan", "sync"))
                self.errors("get", path, "000001")

    def test_read_only_file_in_a_read_only_folder(self):
        self.create()
        self.run_cli("put", self.pool, "k", "v")
        os.chmod(self.pool, 0o444)
        os.chmod(self.folder, 0o555)
        self.addCleanup(os.chmod, self.folder, 0o755)
        somebody = {}
        if os.geteuid() == 0:  # root may write it all the same
            somebody = {"user": 65534, "group": 65534, "extra_groups": []}
            try:
                subprocess.run([CLI, "--version"], check=True, stdout=subprocess.DEVNULL,
                               **somebody)
            except (OSError, subprocess.CalledProcessError):
                self.skipTest("nobody cannot run the command line here")
        self.assertEqual(self.json("info", self.pool, **somebody)["path"], self.pool)
        self.assertEqual(self.output("list", self.pool, **somebody),
                         b"default\tphast\tbytes\tbytes\n")
        self.assertEqual(self.output("get", self.pool, "k", **somebody), b"v\n")
        self.assertEqual(self.output("scan", self.pool, **somebody), b"k\tv\n")
        self.assertEqual(self.output("dump", self.pool, **somebody), b"k\tv\n")
        self.assertEqual(self.json("stats", self.pool, **somebody)["maps"][0]["entries"], 1)
        self.assertTrue(self.json("check", self.pool, "--deep", **somebody)["ok"])
        self.errors("put", self.pool, "k", "v2", **somebody)
        self.errors("del", self.pool, "k", **somebody)
        self.assertEqual(self.output("get", self.pool, "k", **somebody), b"v\n")

    def test_read_only(self):
        self.run_cli("put", self.pool, "k", "v")
        before = pathlib.Path(self.pool).read_bytes()
        for command in (["get", self.pool, "k"], ["scan", self.pool], ["dump", self.pool],
                        ["stats", self.pool], ["check", self.pool, "--deep"]):
            self.assertNotEqual(self.output(*command, "--read-only"), b"")
        self.assertEqual(pathlib.Path(self.pool).read_bytes(), before)
        with self.pool_in_use():
            self.assertIn("in use", self.errors("get", self.pool, "k"))
            self.assertEqual(self.output("get", self.pool, "k", "--read-only"), b"v\n")

    def test_limits(self):
        self.create()
        self.errors("put", self.pool, "k", "v", "--map", "m" * 32, expect=USAGE)
        self.errors("put", self.pool, "k", "v", "--map", "", expect=USAGE)
        self.run_cli("put", self.pool, "k", "v", "--map", "m" * 31)
        self.errors("put", self.pool, "k" * 65536, "v", expect=USAGE)


class InUseTest(CliTest):
    def test_a_second_process_is_refused_by_name(self):
        with self.pool_in_use() as holder:
            for arguments in (["put", self.pool, "k", "v"], ["get", self.pool, "held"],
                              ["scan", self.pool], ["check", self.pool], ["drop", self.pool]):
                with self.subTest(command=arguments[0]):
                    self.assertIn(str(holder.pid), self.errors(*arguments))

    def test_info_list_and_stats_need_no_lock(self):
        with self.pool_in_use() as holder:
            info = self.json("info", self.pool)
            self.assertEqual((info["in_use"], info["owner_pid"]), (True, holder.pid))
            self.assertIn(f"process {holder.pid}".encode(), self.output("info", self.pool))
            self.assertIn(b"default", self.output("list", self.pool))
            stats = self.json("stats", self.pool)
            self.assertTrue(stats["in_use"])
            self.assertIn("default", [map["name"] for map in stats["maps"]])
            holder.stdin.close()
            self.assertEqual(holder.wait(timeout=20), DONE)
        self.assertFalse(self.json("info", self.pool)["in_use"])

    def test_a_killed_owner_is_no_owner(self):
        with self.pool_in_use() as holder:
            holder.kill()
            holder.wait()
            info = self.json("info", self.pool)
            self.assertEqual((info["in_use"], info["clean"]), (False, False))
            self.assertEqual(self.output("get", self.pool, "held"), b"value\n")

    def test_a_copy_of_an_open_pool_is_not_trusted(self):
        copy = self.folder / "copy"
        with self.pool_in_use():
            shutil.copyfile(self.pool, copy)
        info = self.json("info", copy)
        self.assertFalse(info["trusted"])
        self.assertNotEqual(info["trust_note"], "")
        for command in (["get", copy, "held"], ["put", copy, "k", "v"], ["check", copy]):
            self.assertIn("--accept", self.errors(*command))
        self.assertTrue(self.json("check", copy, "--accept")["ok"])
        self.assertTrue(self.json("info", copy)["trusted"])
        self.assertEqual(self.output("get", copy, "held"), b"value\n")

    def test_file_shrunk_under_us(self):
        """SIGBUS is told in words, with the status of an I/O error."""
        with self.pool_in_use() as holder:
            os.truncate(self.pool, 4096)
            with contextlib.suppress(BrokenPipeError):
                for i in range(2000):
                    holder.stdin.write(b"more%d\t%s\n" % (i, b"x" * 100))
                    holder.stdin.flush()
                    if holder.poll() is not None:
                        break
                holder.stdin.close()
            deadline = time.monotonic() + 20
            while holder.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            self.assertEqual(holder.wait(timeout=1), FAILURE)
            errors = holder.stderr.read()
            self.assertIn(self.pool.encode(), errors)
            self.assertIn(b"became shorter", errors)


class BenchTest(CliTest):
    def test_is_reached(self):
        self.assertIn(b"--workload", self.output("bench", "--help"))


if __name__ == "__main__":
    unittest.main()
