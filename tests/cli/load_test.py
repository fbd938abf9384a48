"""Loads from the command line and what a kill leaves of them; versions."""

import contextlib
import os
import signal
import subprocess
import unittest

from cli_case import CLI, DONE, FAILURE, NEGATIVE, SMALL, USAGE, CliTest, tsv


class LoadTest(CliTest):
    LINES = 20_000 if SMALL else 200_000

    def big_input(self):
        entries = [(b"key%07d" % (i * 7919 % self.LINES), b"value of %d" % i)
                   for i in range(self.LINES)]
        return self.write("big.tsv", tsv(entries)), entries

    def load_and_signal(self, source, signal_number, threads, at):
        """Signals the loader once `at` lines are acknowledged. Returns the last number printed."""
        loader = subprocess.Popen([CLI, "load", self.pool, source, "--threads", str(threads)],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        acknowledged, sent = 0, False
        for line in loader.stderr:
            if line.startswith(b"acknowledged ") and line.endswith(b"\n"):
                acknowledged = int(line.split()[1])
            if acknowledged >= at and not sent:
                loader.send_signal(signal_number)
                sent = True
        loader.stderr.close()
        return loader.wait(), acknowledged

    def test_nothing_acknowledged_is_lost(self):
        source, entries = self.big_input()
        for threads in (1, 3):
            with self.subTest(threads=threads), contextlib.ExitStack() as stack:
                stack.callback(lambda: os.path.exists(self.pool) and os.unlink(self.pool))
                status, acknowledged = self.load_and_signal(source, signal.SIGKILL, threads,
                                                            self.LINES // 4)
                if status == DONE:
                    self.skipTest("the machine was too busy to kill the loader in time")
                self.assertEqual(status, -signal.SIGKILL)
                dumped = set(self.output("dump", self.pool).split(b"\n")[:-1])
                lines = tsv(entries).split(b"\n")[:-1]
                self.assertTrue(dumped.issuperset(lines[:acknowledged]))
                self.assertTrue(dumped.issubset(lines))
                self.run_cli("check", self.pool, "--deep")

                done = self.run_cli("load", self.pool, source, "--threads", str(threads))
                self.assertIn(b"resuming", done.stderr)
                first = next(line for line in done.stderr.split(b"\n") if b"acknowledged" in line)
                self.assertGreaterEqual(int(first.split()[1]), acknowledged)
                self.assertTrue(done.stderr.endswith(b"acknowledged %d\n" % self.LINES))
                self.assertEqual(self.output("dump", self.pool), tsv(sorted(entries)))

    def test_interrupt(self):
        source, entries = self.big_input()
        status, acknowledged = self.load_and_signal(source, signal.SIGTERM, 2, self.LINES // 8)
        if status == DONE:
            self.skipTest("the machine was too busy to stop the loader in time")
        self.assertEqual(status, FAILURE)
        self.assertTrue(self.json("info", self.pool)["clean"])
        outcome = self.json("load", self.pool, source)
        self.assertEqual((outcome["resumed_at"], outcome["acknowledged"]),
                         (acknowledged, self.LINES))
        self.assertEqual(self.output("dump", self.pool), tsv(sorted(entries)))

    def test_interrupt_while_waiting_for_input(self):
        with self.pool_in_use() as holder:
            holder.send_signal(signal.SIGINT)
            self.assertEqual(holder.wait(timeout=20), FAILURE)
        self.assertEqual(self.output("get", self.pool, "held"), b"value\n")

    def test_loaded_already(self):
        source = self.write("in.tsv", b"a\t1\nb\t2\n")
        self.assertEqual(self.json("load", self.pool, source)["records"], 2)
        done = self.run_cli("load", self.pool, source)
        self.assertIn(b"loaded already", done.stderr)
        self.assertTrue(done.stderr.endswith(b"acknowledged 2\n"))
        # By another name, but the same file; then into another map, which has not loaded it.
        (self.folder / "link").symlink_to(source)
        self.assertEqual(self.json("load", self.pool, self.folder / "link")["records"], 0)
        self.assertEqual(self.json("load", self.pool, source, "--map", "m")["records"], 2)
        self.assertEqual(self.json("load", self.pool, source, "--restart")["records"], 2)
        self.run_cli("drop", self.pool, "--map", "default")
        self.assertEqual(self.json("load", self.pool, source)["records"], 2)

    def test_changed_input_starts_over(self):
        source = self.write("in.tsv", b"a\t1\nb\t2\n")
        self.run_cli("load", self.pool, source)
        before = source.stat()
        for content in (b"a\t5\nb\t6\n", b"a\t1\nb\t2\nc\t3\n"):  # same size; same beginning
            source.write_bytes(content)
            os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
            done = self.run_cli("load", self.pool, source)
            self.assertIn(b"has changed", done.stderr)
            self.assertEqual(self.output("dump", self.pool), content)

    def test_skip(self):
        lines = b"a\t1\nb\t2\nc\t3\n"
        outcome = self.json("load", self.pool, "-", "--skip", "2", stdin=lines)
        self.assertEqual((outcome["records"], outcome["acknowledged"]), (1, 3))
        self.assertEqual(self.output("dump", self.pool), b"c\t3\n")

    def test_full_pool(self):
        self.run_cli("create", self.pool, "--max-size", "8M")
        source = self.write("in.tsv", tsv((b"%06d" % i, b"x" * 1000) for i in range(20000)))
        message = self.errors("load", self.pool, source)
        acknowledged = int(message.split("acknowledged ")[-1].split()[0])
        self.assertIn(f"line {acknowledged + 1} of ", message)
        self.assertGreater(acknowledged, 1000)
        self.assertEqual(self.output("dump", self.pool).count(b"\n"), acknowledged)
        self.run_cli("del", self.pool, "000000")
        self.run_cli("check", self.pool)


class VersionsTest(CliTest):
    def put(self, key, value):
        self.run_cli("put", self.pool, key, value, "--engine", "pskiplist")

    def tag(self):
        return self.output("tag", self.pool).decode().strip()

    def test_versions(self):
        self.put("apple", "3")
        self.put("a\tb", "\n")
        self.assertEqual(self.output("versions", self.pool, expect=NEGATIVE), b"")
        first = self.tag()
        self.put("apple", "4")
        self.put("plum", "1")
        second = self.tag()
        self.run_cli("del", self.pool, "apple")
        third = self.tag()
        self.assertLess(int(first), int(second))
        self.assertEqual(self.output("versions", self.pool).decode(), f"{first}\t{third}\n")
        for version, value in ((first, b"3\n"), (second, b"4\n")):
            self.assertEqual(self.output("get", self.pool, "apple", "--version", version), value)
        self.run_cli("get", self.pool, "apple", "--version", third, expect=NEGATIVE)
        self.assertIn("no tag has closed it", self.errors(
            "get", self.pool, "apple", "--version", str(int(third) + 1), expect=USAGE))
        self.assertEqual(self.output("history", self.pool, "apple").decode(),
                         f"{first}\t+\t3\n{second}\t+\t4\n{third}\t-\n")
        self.assertEqual(self.output("history", self.pool, "none", expect=NEGATIVE), b"")
        before = [(b"a\tb", b"\n"), (b"apple", b"3")]
        after = [(b"a\tb", b"\n"), (b"apple", b"4"), (b"plum", b"1")]
        self.assertEqual(self.output("snapshot", self.pool, first), tsv(before))
        self.assertEqual(self.output("snapshot", self.pool, second), tsv(after))
        self.assertEqual(self.output("snapshot", self.pool, second, "--prefix", "a", "--reverse"),
                         tsv(after[1::-1]))
        self.assertEqual(self.output("snapshot", self.pool, second, "--limit", "1"), tsv(after[:1]))
        self.assertEqual(self.output("diff", self.pool, first, second),
                         b"-\tapple\t3\n+\tapple\t4\n+\tplum\t1\n")
        self.assertEqual(self.output("diff", self.pool, third, second, "--to", "b"),
                         b"+\tapple\t4\n")
        self.run_cli("rollback", self.pool, second)
        self.assertEqual(self.output("scan", self.pool), tsv(after))
        # The rollback closed the open version, which reads as `second`.
        closed = str(int(third) + 1)
        self.assertEqual(self.output("versions", self.pool).decode(), f"{first}\t{closed}\n")
        self.assertEqual(self.output("snapshot", self.pool, closed), tsv(after))
        self.assertEqual(self.output("trim", self.pool, second).decode(), second + "\n")
        self.assertEqual(self.output("versions", self.pool).decode(), f"{second}\t{closed}\n")
        self.assertIn(f"versions that exist: {second} to {int(closed) + 1}", self.errors(
            "trim", self.pool, "4000000", expect=USAGE))
        self.assertIn("it was trimmed", self.errors("snapshot", self.pool, first, expect=USAGE))
        self.assertEqual(self.output("snapshot", self.pool, second), tsv(after))
        self.run_cli("check", self.pool, "--deep")

    def test_types_of_versioned_maps(self):
        self.run_cli("put", self.pool, "--engine", "pskiplist", "--key", "i32", "--value", "u64",
                     "--", "-7", "1")
        self.assertEqual(self.tag(), "1")
        self.run_cli("put", self.pool, "--", "-7", "2")
        self.assertEqual(self.output("get", self.pool, "--version", "1", "--", "-7"), b"1\n")
        self.assertEqual(self.output("history", self.pool, "--", "-7"), b"1\t+\t1\n2\t+\t2\n")

    def test_other_engines_keep_no_versions(self):
        self.create()
        self.run_cli("put", self.pool, "k", "v")
        for arguments in (["tag"], ["versions"], ["history", "k"], ["snapshot", "1"],
                          ["diff", "1", "1"], ["trim", "1"], ["rollback", "1"]):
            command = [arguments[0], self.pool, *arguments[1:]]
            self.assertIn("keeps no versions", self.errors(*command), command)
        self.assertIn("phast", self.errors("get", self.pool, "k", "--version", "1"))
        self.assertIn("phast", self.errors("load", self.pool, "-", "--tag-every", "1",
                                           stdin=b"a\tb\n", expect=USAGE))

    def states(self, entries, every):
        """The state behind each line that is a multiple of `every`."""
        state, states = {}, []
        for number, (key, value) in enumerate(entries, 1):
            state[key] = value
            if number % every == 0:
                states.append(tsv(sorted(state.items())))
        return states

    def test_load_closes_versions(self):
        entries = [(b"%d" % (i * 7 % 10), b"%d" % i) for i in range(20)]
        for threads in (1, 3):
            for every in (1, 3, 20, 50):
                with self.subTest(threads=threads, every=every):
                    outcome = self.json("load", self.pool, "-", "--threads", str(threads),
                                        "--tag-every", str(every), stdin=tsv(entries))
                    states = self.states(entries, every)
                    self.assertEqual(outcome["tags"], len(states))
                    for version, state in enumerate(states, 1):
                        self.assertEqual(self.output("snapshot", self.pool, str(version)), state)
                    os.unlink(self.pool)

    def test_killed_load_keeps_its_versions(self):
        lines, every = (4_000, 50) if SMALL else (40_000, 500)
        entries = [(b"%d" % (i * 7919 % 1000), b"%d" % i) for i in range(lines)]
        source = self.write("in.tsv", tsv(entries))
        command = ["load", self.pool, str(source), "--threads", "2", "--tag-every", str(every)]
        loader = subprocess.Popen([CLI, *command], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE)
        acknowledged = 0
        for line in loader.stderr:
            if line.startswith(b"acknowledged "):
                acknowledged = int(line.split()[1])
            if acknowledged >= lines // 4:
                loader.kill()
        loader.stderr.close()
        if loader.wait() == DONE:
            self.skipTest("the machine was too busy to kill the loader in time")
        states = self.states(entries, every)
        for again in (False, True):
            if again:
                self.run_cli(*command)
                self.assertEqual(self.output("snapshot", self.pool, self.tag()), states[-1])
            for version in range(1, acknowledged // every + 1):
                self.assertEqual(self.output("snapshot", self.pool, str(version)),
                                 states[version - 1], version)
        self.run_cli("check", self.pool, "--deep")


if __name__ == "__main__":
    unittest.main()
