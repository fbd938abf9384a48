"""Processes that have a pool open, and what is found in it afterwards, for scripts/world.py."""

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import threading

PATIENCE = 120  # seconds
KEYS = 20_000


class Wrong(Exception):
    """A promise of the library is broken."""


class Reply:
    """A line of the driver: the name of a status, and what follows."""

    def __init__(self, line, process):
        self.code, _, self.text = line.strip().partition(" ")
        if not line:  # the name of the signal, or an exit status
            status = process.wait()
            self.code = signal.Signals(-status).name if status < 0 else f"exit {status}"

    def numbers(self):
        return [int(word) for word in self.text.split() if word.isdigit()]

    def __str__(self):
        return f"{self.code} {self.text}".strip()


class Owner:
    """A process of the driver (testing/world/world_owner.cc). `inside`: a command that runs it."""

    program = ""

    def __init__(self, path, *options, inside=()):
        self.path = path
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([*inside, self.program, str(path), *options],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.said, text=True)
        self.opened = self.read()

    def read(self):
        timer = threading.Timer(PATIENCE, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        if not timer.is_alive():
            raise Wrong(f"{self.path}: no reply in {PATIENCE} s")
        timer.cancel()
        return Reply(line, self.process)

    def do(self, *command):
        try:
            self.process.stdin.write(" ".join(map(str, command)) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self.read()

    def must(self, *command):
        reply = self.do(*command)
        if reply.code != "ok":
            raise Wrong(f"{' '.join(map(str, command))}: {reply}")
        return reply

    def must_have(self, prefix, keys=KEYS, round_=0):
        reply = self.must("has", prefix, keys, round_)
        if reply.numbers() != [keys, 0]:
            present, wrong = reply.numbers()
            raise Wrong(f"{present} of {keys} keys {prefix}, {wrong} of them with a wrong value")

    def must_be_sound(self):
        reply = self.must("check")
        if reply.numbers()[0] != 0:
            raise Wrong(f"check: {reply}")

    def is_restored(self):
        self.said.seek(0)
        return "restored from its log" in self.said.read()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.must("close")
        self.process.wait()


class World:
    """Starts owners and the command line, and ends them."""

    def __init__(self, cli, folder):
        self.cli_program, self.folder = cli, pathlib.Path(folder)
        self.owners = []

    def owner(self, path, *options, inside=()):
        self.owners.append(Owner(path, *options, inside=inside))
        return self.owners[-1]

    def opened(self, path, *options, inside=()):
        owner = self.owner(path, *options, inside=inside)
        if owner.opened.code != "ok":
            raise Wrong(f"open: {owner.opened}")
        return owner

    def end(self):
        for owner in self.owners:
            owner.kill()
            owner.process.stdout.close()
            owner.said.close()
            with contextlib.suppress(BrokenPipeError):
                owner.process.stdin.close()
        self.owners.clear()

    def cli(self, *arguments, streams=""):
        """`streams`: how a shell opens or closes those of the process."""
        command = (self.cli_program, *map(os.fspath, arguments))
        return subprocess.run(
            ["sh", "-c", f'exec "$@" {streams}', "sh", *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            timeout=PATIENCE, check=False)

    def accept(self, path):
        done = self.cli("check", path, "--accept")
        if done.returncode != 0:
            said = (done.stderr or done.stdout).decode(errors="replace")
            raise Wrong(f"check --accept: status {done.returncode}: {said.strip()}")

    def must_find(self, path, durable, acknowledged=(), inside=()):
        """Opens a pool that was left, as the message says if it is refused. `durable`: what sync()
        has returned for. The pool must be sound, and go on. Returns what happened."""
        owner = self.owner(path, inside=inside)
        how = "goes on"
        refusal = owner.opened.text
        if owner.opened.code in ("live_missing", "untrusted"):
            how = f"refused ({owner.opened.code}), then accepted"
            try:
                self.accept(path)
            except Wrong as wrong:
                raise Wrong(f"{refusal}; {wrong}") from wrong
            owner = self.owner(path, inside=inside)
        if owner.opened.code != "ok":
            raise Wrong(f"{how}, open: {owner.opened}")
        if owner.is_restored() and how == "goes on":
            how = "restored"
        for prefix in (*durable, *acknowledged):
            owner.must_have(prefix)
        owner.must_be_sound()
        owner.must("put", "next", 100)
        owner.must("sync")
        owner.kill()
        owner = self.opened(path, inside=inside)
        for prefix in (*durable, *acknowledged):
            owner.must_have(prefix)
        owner.must_have("next", 100)
        owner.close()
        return how
