"""Another user, who prepares, links and races the files of a pool, for scripts/world.py.

    world_attack.py race|look|WAY FOLDER ELSEWHERE [SEED|NAME]

becomes that user. It prints a line for each thing that it must not be able to do."""

import contextlib
import hashlib
import os
import pathlib
import random
import shutil
import signal
import stat
import subprocess
import sys
import time

from world_owner import Wrong

OTHER_ID = 65534
SECONDS = 8
PARTS = ("", "-log", "-live", "-live-dirty", ".creating", "-live.creating",
         "-live-dirty.creating")


# --- the other user ------------------------------------------------------------------------------

def make_folder(path, _elsewhere):
    path.mkdir()
    os.chmod(path, 0o777)


def make_file(path, _elsewhere):
    with open(path, "xb") as file:
        file.truncate(9 << 20)
    os.chmod(path, 0o666)


def make_fifo(path, _elsewhere):
    os.mkfifo(path)
    os.chmod(path, 0o666)


WAYS = {
    "folder": make_folder,
    "file": make_file,
    "fifo": make_fifo,
    "link-to-file": lambda path, elsewhere: os.symlink(elsewhere / "file", path),
    "link-to-folder": lambda path, elsewhere: os.symlink(elsewhere / "folder", path),
}


def look_at(path):
    try:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            return
        if found.st_uid == 0 and found.st_mode & 0o077 != 0:
            print(f"mode {stat.filemode(found.st_mode)} of {path}", flush=True)
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    with open(file, "rb") as opened:
        now = os.fstat(file)
        if now.st_uid == 0:
            print(f"opened {path}", flush=True)
        elif stat.S_ISREG(now.st_mode) and b" secret" in opened.read():
            print(f"a secret in {path}", flush=True)


def look(folder):
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(IsADirectoryError):
                look_at(os.path.join(parent, name))


class Racer:
    def __init__(self, folder, elsewhere, seed):
        self.folder, self.elsewhere = folder, elsewhere
        self.chance = random.Random(seed)
        self.made = 0

    def run(self):
        steps = (self.prepare, self.look, self.look, self.look, self.clear, self.move)
        while os.getppid() != 1:
            with contextlib.suppress(OSError):
                self.chance.choice(steps)()
            time.sleep(self.chance.choice((0, 0, 0.002, 0.02)))

    def name(self):
        return self.folder / (self.chance.choice("pr") + self.chance.choice(PARTS))

    def prepare(self):
        WAYS[self.chance.choice(list(WAYS))](self.name(), self.elsewhere)
        self.made += 1

    def look(self):
        look(self.folder)

    def clear(self):
        name = self.name()
        look_at(name)
        if name.is_symlink() or not name.is_dir():
            name.unlink()
        else:
            look(name)
            shutil.rmtree(name)

    def move(self):
        os.rename(self.name(), self.name())


def be_other_user(what, folder, elsewhere, argument=""):
    os.setgroups([])
    os.setgid(OTHER_ID)
    os.setuid(OTHER_ID)
    folder, elsewhere = pathlib.Path(folder), pathlib.Path(elsewhere)
    if what == "look":
        look(folder)
    elif what == "race":
        racer = Racer(folder, elsewhere, argument)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            racer.run()
        finally:
            print("made", racer.made, flush=True)
    else:
        WAYS[what](folder / argument, elsewhere)


# --- root ----------------------------------------------------------------------------------------

