"""What the tests of the command line share."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
from engines import ENGINES  # noqa: E402, F401: for the tests

CLI = os.environ.get("PERDURE_CLI", str(ROOT / "build/release/perdure"))
DONE, NEGATIVE, USAGE, FAILURE, BUSY, LOST = 0, 1, 2, 3, 4, 5
COMMANDS = ("create", "resize", "remove", "info", "list", "drop", "sync", "compact", "check", "put",
            "get", "incr", "del", "scan", "load", "apply", "dump", "salvage", "stats", "tag",
            "versions", "history", "snapshot", "diff", "trim", "rollback", "backup", "restore",
            "bench")
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


def shell(command, *arguments, **options):
    """Runs the command line in a shell: "$0" is the program, "$1" the first argument."""
    return subprocess.run(["sh", "-c", command, CLI, *map(os.fspath, arguments)], timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **options)


class CliTest(unittest.TestCase):
    def make_folder(self, where):
        folder = tempfile.TemporaryDirectory(prefix="perdure-cli.", dir=where)
        self.addCleanup(folder.cleanup)
        return folder.name

    def setUp(self):
        self.folder = pathlib.Path(self.make_folder(scratch_root()))
        self.pool = str(self.folder / "pool.perdure")

    def run_cli(self, *arguments, stdin=b"", expect=DONE, **options):
        """Runs the command line; checks its status and that every error is told as it should be."""
        done = subprocess.run([CLI, *map(os.fspath, arguments)], input=stdin, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                              **options)
        self.assertEqual(done.returncode, expect, (arguments, done.stdout[-500:], done.stderr))
        if expect in (USAGE, FAILURE, BUSY):
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

    def other_user(self):
        """Options of run_cli() for a user whom permissions hold back, as they do not root."""
        if os.geteuid() != 0:
            return {}
        user = {"user": 65534, "group": 65534, "extra_groups": []}
        try:
            subprocess.run([CLI, "--version"], check=True, stdout=subprocess.DEVNULL, **user)
        except (OSError, subprocess.CalledProcessError):
            self.skipTest("user 65534 cannot run the command line here")
        return user

    def wait_for_record(self, holder, number):
        for line in holder.stderr:
            if line == f"acknowledged {number}\n".encode():
                return
        self.fail("the holder ended")

    def wait_until_at_rest(self):
        """Until the log of the pool in use has all changes, and the empty epoch that ends them."""
        deadline = time.monotonic() + 60
        for _ in range(2):  # the first cut may have changes
            now = time.time_ns()
            while self.json("info", self.pool)["durable_unix_ns"] < now:
                self.assertLess(time.monotonic(), deadline, "no cut")
                time.sleep(0.01)

    @contextlib.contextmanager
    def pool_in_use(self):
        """A process that has the pool open, with one entry in it, until the block ends."""
        holder = subprocess.Popen([CLI, "load", self.pool, "-"], stdin=subprocess.PIPE,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            holder.stdin.write(b"held\tvalue\n")
            holder.stdin.flush()
            self.wait_for_record(holder, 1)
            yield holder
        finally:
            if holder.poll() is None:
                holder.kill()
            holder.wait()
            with contextlib.suppress(BrokenPipeError):
                holder.stdin.close()
            holder.stderr.close()


class DiskTest(CliTest):
    """Pools in durability `buffered`, which main memory does not have."""
    def setUp(self):
        super().setUp()
        self.disk = self.make_folder(os.getcwd())
        self.pool = os.path.join(self.disk, "pool.perdure")
