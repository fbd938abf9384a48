"""perdure remove, messages that name it, and images that were set aside in perdure info."""

import os
import re
import shutil
import unittest

from cli_case import BUSY, FAILURE, USAGE, DiskTest


class RemoveTest(DiskTest):
    def kill_owner(self):
        with self.pool_in_use():
            self.wait_until_at_rest()

    def names(self):
        return sorted(os.listdir(self.disk))

    def run_advice(self, text):
        """Runs the command that a message names."""
        command = re.search(r"perdure (remove \S+?)(\)|,|$)", text, re.MULTILINE)
        self.assertIsNotNone(command, text)
        self.run_cli(*command[1].split())

    def set_one_aside(self):
        """A backup takes the place of a pool that was left open."""
        saved = os.path.join(self.disk, "saved")
        shutil.copy(self.pool, saved)
        self.kill_owner()
        os.replace(saved, self.pool)
        shutil.rmtree(self.pool + "-log")
        return self.run_cli("put", self.pool, "a", "1", "--verbose").stderr.decode()

    def test_of_pools(self):
        for durability in ("process", "buffered"):
            self.create("--durability", durability)
            self.assertIn(b"all that belonged to it", self.output("remove", self.pool))
            self.create("--durability", durability)
            if durability == "buffered":
                self.kill_owner()
            self.assertEqual(self.json("remove", self.pool), {"path": self.pool, "removed": True})
            self.assertEqual(self.names(), [])

    def test_what_is_refused(self):
        self.assertIn("check the path", self.errors("remove", self.pool))
        text = os.path.join(self.disk, "text")
        self.write(text, b"mine")
        self.assertIn("not a perdure pool", self.errors("remove", text))
        self.create("--durability", "buffered")
        os.symlink(self.pool, os.path.join(self.disk, "link"))
        told = self.errors("remove", os.path.join(self.disk, "link"), expect=USAGE)
        self.assertIn("name the file that it leads to, " + os.path.realpath(self.pool), told)
        with self.pool_in_use() as holder:
            self.assertIn(f"process {holder.pid}",
                          self.errors("remove", self.pool, expect=BUSY))
            self.wait_until_at_rest()
        self.errors("remove", self.pool + "-log", expect=USAGE)
        foreign = os.path.join(self.pool + "-log", "notes.txt")
        self.write(foreign, b"mine")
        before = self.names()
        self.assertIn("notes.txt: is no part of the pool", self.errors("remove", self.pool))
        self.assertEqual(self.names(), before)
        os.remove(foreign)
        self.output("remove", self.pool)
        self.assertEqual(self.names(), ["link", "text"])

    def test_a_file_that_was_removed_alone(self):
        self.create("--durability", "buffered")
        self.output("backup", self.pool, os.path.join(self.disk, "copies"))
        for command in (("create", self.pool),
                        ("restore", os.path.join(self.disk, "copies"), self.pool)):
            self.kill_owner()
            os.remove(self.pool)
            self.run_advice(self.errors(*command, expect=FAILURE))
            self.assertEqual(self.names(), ["copies"])
            self.run_cli(*command)

    def test_a_file_that_was_renamed(self):
        self.create("--durability", "buffered")
        self.kill_owner()
        moved = os.path.join(os.path.realpath(self.disk), "moved.perdure")
        os.rename(self.pool, moved)
        before = self.names()
        told = self.errors("remove", self.pool)
        self.assertIn(f"belongs to the pool {moved}", told)
        self.assertIn(f"rename it to {os.path.realpath(self.pool)}", told)
        self.assertEqual(self.names(), before)
        os.rename(moved, self.pool)
        self.assertEqual(self.output("get", self.pool, "held"), b"value\n")
        self.kill_owner()
        os.rename(self.pool, moved)
        self.run_advice(self.errors("remove", self.pool))
        self.output("remove", self.pool)
        self.assertEqual(self.names(), [])

    def test_images_that_were_set_aside(self):
        self.create("--durability", "buffered")
        said = self.set_one_aside()
        self.assertIn("is not used", said)
        self.run_advice(said)
        self.assertEqual(self.names(), ["pool.perdure"])
        self.set_one_aside()
        self.set_one_aside()
        aside = self.json("info", self.pool)["set_aside"]
        self.assertEqual(len(aside), 2)
        self.assertGreater(aside[0]["durable_unix_ns"], aside[1]["durable_unix_ns"])
        told = self.output("info", self.pool).decode()
        self.assertLess(told.index(aside[0]["path"]), told.index(aside[1]["path"]))
        self.run_advice(told)
        self.assertEqual(self.json("info", self.pool)["set_aside"], aside[1:])
        self.output("remove", self.pool)
        self.assertEqual(self.names(), [])


if __name__ == "__main__":
    unittest.main()
