"""What a terminal gets: a line of progress that fits it, and no control characters of the data."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import unittest

from cli_case import CLI, DONE, USAGE, CliTest, tsv


class TerminalTest(CliTest):
    def on_terminal(self, *arguments, columns=80, expect=DONE, out=False, feed=None):
        """Runs a command whose standard error, or with `out` its output, is a terminal. Returns
        what the terminal got. `feed(stdin)` writes the command's input."""
        leader, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        mode = termios.tcgetattr(terminal)
        mode[1] &= ~termios.OPOST  # newlines stay as they are
        termios.tcsetattr(terminal, termios.TCSANOW, mode)
        shown = b""
        streams = {"stdout": terminal if out else subprocess.DEVNULL,
                   "stderr": subprocess.DEVNULL if out else terminal}
        with os.fdopen(leader, "rb", buffering=0) as screen:
            with subprocess.Popen([CLI, *map(os.fspath, arguments)], stdin=subprocess.PIPE,
                                  **streams) as command:
                os.close(terminal)
                if feed is not None:
                    feed(command.stdin)
                command.stdin.close()
                with contextlib.suppress(OSError):  # EIO: the other end is closed
                    while text := screen.read(4096):
                        shown += text
                self.assertEqual(command.wait(), expect, shown)
        return shown

    def lines(self, shown):
        """The lines of progress, each of which takes away the one before."""
        return [line for line in re.split(rb"\r\x1b\[K", shown)[1:] if b"\n" not in line and line]

    def entries(self):
        return tsv((b"key%07d" % i, b"v" * 64) for i in range(60_000))

    def test_check_shows_a_bar_on_a_terminal_only(self):
        self.run_cli("load", self.pool, "-", stdin=self.entries())
        self.assertEqual(self.run_cli("check", self.pool, "--deep").stderr, b"")
        shown = self.on_terminal("check", self.pool, "--deep", columns=100)
        self.assertRegex(shown, rb"\r\x1b\[K\[[#.]{24}\] +\d+%  .* of .*ETA \d+:\d\d")
        self.assertTrue(shown.endswith(b"\r\x1b[K"), "the line is taken away at the end")

    def test_what_is_acknowledged_is_shown_at_every_width(self):
        file = self.write("in.tsv", self.entries())
        for columns in (24, 40, 60, 80, 100, 200):
            with self.subTest(columns=columns):
                lines = self.lines(self.on_terminal("load", self.pool, file, "--restart",
                                                    columns=columns))
                self.assertTrue(lines)
                for line in lines:
                    self.assertLess(len(line), columns)
                    self.assertRegex(line, rb"acknowledged [\d,]+$")
                if columns == 80:
                    self.assertRegex(lines[-1], rb"^\[[#.]{6,24}\] +\d+%  .* of .*  ETA ")
                if columns == 200:
                    self.assertRegex(lines[-1],
                                     rb"^\[[#.]{24}\] .* of .*  ETA .* records/s  acknowledged ")

    def test_an_input_of_unknown_size_has_no_bar(self):
        shown = self.on_terminal("load", self.pool, "-",
                                 feed=lambda stdin: stdin.write(self.entries()))
        for line in self.lines(shown):
            self.assertRegex(line, rb"^[\d.]+ [KMi]*B  [\d,]+ records/s  acknowledged [\d,]+$")

    def test_control_characters_of_the_data_stay_out_of_a_terminal(self):
        key, value = b"a\x1b]0;title\x07", b"\x1b[2J\xc2\x9b\x7f\xc3\xa9\r"
        self.run_cli("load", self.pool, "-", "--engine", "pskiplist", stdin=tsv([(key, value)]))
        self.run_cli("tag", self.pool)
        escaped = rb"\x1B[2J\xC2\x9B\x7F" + b"\xc3\xa9" + rb"\x0D"
        line = rb"a\x1B]0;title\x07" + b"\t" + escaped + b"\n"
        for command in (["scan"], ["dump"], ["snapshot", "1"], ["salvage"]):
            shown = self.on_terminal(command[0], self.pool, *command[1:], out=True)
            self.assertEqual(shown, line, command)
            self.assertEqual(self.output(command[0], self.pool, *command[1:]), tsv([(key, value)]))
        self.assertEqual(self.on_terminal("get", self.pool, key, out=True), escaped + b"\n")
        self.assertEqual(self.output("get", self.pool, key), value + b"\n")
        self.assertNotIn(b"\x1b", self.on_terminal("history", self.pool, key, out=True))
        message = self.on_terminal("get", self.pool, "k", "--map", "m\x1b[2J", expect=1)
        self.assertIn(rb"there is no map 'm\x1B[2J'", message)
        message = self.on_terminal("scan", self.pool, "--limit", "\x1b[2J", expect=USAGE)
        self.assertIn(rb"\x1B[2J", message)
        self.run_cli("put", self.pool, "k", "v", "--map", "m\x1b[2J")
        for command in ("list", "info", "stats"):
            self.assertNotIn(b"\x1b", self.on_terminal(command, self.pool, out=True))


if __name__ == "__main__":
    unittest.main()
