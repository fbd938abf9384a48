"""The command line with descriptors 0 to 2 closed, full, or without a reader."""

import os
import subprocess
import unittest

from cli_case import CLI, DONE, FAILURE, NEGATIVE, CliTest, shell, tsv


class ClosedDescriptorsTest(CliTest):
    LONG = ["info", "./" * 1900 + "pool.perdure", "--json"]  # prints 5 KB
    ENTRIES = tsv((b"%04d" % i, b"value") for i in range(2000))

    def setUp(self):
        super().setUp()
        self.run_cli("load", self.pool, "-", stdin=self.ENTRIES)

    def whole(self):
        self.assertEqual(self.output("dump", self.pool), self.ENTRIES)
        self.assertTrue(self.json("check", self.pool, "--deep")["ok"])

    def test_closed_output(self):
        for command in ("scan", "dump", "info", "list", "stats", "check"):
            for closed in (">&-", "<&- >&-", ">/dev/full"):
                with self.subTest(command=command, closed=closed):
                    done = shell(f'"$0" {command} "$1" {closed}', self.pool)
                    self.assertEqual(done.returncode, FAILURE, done.stderr)
                    self.assertIn(b"perdure: standard output: cannot write: ", done.stderr)
                    self.whole()
        self.assertEqual(shell('"$0" put "$1" 0000 value >&-', self.pool).returncode, DONE)
        target = self.folder / "target"
        self.assertEqual(shell('"$0" dump "$1" "$2" <&- >&- 2>&-', self.pool,
                               target).returncode, DONE)
        self.assertEqual(target.read_bytes(), self.ENTRIES)
        self.whole()

    def test_closed_error(self):
        source = self.write("in.tsv", self.ENTRIES)
        for closed in ("2>&-", "2>/dev/full", "<&- 2>&-", "<&- >/dev/null 2>&-"):
            with self.subTest(closed=closed):
                self.assertEqual(shell(f'"$0" get "$1" none {closed}', self.pool).returncode,
                                 NEGATIVE)
                self.assertEqual(shell(f'"$0" get "$1.none" k {closed}', self.pool).returncode,
                                 FAILURE)
                self.assertEqual(shell(f'"$0" load "$1" "$2" --restart {closed}', self.pool,
                                       source).returncode, DONE)
                self.whole()

    def test_closed_input(self):
        done = shell('"$0" load "$1" - --json <&-', self.pool)
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertIn(b'"acknowledged": 0', done.stdout)
        self.whole()

    def test_a_reader_that_goes_away(self):
        for command in (["info", self.pool], ["--help"], ["get", self.pool, "0000"], self.LONG):
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run([CLI, *command], stdout=writer, stderr=subprocess.PIPE,
                                  timeout=120, check=False, cwd=self.folder)
            os.close(writer)
            self.assertEqual((done.returncode, done.stderr), (DONE, b""), command)

    def test_more_output_than_a_buffer_has(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([CLI, *self.LONG], stdout=full, stderr=subprocess.PIPE,
                                  timeout=120, check=False, cwd=self.folder)
        self.assertEqual(done.returncode, FAILURE)
        self.assertIn(b"perdure: standard output: cannot write: No space left", done.stderr)


if __name__ == "__main__":
    unittest.main()
