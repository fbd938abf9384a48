"""perdure --durability: the commands that take it, what they keep, the files of a buffered pool."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from cli_case import CLI, USAGE, CliTest


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
            self.assertRegex(self.output("info", pool), rb"incompatible features +buffered\n")
            self.assertEqual(self.output("get", pool, "k"), b"v\n")
            self.run_cli("check", pool, "--deep")
            self.assertEqual(info["power_failure_loses"], "nothing that was acknowledged")

    def test_info_says_what_a_power_failure_would_take(self):
        self.create("--durability", "process")
        self.assertIn("lost with the machine", self.json("info", self.pool)["power_failure_loses"])
        with tempfile.TemporaryDirectory(dir=os.getcwd(), prefix="perdure-cli.") as folder:
            self.pool = os.path.join(folder, "pool.perdure")
            self.create("--durability", "buffered")
            with self.pool_in_use() as holder:
                info = self.json("info", self.pool)
                self.assertEqual(info["live"], self.pool + "-live")
                self.assertLess(abs(info["durable_unix_ns"] * 1e-9 - time.time()), 20)
                self.assertIn("what changed since 2", info["power_failure_loses"])
                self.assertIn(b"it would lose what changed since", self.output("info", self.pool))
                holder.kill()
                holder.wait()
            loses = self.json("info", self.pool)["power_failure_loses"]
            self.assertIn("what changed since 2", loses)
            os.rename(self.pool + "-live", self.pool + "-gone")
            self.assertIn("last durable cut", self.json("info", self.pool)["power_failure_loses"])
            whole = os.path.realpath(self.pool)
            self.assertIn(f"run `perdure check {whole} --accept`",
                          self.errors("put", self.pool, "k", "v"))
            copy = os.path.join(os.path.realpath(folder), "copy.perdure")
            shutil.copy(self.pool, copy)
            for option in ((), ("--read-only",)):
                self.assertIn(f"(perdure check {copy} --accept)",
                              self.errors("get", copy, "k", *option))
            os.remove(copy)
            os.rename(self.pool + "-gone", self.pool + "-live")
            self.run_cli("put", self.pool, "k", "v", "--durability", "buffered")
            self.run_cli("put", self.pool, "k", "v", "--durability", "process")
            self.assertEqual(self.json("info", self.pool)["power_failure_loses"],
                             "nothing that was acknowledged")  # it was closed

    def test_bench(self):
        with tempfile.TemporaryDirectory(dir=os.getcwd(), prefix="perdure-cli.") as folder:
            run = ("bench", "--path", os.path.join(folder, "pool"), "--durability", "buffered")
            result = self.json(*run, "--records", "200", "--sync", "--interval-ms", "3600000",
                               "--workload", "load,update,modify,update_many,batch,insert,delete")
            self.assertEqual((result["missing"], result["sync"], os.listdir(folder)),
                             (0, True, []))
            changes = 4 * 200 + 2 * 4  # many in a call have one sync; not the deletions
            self.assertGreaterEqual(result["cuts"]["count"], changes)
            rests = self.json(*run, "--records", "200", "--interval-ms", "3600000")
            self.assertEqual(rests["cuts"]["count"], 0)
            for options, message in ((("--interval-ms", "0"), "use 1 to 3600000"),
                                     (("--interval-ms", "3600001"), "use 1 to 3600000")):
                self.assertIn(message, self.errors(*run, *options, expect=USAGE))
        self.assertIn("goes with --durability buffered",
                      self.errors("bench", "--interval-ms", "5", expect=USAGE))

    def test_a_bench_that_is_interrupted_leaves_nothing(self):
        with tempfile.TemporaryDirectory(dir=os.getcwd(), prefix="perdure-cli.") as folder:
            pool = os.path.join(folder, "pool")
            running = subprocess.Popen([CLI, "bench", "--path", pool, "--durability", "buffered",
                                        "--interval-ms", "5", "--records", "20M"])
            try:
                for _ in range(3000):
                    time.sleep(0.01)
                    if (os.path.exists(pool + "-live")
                            and os.path.getsize(pool + "-live") > 16 << 20):
                        break  # the first phase runs
                self.assertEqual(len(os.listdir(folder)), 4)
                self.assertGreater(os.path.getsize(pool + "-live"), 16 << 20)
                for _ in range(2):  # timeout(1) sends two signals
                    running.send_signal(signal.SIGTERM)
                self.assertEqual(running.wait(60), -signal.SIGTERM)
            finally:
                running.kill()
                running.wait()
            self.assertEqual(os.listdir(folder), [])

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
