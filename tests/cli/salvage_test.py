"""perdure salvage: what it reads of damaged pools is true, and it says what is lost."""

import pathlib
import random
import shutil
import unittest

from cli_case import (CLI, DONE, ENGINES, FAILURE, LOST, NEGATIVE, SMALL, USAGE, CliTest, shell,
                      tsv)

MAGICS = {"phast": b".PHAST0", "level": b"LEVEL0", "clevel": b"CLEVEL0", "as": b"SKIPLIST",
          "ascs": b"SKIPLIST", "pskiplist": b"PSKPSL0"}  # of the map's root block
ENTRIES = {b"key:%05d" % i: b"value of %05d" % i for i in range(4000)}
NUMBERS = {b"%d" % (i << 40 | i): b"%d" % (i + (0xABCDEF << 32)) for i in range(1, 4000)}
FIRST = 8192  # of a file's bytes, behind both headers


class SalvageTest(CliTest):
    def load(self, engine, entries, *types):
        self.run_cli("load", self.pool, "-", "--engine", engine, *types, "--max-size", "64M",
                     "--durability", "process", stdin=tsv(entries.items()))
        self.whole = pathlib.Path(self.pool).read_bytes()

    def flip(self, *offsets):
        content = bytearray(self.whole)
        for offset in offsets:
            content[offset] ^= 0x10
        pathlib.Path(self.pool).write_bytes(content)
        self.damaged = bytes(content)

    def place(self, needle):
        place = self.whole.index(needle)
        self.assertEqual(self.whole.find(needle, place + 1), -1, needle)
        return place

    def salvage(self, entries, *statuses):
        """Runs the command. What it writes must be entries of the map, each at most once, and all
        of them if nothing is lost. The pool must be as it was. Returns the entries and messages."""
        done = shell('"$0" salvage "$1"; echo $? >&2', self.pool)
        *messages, status = done.stderr.decode().splitlines()
        lines = done.stdout.splitlines()
        found = dict(line.split(b"\t") for line in lines)
        self.assertIn(int(status), statuses, messages)
        self.assertEqual(len(found), len(lines), "a key comes twice")
        self.assertEqual([pair for pair in found.items() if entries.get(pair[0]) != pair[1]], [],
                         messages)
        if int(status) == DONE:
            self.assertEqual(entries.keys() - found.keys(), set())
        if int(status) == LOST:
            self.assertTrue(messages[0].startswith("damage: "), messages)
        if int(status) in (DONE, LOST):
            self.assertIn(f"salvaged {len(found):,} entries of map 'default'; ", messages[-1])
        self.assertEqual(pathlib.Path(self.pool).read_bytes(), self.damaged, "it is only read")
        return found, messages

    def test_a_whole_pool_loses_nothing(self):
        for engine in ENGINES:
            for entries, types in ((ENTRIES, ()), (NUMBERS, ("--key", "u64", "--value", "u64"))):
                with self.subTest(engine=engine, types=types):
                    self.load(engine, entries, *types)
                    self.flip()
                    self.assertIn("nothing is lost", self.salvage(entries, DONE)[1][-1])
                    pathlib.Path(self.pool).unlink()

    def test_damaged_values_and_keys(self):
        for engine in ENGINES:
            with self.subTest(engine=engine):
                self.load(engine, ENTRIES)
                keys = (b"key:00077", b"key:02222", b"key:03999")
                needles = [b"value of 00000", *keys]
                self.flip(*(self.place(needle) + 3 for needle in needles))
                found, messages = self.salvage(ENTRIES, LOST)
                lost = ENTRIES.keys() - found.keys()
                self.assertLessEqual({b"key:00000", *keys}, lost)
                # A damaged node of a list hides those behind it up to one that a higher level has.
                self.assertLess(len(lost), 200 if engine in ("as", "ascs") else 5, messages)
                self.assertIn("others are lost", messages[-1])
                pathlib.Path(self.pool).unlink()

    def test_damaged_leaves_tables_and_nodes(self):
        """Numbers lie in them without a checksum of their own."""
        for engine in ENGINES:
            with self.subTest(engine=engine):
                self.load(engine, NUMBERS, "--key", "u64", "--value", "u64")
                values = [int(value).to_bytes(8, "little") for value in NUMBERS.values()]
                damaged = [values[i] for i in (0, 1234, 2500)]
                self.flip(*(self.place(value) for value in damaged))
                found, messages = self.salvage(NUMBERS, LOST)
                for value in damaged:
                    self.assertNotIn(b"%d" % int.from_bytes(value, "little"), found.values())
                self.assertGreater(len(found), len(NUMBERS) * 0.8, messages)
                pathlib.Path(self.pool).unlink()

    def test_a_damaged_root_block_takes_the_map(self):
        for engine in ENGINES:
            with self.subTest(engine=engine):
                self.load(engine, ENTRIES)
                self.run_cli("put", self.pool, "k", "v", "--map", "other", "--engine", "phast")
                self.whole = pathlib.Path(self.pool).read_bytes()
                self.flip(self.whole.index(MAGICS[engine]))
                found, messages = self.salvage(ENTRIES, FAILURE)
                self.assertEqual(found, {})
                self.assertIn("root block is damaged", messages[0])
                kept = self.write("kept.tsv", b"k\tv\n")
                self.errors("salvage", self.pool, kept)  # it says what to do instead
                self.assertEqual(pathlib.Path(kept).read_bytes(), b"k\tv\n")
                self.assertEqual(self.output("salvage", self.pool, "--map", "other"), b"k\tv\n")
                pathlib.Path(self.pool).unlink()

    def test_bits_flipped_anywhere(self):
        generator = random.Random(20)
        for engine in ENGINES:
            with self.subTest(engine=engine):
                types = generator.choice(((), ("--key", "u64", "--value", "u64")))
                entries = NUMBERS if types else ENTRIES
                if not types:  # values that were replaced: their records are there yet
                    self.load(engine, {key: value[::-1] for key, value in ENTRIES.items()})
                self.load(engine, entries, *types)
                used = [at for at in range(FIRST, len(self.whole), 8)
                        if any(self.whole[at:at + 8])]
                kept = []
                for _ in range(5 if SMALL else 40):
                    self.flip(*(generator.choice(used) + generator.randrange(8)
                                for _ in range(generator.choice((1, 1, 5)))))
                    found, _ = self.salvage(entries, DONE, LOST, FAILURE)
                    kept.append(len(found))
                self.assertGreater(sum(kept), len(kept) * len(entries) * 0.5, kept)
                pathlib.Path(self.pool).unlink()

    def test_damage_of_one_map_does_not_hide_that_of_another(self):
        for name, prefix in (("a", b"akey:%05d"), ("default", b"bkey:%05d")):
            entries = {prefix % i: b"v" for i in range(2000)}
            self.run_cli("load", self.pool, "-", "--map", name, "--engine", "pskiplist",
                         "--durability", "process", stdin=tsv(entries.items()))
        self.whole = pathlib.Path(self.pool).read_bytes()
        self.flip(*(self.place(b"akey:%05d" % i) + 3 for i in range(200)),
                  self.place(b"bkey:00077") + 3)
        found, _ = self.salvage(entries, LOST)
        self.assertEqual(len(found), 1999)

    def test_a_damaged_key_may_become_another_one(self):
        first = 1 << 30
        entries = {b"%d" % i: b"%d" % (i + (0xABCDEF << 32)) for i in range(first, first + 4000)}
        for engine in ENGINES:
            with self.subTest(engine=engine):
                self.load(engine, entries, "--key", "u64", "--value", "u64")
                key = (first + 1234).to_bytes(8, "little")
                self.flip(self.whole.index(key))
                found, messages = self.salvage(entries, LOST)
                self.assertGreater(len(found), 3800, messages)
                pathlib.Path(self.pool).unlink()

    def test_a_salvage_loads_into_a_new_pool(self):
        odd = {b"tab\there": b"new\nline", b"back\\slash": b"\x00\xff", b"": b""}
        self.run_cli("load", self.pool, "-", "--map", "odd", stdin=tsv(odd.items()))
        file = self.folder / "odd.tsv"
        message = self.run_cli("salvage", self.pool, file, "--map", "odd").stderr
        self.assertEqual(message, b"salvaged 3 entries of map 'odd'; nothing is lost\n")
        other = self.folder / "other"
        self.run_cli("load", other, file)
        self.assertEqual(self.output("dump", other), self.output("dump", self.pool, "--map", "odd"))

    def test_typed_keys_and_values(self):
        types = ("--map", "n", "--key", "i16", "--value", "u8", "--engine")
        for engine in ENGINES:
            text = b"-300\t0\n-1\t255\n0\t7\n300\t1\n"
            self.run_cli("load", self.pool, "-", *types, engine, stdin=text)
            lines = self.output("salvage", self.pool, "--map", "n").splitlines(keepends=True)
            self.assertEqual(sorted(lines), sorted(text.splitlines(keepends=True)), engine)
            pathlib.Path(self.pool).unlink()
        self.run_cli("put", self.pool, "user", "123456789", "--key", "array:4", "--value",
                     "array:9", "--engine", "level")
        self.assertEqual(self.output("salvage", self.pool), b"user\t123456789\n")

    def test_a_pool_that_a_kill_has_left(self):
        with self.pool_in_use() as holder:
            holder.kill()
        self.damaged = pathlib.Path(self.pool).read_bytes()
        self.salvage({b"held": b"value"}, DONE)

    def test_a_pool_that_is_not_trusted(self):
        self.run_cli("create", self.pool, "--durability", "process", "--max-size", "16M")
        copy = self.folder / "copy"
        with self.pool_in_use():
            shutil.copy(self.pool, copy)
        self.pool = str(copy)
        self.assertIn("is a copy", self.errors("check", self.pool))
        self.damaged = copy.read_bytes()
        found, messages = self.salvage({b"held": b"value"}, LOST)
        self.assertEqual(found, {b"held": b"value"})
        self.assertIn("not trusted", messages[0])

    def test_the_latest_version_counts(self):
        self.run_cli("load", self.pool, "-", "--tag-every", "1", stdin=b"a\t1\nb\t1\na\t2\n")
        self.run_cli("del", self.pool, "b")
        self.assertEqual(self.output("salvage", self.pool), b"a\t2\n")

    def test_what_is_refused(self):
        self.assertIn("no such file", self.errors("salvage", self.pool))
        self.load("phast", ENTRIES)
        self.assertIn("there is no map 'x'",
                      self.run_cli("salvage", self.pool, "--map", "x",
                                   expect=NEGATIVE).stderr.decode())
        other = self.folder / "copy"
        shutil.copy(self.pool, other)
        self.assertIn(" is a pool; ", self.errors("salvage", self.pool, other, expect=USAGE))
        self.write("text", b"x" * 10000)
        self.assertIn("not a perdure pool", self.errors("salvage", self.folder / "text"))
        self.assertNotIn(CLI, self.errors("salvage", self.pool, self.folder / "no" / "where"))


if __name__ == "__main__":
    unittest.main()
