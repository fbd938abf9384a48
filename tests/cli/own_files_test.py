"""What a command writes must not go into a pool, a part of one, or a part of a backup, under any
name that leads to it.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

from cli_case import CLI, DONE, USAGE, CliTest, shell, tsv


class OwnFilesTest(CliTest):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(dir=os.getcwd(), prefix="perdure-cli.")
        self.addCleanup(folder.cleanup)
        self.disk = pathlib.Path(folder.name)
        self.pool = str(self.disk / "pool")
        self.backup = self.disk / "copies"
        self.create("--durability", "buffered")
        self.run_cli("put", self.pool, "k", "v")
        self.text = self.disk / "text"

    def make(self, name, durability="buffered"):
        path = str(self.disk / name)
        self.run_cli("create", path, "--durability", durability, "--max-size", "256M")
        self.run_cli("put", path, "k", "of " + name)
        return path

    def snapshot(self):
        """What shows that a file was replaced or changed, by its name."""
        found = {}
        for path in sorted(self.disk.rglob("*")):
            info = path.lstat()
            found[str(path.relative_to(self.disk))] = (info.st_ino, info.st_size, info.st_mtime_ns)
        return found

    def names(self, path):
        """The path, and other names of the same file."""
        path = pathlib.Path(path)
        yield path
        yield self.disk / "." / ".." / self.disk.name / path.relative_to(self.disk)
        yield os.path.relpath(path)
        link = self.disk / "symbolic"
        link.symlink_to(path)
        yield link
        link.unlink()
        folder = self.disk / "folder"
        folder.symlink_to(path.parent)
        yield folder / path.name
        folder.unlink()
        if path.is_file():
            hard = self.disk / "hard"
            os.link(path, hard)
            yield hard
            hard.unlink()

    def refused(self, *arguments, what=" is "):
        message = self.errors(*arguments, expect=USAGE)
        self.assertIn(what, message, arguments)
        self.assertIn("; choose another path", message)

    def test_dump_replaces_no_pool(self):
        pools = [self.pool, self.make("other"), self.make("process", "process")]
        for pool in pools:
            for target in self.names(pool):
                before = self.snapshot()
                self.refused("dump", self.pool, target, "--read-only", what=" is a pool; ")
                self.refused("dump", self.pool, target, what=" is a pool; ")
                self.assertEqual(self.snapshot(), before, target)
        for pool, value in zip(pools, (b"v\n", b"of other\n", b"of process\n")):
            self.assertEqual(self.output("get", pool, "k"), value)

    def in_parts(self):
        """The files of a pool that another process has open."""
        parts = [self.pool, self.pool + "-live", self.pool + "-live-dirty"]
        segments = sorted(pathlib.Path(self.pool + "-log").iterdir())
        self.assertTrue(segments)
        return parts + segments

    def test_dump_replaces_no_part_of_a_pool(self):
        other = self.make("other")
        with self.pool_in_use():
            self.wait_until_at_rest()
            for part in self.in_parts():
                for target in self.names(part):
                    inode = os.stat(part).st_ino
                    self.refused("dump", other, target)
                    self.refused("dump", self.pool, target, "--read-only")
                    self.assertEqual(os.stat(part).st_ino, inode)
        self.assertEqual(self.output("get", self.pool, "held"), b"value\n")

    def test_dump_takes_no_place_of_a_part(self):
        for pool in (self.pool, self.make("process", "process")):
            for suffix in ("-log", "-live", "-live-dirty"):
                before = self.snapshot()
                self.refused("dump", self.pool, pool + suffix, what="place of a part of the pool")
                self.refused("backup", self.pool, pool + suffix, what="place of a part of the pool")
                self.assertEqual(self.snapshot().keys(), before.keys())
        # Other names are free.
        for name in ("pool-lively", "nothing-live", "log"):
            self.run_cli("dump", self.pool, self.disk / name)
            self.assertEqual((self.disk / name).read_bytes(), b"k\tv\n")

    def test_dump_replaces_no_part_of_a_backup(self):
        with self.pool_in_use():
            self.wait_until_at_rest()
            self.run_cli("backup", self.pool, self.backup)
        files = [path for path in self.backup.rglob("*") if path.is_file()]
        self.assertGreaterEqual(len(files), 3)
        for file in files:
            for target in self.names(file):
                before = self.snapshot()
                self.refused("dump", self.pool, target, "--read-only")
                self.assertEqual(self.snapshot(), before)
        for name in ("backup-new", "log/new", "log/00000000000000ff"):
            self.refused("dump", self.pool, self.backup / name, what="place of a part of a backup")
            self.refused("restore", self.backup, self.backup / name,
                         what="place of a part of a backup")
        self.run_cli("restore", self.backup, self.disk / "restored")

    def test_texts_are_replaced_whatever_they_begin_with(self):
        for magic in (b"perdure1", b"PLOGSEG1", b"DRTYLOG1", b"PERDBUP1"):
            entries = tsv([(magic, b"a value that is longer than any head of a file " * 20)])
            self.run_cli("load", self.pool, "-", stdin=entries)
            for _ in range(2):
                self.run_cli("dump", self.pool, self.text)
            text = self.text.read_bytes()
            self.assertIn(entries, text)
            self.run_cli("load", self.pool, self.text)
            self.run_cli("del", self.pool, magic)

    def test_a_file_that_cannot_be_read(self):
        user = self.other_user()
        pool = self.folder / "pool"
        self.run_cli("put", pool, "k", "v", "--durability", "process")
        self.folder.chmod(0o777)
        text = self.write("text", b"mine")
        text.chmod(0)
        self.assertIn("cannot read it, so it may be a pool",
                      self.errors("dump", pool, text, **user))
        text.chmod(0o600)
        self.assertEqual(text.read_bytes(), b"mine")

    def test_dump_leaves_a_file_with_its_temporary_name(self):
        # The process that a shell starts has the number that the shell had.
        done = shell('printf mine > "$2.$$-0.tmp"; exec "$0" dump "$1" "$2"', self.pool, self.text)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(self.text.read_bytes(), b"k\tv\n")
        left = [path for path in self.disk.iterdir() if path.suffix == ".tmp"]
        self.assertEqual([path.read_bytes() for path in left], [b"mine"])

    def test_a_pool_that_appears_while_a_dump_is_written(self):
        self.run_cli("load", self.pool, "-", stdin=tsv((b"%06d" % i, b"x" * 90)
                                                       for i in range(200_000)))
        other = self.make("other")
        with subprocess.Popen([CLI, "dump", self.pool, self.text], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE) as dump:
            while not list(self.disk.glob("text.*.tmp")):
                self.assertIsNone(dump.poll(), "it ended before its file was seen")
            dump.send_signal(signal.SIGSTOP)
            os.rename(other, self.text)
            dump.send_signal(signal.SIGCONT)
            message = dump.stderr.read()
        self.assertEqual(dump.returncode, USAGE)
        self.assertIn(b" is a pool; choose another path", message)
        os.rename(self.text, other)
        self.assertEqual(self.output("get", other, "k"), b"of other\n")
        self.assertEqual(list(self.disk.glob("*.tmp")), [])

    def test_dump_to_a_device_by_name(self):
        self.assertEqual(self.output("dump", self.pool, "/dev/stdout"), b"k\tv\n")

    def test_output_is_appended_to_no_pool(self):
        other = self.make("other")
        with self.pool_in_use():
            self.wait_until_at_rest()
            for target in self.in_parts()[1:]:
                before = os.stat(target).st_size
                for command in ('"$0" scan "$1" >> "$2"', '"$0" get "$1" none 2>> "$2"'):
                    done = shell(command, other, target)
                    self.assertEqual(done.returncode, USAGE, (command, target))
                    self.assertIn(b"let it go to another file", done.stdout + done.stderr)
                self.assertEqual(os.stat(target).st_size, before)
        self.assertEqual(self.output("get", self.pool, "held"), b"value\n")
        before = self.snapshot()
        source = self.write("in.tsv", b"a\tb\n")
        for command in ('"$0" scan "$1" >> "$1"', '"$0" dump "$1" - >> "$1"',
                        '"$0" dump "$1" /dev/stdout >> "$1"', '"$0" info "$1" 1<> "$1"',
                        '"$0" --help >> "$1"', '"$0" load "$1" "$2" 2>> "$1"',
                        '"$0" scan "$1" >> "$1" 2>&1'):
            with self.subTest(command=command):
                self.assertEqual(shell(command, self.pool, source).returncode, USAGE)
                self.assertEqual(self.snapshot(), before)

    def test_pools_are_no_input(self):
        other = self.make("other")
        for source in (self.pool, other):
            for command in ("load", "apply"):
                before = self.snapshot()
                self.assertIn(" is a pool; perdure dump POOL ",
                              self.errors(command, self.pool, source, expect=USAGE))
                with open(source, "rb") as file:
                    done = subprocess.run([CLI, command, self.pool, "-"], stdin=file, check=False,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.assertEqual(done.returncode, USAGE, done.stderr)
                self.assertEqual(self.snapshot(), before)

    def test_backup_goes_into_no_pool(self):
        other = self.make("other")
        with self.pool_in_use():
            self.wait_until_at_rest()
            for target in [*self.in_parts(), other]:
                for name in self.names(target):
                    self.refused("backup", self.pool, name)
            for name in self.names(self.pool + "-log"):
                self.refused("backup", self.pool, name)
                self.refused("backup", other, name)
        self.assertEqual(self.output("get", self.pool, "held"), b"value\n")
        # A pool that has the name of a file of a backup.
        folder = self.disk / "alone"
        folder.mkdir()
        shutil.move(other, folder / "backup-new")
        content = (folder / "backup-new").read_bytes()
        self.assertIn("another file that is called backup-new",
                      self.errors("backup", self.pool, folder))
        self.assertEqual((folder / "backup-new").read_bytes(), content)

    def test_an_unfinished_backup_that_leads_to_the_pool(self):
        self.run_cli("backup", self.pool, self.backup)
        os.rename(self.backup / "backup", self.backup / "backup-new")
        os.unlink(self.backup / "base")
        with self.pool_in_use():
            self.wait_until_at_rest()
            before = self.in_parts()
            os.rmdir(self.backup / "log")
            (self.backup / "log").symlink_to(self.pool + "-log")
            message = self.errors("backup", self.pool, self.backup)
            self.assertIn("or a link to one; choose another path", message)
            self.assertEqual(self.in_parts(), before)
        (self.backup / "log").unlink()
        self.run_cli("check", self.pool)
        os.rename(self.pool, self.backup / "base")
        self.errors("backup", self.backup / "base", self.backup)
        os.rename(self.backup / "base", self.pool)
        self.run_cli("check", self.pool)

    def test_restore_takes_no_place_of_a_part(self):
        other = self.make("other")
        self.run_cli("backup", self.pool, self.backup)
        for path in (other + "-live", other + "-log", other + "-live-dirty"):
            self.refused("restore", self.backup, path, what="place of a part of the pool")
        self.assertIn("exists", self.errors("restore", self.backup, self.pool))
        self.refused("restore", self.backup, self.backup / "base", what="a part of a backup")
        self.assertEqual(sorted(path.name for path in self.disk.iterdir()),
                         ["copies", "other", "pool"])


if __name__ == "__main__":
    unittest.main()
