"""perdure --durability: the commands that take it, what they keep, the files of a buffered pool."""

import os
import tempfile
import unittest

from cli_case import USAGE, CliTest


class DurabilityTest(CliTest):
    def test_durability_of_create_stays(self):
        self.create("--durability", "emulated")
        self.run_cli("put", self.pool, "k", "v")
        self.assertEqual(self.json("info", self.pool)["durability"], "emulated")
        self.run_cli("put", self.pool, "k", "v", "--durability", "process")
        self.assertEqual(self.json("info", self.pool)["durability"], "process")

    def test_buffered(self):
        self.assertIn("its files are lost with the machine",
                      self.errors("create", self.pool, "--durability", "buffered"))
        with tempfile.TemporaryDirectory(dir=os.getcwd(), prefix="perdure-cli.") as folder:
            pool = os.path.join(folder, "pool.perdure")
            self.run_cli("create", pool, "--durability", "buffered")
            self.run_cli("put", pool, "k", "v")
            self.assertEqual(os.listdir(folder), ["pool.perdure"])
            info = self.json("info", pool)
            self.assertEqual((info["durability"], info["live"]), ("buffered", ""))
            self.assertEqual(self.output("get", pool, "k"), b"v\n")
            self.run_cli("check", pool, "--deep")

    def test_commands_that_read_keep_the_durability(self):
        self.create("--durability", "emulated", "--engine", "pskiplist")
        self.run_cli("put", self.pool, "k", "v")
        self.run_cli("tag", self.pool)
        for command in (["get", "k"], ["scan"], ["dump"], ["stats"], ["check"], ["history", "k"],
                        ["snapshot", "1"], ["diff", "1", "1"]):
            with self.subTest(command=command[0]):
                arguments = [command[0], self.pool, *command[1:]]
                message = self.errors(*arguments, "--durability", "process", expect=USAGE)
                self.assertIn("--durability: this command only reads", message)
                self.run_cli(*arguments)
                self.assertEqual(self.json("info", self.pool)["durability"], "emulated")
                self.assertNotIn(b"--durability", self.output(command[0], "--help"))


if __name__ == "__main__":
    unittest.main()
