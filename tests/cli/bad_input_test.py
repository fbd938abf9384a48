"""The command line on files that are no pools, and on pools in use."""

import concurrent.futures
import contextlib
import os
import pathlib
import random
import shutil
import subprocess
import time
import unittest

from cli_case import BUSY, CLI, DONE, FAILURE, USAGE, CliTest, shell, tsv


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
        self.refused(self.folder, "is a directory; name a file in it")
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
                self.refused(path, "not a perdure pool", "check the file name")
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
        other_user = self.other_user()
        self.assertEqual(self.json("info", self.pool, **other_user)["path"], self.pool)
        self.assertEqual(self.output("list", self.pool, **other_user),
                         b"default\tphast\tbytes\tbytes\n")
        self.assertEqual(self.output("get", self.pool, "k", **other_user), b"v\n")
        self.assertEqual(self.output("scan", self.pool, **other_user), b"k\tv\n")
        self.assertEqual(self.output("dump", self.pool, **other_user), b"k\tv\n")
        self.assertEqual(self.json("stats", self.pool, **other_user)["maps"][0]["entries"], 1)
        self.assertTrue(self.json("check", self.pool, "--deep", **other_user)["ok"])
        self.errors("put", self.pool, "k", "v2", **other_user)
        self.errors("del", self.pool, "k", **other_user)
        self.assertIn("no permission to open it for writing",
                      self.errors("resize", self.pool, "--max-size", "1G", **other_user))
        self.assertEqual(self.output("get", self.pool, "k", **other_user), b"v\n")

    def test_read_only(self):
        self.run_cli("put", self.pool, "k", "v")
        before = pathlib.Path(self.pool).read_bytes()
        for command in (["get", self.pool, "k"], ["scan", self.pool], ["dump", self.pool],
                        ["stats", self.pool], ["check", self.pool, "--deep"]):
            self.assertNotEqual(self.output(*command, "--read-only"), b"")
        self.assertEqual(pathlib.Path(self.pool).read_bytes(), before)
        with self.pool_in_use():
            for message in (self.errors("get", self.pool, "k", expect=BUSY),
                            self.errors("get", self.pool, "k", "--read-only", expect=BUSY)):
                self.assertIn("in use", message)
                self.assertIn("durability `buffered`", message)

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
                              ["scan", self.pool], ["check", self.pool],
                              ["drop", self.pool, "--map", "default"]):
                with self.subTest(command=arguments[0]):
                    self.assertIn(str(holder.pid), self.errors(*arguments, expect=BUSY))

    def test_wait(self):
        """Two loops of a shell share a pool: each command waits for the other."""
        loop = 'for i in 1 2 3 4 5 6 7 8 9 10; do "$0" incr "$1" n --wait 60 || exit; done'
        with concurrent.futures.ThreadPoolExecutor() as threads:
            for done in threads.map(lambda _: shell(loop, self.pool), range(2)):
                self.assertEqual((done.returncode, done.stderr), (DONE, b""))
        self.assertEqual(self.output("get", self.pool, "n"), b"20\n")
        with self.pool_in_use():
            self.assertIn("; --wait SECONDS", self.errors("get", self.pool, "n", expect=BUSY))
            begin = time.monotonic()
            self.errors("get", self.pool, "n", "--wait", "0.3", expect=BUSY)
            self.assertGreaterEqual(time.monotonic() - begin, 0.3)
        for wrong in ("-1", "nan", "1e9", "soon"):
            self.errors("get", self.pool, "n", "--wait", wrong, expect=USAGE)

    def test_info_and_list_need_no_lock(self):
        with self.pool_in_use() as holder:
            info = self.json("info", self.pool)
            self.assertEqual((info["in_use"], info["owner_pid"]), (True, holder.pid))
            self.assertIn(f"process {holder.pid}".encode(), self.output("info", self.pool))
            self.assertIn(b"default", self.output("list", self.pool))
            self.assertIn(str(holder.pid), self.errors("stats", self.pool, expect=BUSY))
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
        self.assertNotIn(b"was killed", self.output("info", copy))
        for command in (["get", copy, "held"], ["put", copy, "k", "v"], ["check", copy]):
            message = self.errors(*command)
            self.assertIn(f"perdure check {copy} --accept", message)
            self.assertIn(f"perdure sync {copy}", message)
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


if __name__ == "__main__":
    unittest.main()
