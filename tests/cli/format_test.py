"""The command line on pools of another format version, and with feature bits."""

import pathlib
import struct
import unittest

from cli_case import FAILURE, NEGATIVE, ROOT, CliTest

HEADER_BYTES, COPIES, CRC_OFFSET = 4096, (0, 4096), 508
MODE_OFFSET, COMPATIBLE_OFFSET, INCOMPATIBLE_OFFSET = 100, 240, 248
POWER = 2


def golden(name):
    """The bytes of a pool in golden/: its size, and its lines that are not zero."""
    content = bytearray()
    for line in (ROOT / "tests/pool/golden" / f"{name}.hex").read_text().splitlines():
        if line.startswith("size "):
            content = bytearray(int(line.split()[1]))
        elif not line.startswith("#"):
            offset, text = line.split()
            content[int(offset, 16):int(offset, 16) + 64] = bytes.fromhex(text)
    return bytes(content)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class FormatTest(CliTest):
    COMMANDS = (("info",), ("list",), ("stats",), ("check",), ("check", "--deep"),
                ("check", "--accept"), ("get", "apple"), ("put", "apple", "4"), ("del", "apple"),
                ("scan",), ("dump",), ("sync",), ("compact",))

    def refused(self, path, *words):
        """No command opens the pool, or changes it; all say why, and what to do."""
        before = pathlib.Path(path).read_bytes()
        for command, *arguments in self.COMMANDS:
            with self.subTest(command=command, arguments=arguments):
                message = self.errors(command, path, *arguments, expect=FAILURE)
                for word in (str(path), *words):
                    self.assertIn(word, message)
                self.assertEqual(pathlib.Path(path).read_bytes(), before)

    def set_features(self, path, offset, bits):
        self.set_field(path, offset, "<Q", bits)

    def set_field(self, path, offset, kind, value):
        content = bytearray(pathlib.Path(path).read_bytes())
        for copy in COPIES:
            struct.pack_into(kind, content, copy + offset, value)
            crc = crc32c(content[copy:copy + CRC_OFFSET])
            struct.pack_into("<I", content, copy + CRC_OFFSET, crc)
        pathlib.Path(path).write_bytes(content)

    def test_a_pool_of_version_0_names_the_way_across(self):
        path = self.write("old.perdure", golden("pool_v0"))
        self.refused(path, "format version 0", "this build reads version 1",
                     f"`perdure dump {path} items.tsv`", "`perdure load NEW items.tsv`")

    def test_the_commands_of_that_way_work(self):
        """As they are named, between two pools of this version."""
        items = self.folder / "items.tsv"
        self.run_cli("put", self.pool, "apple", "3")
        self.run_cli("dump", self.pool, items)
        self.run_cli("load", self.folder / "new", items)
        self.assertEqual(self.output("get", self.folder / "new", "apple"), b"3\n")

    def test_features_are_printed_when_there_are_any(self):
        self.run_cli("put", self.pool, "apple", "3")
        self.assertEqual(self.json("info", self.pool)["compatible_features"], [])
        self.assertNotIn(b"features", self.output("info", self.pool))
        self.set_features(self.pool, COMPATIBLE_OFFSET, 1 << 2 | 1 << 40)
        self.assertRegex(self.output("info", self.pool), rb"compatible features +bits 2, 40\n")
        self.assertEqual(self.output("get", self.pool, "apple"), b"3\n")
        self.run_cli("put", self.pool, "apple", "4")
        info = self.json("info", self.pool)
        self.assertEqual(info["compatible_features"], [2, 40])
        self.assertEqual(info["incompatible_features"], [])
        self.assertEqual(info["format_version"], 1)

    def test_a_command_that_takes_the_mode_power_away_warns(self):
        self.run_cli("put", self.pool, "apple", "3", "--durability", "process")
        self.assertEqual(self.run_cli("sync", self.pool, "--durability", "process").stderr, b"")
        # As a pool of a medium that grants `power`.
        self.set_field(self.pool, MODE_OFFSET, "<I", POWER)
        self.assertEqual(self.json("info", self.pool)["durability"], "power")
        said = self.run_cli("put", self.pool, "apple", "4", "--durability", "process").stderr
        self.assertRegex(said.decode(), "^perdure: warning: .*: its durability was `power` and is "
                                        "`process` from now on.*--durability power\n$")
        self.assertEqual(self.json("info", self.pool)["durability"], "process")
        self.assertEqual(self.run_cli("del", self.pool, "apple").stderr, b"")

    def test_incompatible_features_have_names(self):
        self.run_cli("create", self.pool, "--max-size", "1M", "--durability", "process")
        self.run_cli("apply", self.pool, "-", stdin=b"put\tapple\t3\n")
        self.run_cli("resize", self.pool, "--max-size", "8M")
        self.assertRegex(self.output("info", self.pool),
                         rb"incompatible features +resized, batches\n")
        self.assertEqual(self.json("info", self.pool)["incompatible_features"], [0, 1])

    def test_check_reports_a_damaged_copy_of_the_header(self):
        self.run_cli("put", self.pool, "apple", "3")
        for copy, name in zip(COPIES, "AB"):
            with self.subTest(copy=name):
                content = bytearray(pathlib.Path(self.pool).read_bytes())
                content[copy + 40] ^= 1
                pathlib.Path(self.pool).write_bytes(content)
                found = self.output("check", self.pool, "--deep", "--read-only", expect=NEGATIVE)
                self.assertIn(f"violation: copy {name} of the header is damaged; ".encode(), found)
                self.assertIn(b"perdure sync", found)
                self.assertEqual(pathlib.Path(self.pool).read_bytes(), content, "it only reads")
                found = self.output("check", self.pool, "--deep", expect=NEGATIVE)
                self.assertIn(f"violation: copy {name} of the header was damaged".encode(), found)
                self.assertIn(b"has written it anew\nNOT OK: 1 violation", found)
                self.assertIn(b"ok: ", self.output("check", self.pool, "--deep"))
                self.assertEqual(self.output("get", self.pool, "apple"), b"3\n")

    def test_unknown_incompatible_features_are_named(self):
        self.run_cli("put", self.pool, "apple", "3")
        self.set_features(self.pool, INCOMPATIBLE_OFFSET, 1 << 3 | 1 << 9)
        self.refused(self.pool, "incompatible bits 3, 9")


if __name__ == "__main__":
    unittest.main()
