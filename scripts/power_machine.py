"""The virtual machine of scripts/power_cuts.py and scripts/disk_errors.py.

The machine is QEMU, with KVM if a machine boots with it, else with an emulated processor. It has a
Debian kernel, a shell that does what the host says, perdure-power-guest and the command line. Its
disk is volatile_disk.py.
"""

import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import threading

from volatile_disk import VolatileDisk
from world_disks import MAKE

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build/power"
RESULTS = WORK / "results.json"
FILE_SYSTEMS = ("ext4", "xfs", "btrfs")
DRIVERS = ("virtio_pci", "virtio_blk")
COMMANDS = ("sh", "mount", "umount", "insmod", "poweroff", "echo", "stty", "killall", "touch", "rm",
            "sync", "fallocate", "dmesg", "tail", "cat", "grep", "pidof", "ls", "df", "true")
DISK_BYTES = 768 << 20
DAMAGED = ("Bad message", "Structure needs cleaning")  # a file system says so of itself
PATIENCE = 60  # seconds

# The kernel writes dirty pages soon. Nothing of the kernel but a panic is on the console.
INIT = """#!/bin/sh
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
for module in {modules}; do insmod /modules/$module.ko; done
echo 10 > /proc/sys/vm/dirty_writeback_centisecs
echo 10 > /proc/sys/vm/dirty_expire_centisecs
stty -echo
echo booted
while read -r command; do eval "$command"; done
poweroff -f
"""
APPEND = "console=ttyS0 loglevel=1 panic=-1 oops=panic"


def run(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, **options).stdout


def make_kernel():
    """Unpacks the kernel of Debian's package for virtual machines. Returns its folder."""
    folder = WORK / "kernel"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=WORK) as there:
            names = run("apt-cache", "depends", "linux-image-cloud-amd64", text=True)
            name = next(line.split(":")[1].strip() for line in names.splitlines()
                        if "Depends: linux-image-" in line)
            run("apt-get", "-q", "download", name, cwd=there)
            package = next(pathlib.Path(there).glob("*.deb"))
            run("dpkg-deb", "-x", package, pathlib.Path(there) / "kernel")
            (pathlib.Path(there) / "kernel").rename(folder)
    return folder


def modules_of(kernel, *wanted):
    """The files of modules and of all that they need, in an order that can be loaded. What is not a
    module is in the kernel."""
    files = {path.stem.replace("-", "_"): path for path in kernel.rglob("*.ko")}
    found = []

    def add(name):
        path = files.get(name.replace("-", "_"))
        if path is None or path in found:
            return
        needs = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
        for other in filter(None, needs[1].decode().split(",") if needs else ()):
            add(other)
        found.append(path)

    for name in wanted:
        add(name)
    return found


def make_start(kernel, *programs):
    """The file system that the machine starts with."""
    with tempfile.TemporaryDirectory(dir=WORK) as there:
        root = pathlib.Path(there)
        for name in ("bin", "proc", "sys", "dev", "mnt", "modules", "tmp"):
            (root / name).mkdir()
        shutil.copy("/bin/busybox", root / "bin/busybox")
        for name in COMMANDS:
            (root / "bin" / name).symlink_to("busybox")
        for module in modules_of(kernel, *DRIVERS, *FILE_SYSTEMS):
            shutil.copy(module, root / "modules")
        for program in programs:
            shutil.copy(program, root / "bin")
            for line in run("ldd", program, text=True).splitlines():
                path = next((word for word in line.split() if word.startswith("/")), None)
                if path is not None and not (root / path[1:]).exists():
                    (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, root / path[1:])
        drivers = " ".join(path.stem for path in modules_of(kernel, *DRIVERS))
        (root / "init").write_text(INIT.format(modules=drivers))
        (root / "init").chmod(0o755)
        names = run("find", ".", "-print0", cwd=root)
        (WORK / "start.cpio").write_bytes(run("cpio", "--null", "-o", "-H", "newc", cwd=root,
                                              input=names, stderr=subprocess.DEVNULL))