def start_other_user(*arguments):
    return subprocess.Popen([sys.executable, __file__, *map(str, arguments)],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def other_user(*arguments):
    process = start_other_user(*arguments)
    said = process.communicate()[0].strip()
    if said or process.returncode != 0:
        raise Wrong(f"another user: {said or process.returncode}")


class Place:
    """A folder that others can write to, and files of root elsewhere."""

    def __init__(self, world, disk, mode):
        self.world, self.folder = world, disk.root / "shared"
        self.elsewhere = disk.root / "elsewhere"
        self.folder.mkdir()
        os.chmod(self.folder, mode)
        (self.elsewhere / "folder").mkdir(parents=True)
        (self.elsewhere / "file").write_bytes(b"of root\n" * 1000)
        for path in (disk.root, *disk.root.parents):
            if path.stat().st_mode & 0o001 == 0:
                raise Wrong(f"other users cannot reach {path}")
        self.before = self.state()
        self.counts = {}

    def state(self):
        return {path: (path.lstat().st_mode, path.lstat().st_uid, path.lstat().st_mtime_ns,
                       hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b"")
                for path in (self.elsewhere, *self.elsewhere.rglob("*"))}

    def must_be_untouched(self):
        now = self.state()
        changed = [str(path) for path in self.before | now
                   if self.before.get(path) != now.get(path)]
        if changed:
            raise Wrong(f"files elsewhere were changed: {', '.join(changed)}")

    def count(self, what, code):
        if str(code).startswith(("SIG", "-")):
            raise Wrong(f"{what} ends the process: {code}")
        if code not in ("ok", 0):
            what = f"{what} refused"
        self.counts[what] = self.counts.get(what, 0) + 1

    def cli(self, *command):
        done = self.world.cli(*command)
        self.count(command[0], done.returncode)

    def use(self, backup, *options):
        """Any call may be refused."""
        owner = self.world.owner(self.folder / "p", *options)
        self.count("open", owner.opened.code)
        if owner.opened.code != "ok":
            return owner
        for command in (("put", "a", 200), ("sync",), ("fold",), ("put", "b", 50),
                        ("backup", self.folder / backup)):
            self.count(command[0], owner.do(*command).code)
        return owner

    def work(self, look=lambda: None):
        """Creates a private pool, opens it, and does what reads and writes its files."""
        before = os.umask(0o077)
        owner = self.use("backup", "create", "durability=buffered")
        os.umask(before)
        if owner.opened.code == "ok":
            self.count("close", owner.do("close").code)
        self.use("later", "existing").kill()  # its files stay
        look()
        self.cli("check", self.folder / "p", "--accept")
        self.cli("restore", self.folder / "backup", self.folder / "r")
        look()

    def clear(self):
        self.world.end()
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):  # the other user has moved it
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()

    def shown(self):
        return ", ".join(f"{what} {number}" for what, number in sorted(self.counts.items()))


def prepared_names(world, disk):
    """Each name that a pool uses, prepared in each way, before root creates the pool."""
    place = Place(world, disk, 0o1777)
    wrong = []
    names = [start + part for start in "pr" for part in PARTS] + ["backup", "later"]
    for name in names:
        for way in WAYS:
            other_user(way, place.folder, place.elsewhere, name)
            try:
                place.work(lambda: other_user("look", place.folder, place.elsewhere))
                place.must_be_untouched()
            except Wrong as what:
                wrong.append(f"{name} is a {way}: {what}")
                shutil.rmtree(place.elsewhere)
                shutil.rmtree(place.folder)
                place = Place(world, disk, 0o1777)
            place.clear()
    if wrong:
        raise Wrong("; ".join(wrong))
    return f"{len(names) * len(WAYS)} names: nothing read, nothing changed; {place.shown()}"


def missing(place):
    """What root has never come through with."""
    wanted = ("open", "put", "sync", "close", "backup", "restore", "check")
    return ", ".join(what for what in wanted if place.counts.get(what, 0) == 0)


def raced_names(mode):
    """In a folder of this mode; root must come through now and then."""
    def case(world, disk):
        place = Place(world, disk, mode)
        racers = [start_other_user("race", place.folder, place.elsewhere, seed)
                  for seed in range(2)]
        try:
            begin = time.monotonic()
            while time.monotonic() < begin + SECONDS or (
                    missing(place) and time.monotonic() < begin + 10 * SECONDS):
                place.work()
                place.clear()
        finally:
            for racer in racers:
                racer.terminate()
            said = "".join(racer.communicate()[0] for racer in racers).splitlines()
        broken = [line for line in said if not line.startswith("made")]
        if broken:
            raise Wrong(f"another user: {broken[0]}, and {len(broken) - 1} lines more")
        place.must_be_untouched()
        made = sum(int(line.split()[1]) for line in said)
        if missing(place) or made == 0:
            raise Wrong(f"root never came through with {missing(place)}: {place.shown()}")
        return f"nothing read, nothing changed; {made} files prepared; {place.shown()}"
    return case


if __name__ == "__main__":
    be_other_user(*sys.argv[1:])
