"""perdure backup, restore, and info of a backup, also while another process has the pool open."""

import os
import time
import unittest

from cli_case import BUSY, USAGE, DiskTest


class BackupTest(DiskTest):
    def setUp(self):
        super().setUp()
        self.backup = os.path.join(self.disk, "copies")
        self.restores = 0

    def restored(self, *arguments):
        self.restores += 1
        path = os.path.join(self.disk, f"restored{self.restores}.perdure")
        made = self.json("restore", self.backup, path, *arguments)
        self.assertEqual(made["path"], path)
        self.run_cli("check", path, "--deep")
        return path, made

    def test_of_a_pool_in_use(self):
        self.create("--durability", "buffered")
        with self.pool_in_use() as holder:
            self.wait_until_at_rest()
            made = self.json("backup", self.pool, self.backup)
            self.assertFalse(made["extended"] or made["closed"])
            between = time.time()
            holder.stdin.write(b"next\tvalue\n")
            holder.stdin.flush()
            self.wait_for_record(holder, 2)
            self.wait_until_at_rest()
            self.assertIn(b"added to " + self.backup.encode(),
                          self.output("backup", self.pool, self.backup))
            info = self.json("info", self.backup)
            self.assertGreater(info["last_epoch"], made["last_epoch"])
            self.assertGreater(info["ends_unix_ns"], between * 1e9)
            text = self.output("info", self.backup).decode()
            self.assertIn(f"epoch {info['last_epoch']}, of 2", text)
        self.assertEqual(self.output("get", self.restored()[0], "held"), b"value\n")
        self.assertEqual(self.output("get", self.restored()[0], "next"), b"value\n")
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(between)) + f"{between % 1:.6f}"[1:]
        for chosen in (("--epoch", str(made["last_epoch"])), ("--time", f"@{between:.6f}"),
                       ("--time", stamp), ("--time", stamp.replace(" ", "T") + "Z")):
            path, restored = self.restored(*chosen)
            self.assertEqual(restored["epoch"], made["last_epoch"], chosen)
            self.assertEqual(self.output("get", path, "held"), b"value\n")
            self.run_cli("get", path, "next", expect=1)
        plain = os.path.join(self.disk, "plain.perdure")
        self.assertIn(b"every key and checksum verified",
                      self.output("restore", self.backup, plain))
        self.assertEqual(self.json("info", plain)["durability"], "buffered")

    def test_reading_commands_see_the_last_cut_of_a_pool_in_use(self):
        self.create("--durability", "buffered", "--engine", "pskiplist")
        with self.pool_in_use() as holder:
            self.assertIn("--read-only", self.errors("get", self.pool, "held", expect=BUSY))
            self.wait_until_at_rest()
            for command, found in ((["get", self.pool, "held"], b"value\n"),
                                   (["scan", self.pool], b"held\tvalue\n"),
                                   (["dump", self.pool], b"held\tvalue\n")):
                self.assertEqual(self.output(*command, "--read-only"), found)
            self.assertTrue(self.json("check", self.pool, "--deep", "--read-only")["ok"])
            stats = self.json("stats", self.pool)
            self.assertTrue(stats["in_use"])
            self.assertIn("default", [map["name"] for map in stats["maps"]])
            holder.stdin.close()
            self.assertEqual(holder.wait(timeout=20), 0)

    def test_of_closed_pools(self):
        for number, durability in enumerate(("process", "buffered")):
            self.pool = os.path.join(self.disk, f"{durability}.perdure")
            self.backup = os.path.join(self.disk, f"backup{number}")
            self.create("--durability", durability)
            self.run_cli("put", self.pool, "k", durability)
            self.assertIn(b"the pool was closed", self.output("backup", self.pool, self.backup))
            self.assertTrue(self.json("info", self.backup)["closed"])
            self.assertIn(b"the pool was closed", self.output("info", self.backup))
            path, _ = self.restored()
            self.assertEqual(self.output("get", path, "k"), durability.encode() + b"\n")
            self.assertEqual(self.json("info", path)["durability"], durability)

    def test_what_is_refused(self):
        self.create("--durability", "process")
        with self.pool_in_use():
            self.assertIn("close it there first",
                          self.errors("backup", self.pool, self.backup, expect=BUSY))
        told = self.errors("backup", self.pool, self.backup)
        self.assertIn(f"open and close it first (perdure check {self.pool})", told)
        self.run_cli("put", self.pool, "k", "v")
        self.assertIn("is not empty", self.errors("backup", self.pool, self.disk))
        self.run_cli("backup", self.pool, self.backup)
        self.assertIn("name another folder", self.errors("backup", self.pool, self.backup))
        self.assertIn("no finished backup", self.errors("restore", self.disk, self.pool + "2"))
        self.assertIn("is a directory", self.errors("info", self.disk))
        self.assertIn("exists", self.errors("restore", self.backup, self.pool))
        self.assertIn("has no epoch 7", self.errors("restore", self.backup, self.pool + "2",
                                                    "--epoch", "7"))
        for wrong in ("yesterday", "@", "@1.", "2026-11-27", "2026-11-27 21:50:00.1234567890",
                      "@99999999999999"):
            self.errors("restore", self.backup, self.pool + "2", "--time", wrong, expect=USAGE)
        self.errors("restore", self.backup, self.pool + "2", "--time", "@1", "--epoch", "1",
                    expect=USAGE)
        self.assertFalse(os.path.exists(self.pool + "2"))


if __name__ == "__main__":
    unittest.main()