class Machine:
    """Runs until its power is cut. Does what it is told, and collects what the guest says."""

    accelerator = []  # options of QEMU

    def __init__(self, kernel, image, ignores_flushes=False, flush_seconds=0):
        self.kernel = kernel
        self.folder = tempfile.TemporaryDirectory(prefix="perdure-power-")
        path = self.folder.name + "/disk"
        self.disk = VolatileDisk(image, path, ignores_flushes, flush_seconds)
        self.booted = self.is_over = False
        self.wrong, self.lines = None, []
        self.durable, self.lagged = None, None
        self.done, self.asked = {}, 0  # commands: number and status
        self.forget()
        self.changed = threading.Condition()
        command = [
            "qemu-system-x86_64", *self.accelerator, "-smp", "2", "-m", "512",
            "-display", "none", "-serial", "stdio", "-monitor", "none", "-no-reboot",
            "-nic", "none",
            "-kernel", str(next(kernel.glob("boot/vmlinuz-*"))), "-initrd", WORK / "start.cpio",
            "-append", APPEND,
            "-blockdev", f"driver=nbd,node-name=disk,server.type=unix,server.path={path}",
            "-device", "virtio-blk-pci,drive=disk,write-cache=on,rerror=report,werror=report"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, errors="replace")
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    # --- what it says ---

    def forget(self):
        """What one guest has said."""
        self.found = self.refused = self.closed = self.ended = None
        self.failed = []  # calls and codes
        self.acked = []  # (milliseconds, counts)

    def read(self):
        for line in self.process.stdout:
            if not line.strip() or not line.endswith("\n"):  # the power was cut
                continue
            with self.changed:
                try:
                    self.take(line.strip())
                except ValueError:
                    self.wrong = f"cannot read {line.strip()!r}"
                self.changed.notify_all()
        with self.changed:
            self.is_over = True
            self.changed.notify_all()

    def take(self, line):
        what, _, text = line.partition(" ")
        if what in ("acked", "durable", "lagged", "found", "did", "ended"):
            self.take_numbers(what, [int(number) for number in text.split()])
            if what != "found":
                return
        elif what == "booted":
            self.booted = True
        elif what == "wrong":
            self.wrong = self.wrong or line
        elif what in ("refused", "closed"):
            setattr(self, what, text)
        elif what == "failed":
            self.failed.append(" ".join(text.split()[:2]))
        self.lines.append(line)

    def take_numbers(self, what, numbers):
        if what == "found":
            self.found = numbers
        elif what == "acked":
            self.acked.append((numbers[0], numbers[1:]))
        elif what == "did":
            self.done[numbers[0]] = numbers[1]
        elif what == "ended":
            self.ended = numbers[0]
        else:
            setattr(self, what, most(getattr(self, what), numbers))

    def last_words(self, count=6):
        return " | ".join(self.lines[-count:])

    def wait_for(self, condition, seconds=PATIENCE):
        with self.changed:
            self.changed.wait_for(
                lambda: condition() or self.wrong is not None or self.is_over, seconds)
            return bool(condition()) and self.wrong is None

    # --- what it does ---

    def tell(self, command):
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the reader notices it

    def do(self, command, seconds=PATIENCE):
        """Returns the exit status of a command, or None if it has not ended."""
        self.asked += 1
        number = self.asked
        self.tell(f"{{ {command}; }} 2>&1; echo did {number} $?")
        self.wait_for(lambda: number in self.done, seconds)
        return self.done.get(number)

    def mount(self, kind):
        """Returns whether it worked."""
        names = " ".join(path.stem for path in modules_of(self.kernel, kind))
        load = f"for m in {names}; do [ -d /sys/module/$m ] || insmod /modules/$m.ko; done; "
        return self.do(f"{load if names else ''}mount -t {kind} /dev/vda /mnt") == 0

    def start_guest(self, engine, seed, *options):
        """Returns whether it has opened the pool."""
        with self.changed:
            self.forget()
        words = " ".join(map(str, ("perdure-power-guest /mnt/pool", engine, seed, *options)))
        self.tell(f"{{ {words}; echo ended $?; }} &")
        self.wait_for(lambda: self.found or self.ended is not None)
        return self.found is not None

    def stop_guest(self, signal):
        """Returns whether it has ended."""
        self.tell(f"killall -{signal} perdure-power-guest 2>/dev/null")
        return self.wait_for(lambda: self.ended is not None)

    def cut(self, seed):
        with self.changed:
            wrong = self.wrong
        self.disk.power_off()
        self.process.kill()
        self.process.wait()
        self.reader.join()
        undecided = self.disk.cut(seed)
        self.disk.close()
        self.process.stdin.close()
        self.process.stdout.close()
        self.folder.cleanup()
        self.wrong = wrong
        return undecided


def is_damage(text):
    """Whether the file system was found damaged. The library can do nothing about that."""
    return any(word in text for word in DAMAGED)


def most(counts, others):
    return [max(pair) for pair in zip(counts or others, others or counts, strict=True)]


class Disk:
    """The disk of an engine, and what it must have."""

    def __init__(self, kernel, engine, kind, ignores_flushes=False):
        self.kernel, self.engine, self.kind = kernel, engine, kind
        self.ignores_flushes = ignores_flushes
        self.path = WORK / f"disk-{engine}-{kind}"
        with open(self.path, "wb") as file:
            file.truncate(DISK_BYTES)
        run(*MAKE[kind], self.path, stderr=subprocess.DEVNULL)
        self.durable = self.lagged = [0, 0, 0]

    def start(self, chance):
        """Boots. The file system is not mounted yet."""
        machine = Machine(self.kernel, self.path, self.ignores_flushes,
                          chance.choice((0, 0.005, 0.05)))
        machine.wait_for(lambda: machine.booted)
        if not machine.booted:
            machine.cut(0)
            raise SystemExit(f"the machine does not boot: {machine.last_words()}")
        return machine

    def learn(self, machine):
        """What the guest has said to be durable."""
        self.durable = most(self.durable, machine.durable)
        self.lagged = most(self.lagged, machine.lagged)

    def judge(self, found):
        """Returns what is missing, or None."""
        for counts, why in ((self.durable, "sync() or close() had returned ok for"),
                            (self.lagged, "Pool::stats() had said to be durable")):
            if any(a < b for a, b in zip(found, counts)):
                return f"found {found}, but {why} {counts}"
        return None


def choose_accelerator(kernel):
    """KVM can be there and not work: in a machine that is itself virtual, it can be too slow to
    boot another one. A small processor boots faster if it is emulated."""
    disk = Disk(kernel, "probe", "ext4")
    ways = [("an emulated processor", ["-accel", "tcg,thread=multi", "-cpu", "Nehalem"], PATIENCE)]
    if os.access("/dev/kvm", os.R_OK | os.W_OK):
        ways.insert(0, ("KVM", ["-enable-kvm", "-cpu", "host,-arch-capabilities"], 15))
    for name, options, seconds in ways:
        Machine.accelerator = options
        machine = Machine(kernel, disk.path)
        boots = machine.wait_for(lambda m=machine: m.booted, seconds)
        machine.cut(0)
        if boots:
            print(f"the machine is QEMU with {name}", flush=True)
            return True
        print(f"no machine boots with {name}: {machine.last_words() or 'it says nothing'}",
              flush=True)
    return False


def prepare(*programs):
    """Returns the kernel and a source of chance, or None if no machine boots."""
    WORK.mkdir(parents=True, exist_ok=True)
    kernel = make_kernel()
    make_start(kernel, *programs)
    if not choose_accelerator(kernel):
        return None
    seed = int(os.environ.get("PERDURE_SEED", random.randrange(1 << 32)))
    print(f"PERDURE_SEED={seed}", flush=True)
    return kernel, random.Random(seed)


class Results:
    """What runs with these programs have done. Each kind of run has a list."""

    def __init__(self, kind, *programs):
        parts = [hashlib.sha256(program.read_bytes()).hexdigest() for program in programs]
        self.program = hashlib.sha256("".join(parts).encode()).hexdigest()
        done = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        self.all = done.get(self.program, {})
        self.list = self.all.setdefault(kind, [])

    def add(self, figures):
        self.list.append(figures)
        RESULTS.write_text(json.dumps({self.program: self.all}))
