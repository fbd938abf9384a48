#!/usr/bin/env python3
"""Cuts the power of a virtual machine while it changes a pool, and verifies what its disk has left.

    power_cuts.py GUEST CUTS [ENGINE ..]

GUEST is perdure-power-guest. The machine is QEMU, with KVM if a machine boots with it, else with
an emulated processor. Its disk forgets what was not flushed (volatile_disk.py), and keeps a random
part of it. After each cut the machine boots again: the pool
must be as it was at one moment, with everything that was said to be durable (power_guest.cc). Each
engine has a disk of its own, which every cut goes on with.

Before that, some cuts of a disk that ignores flushes must lose data: otherwise these tests could
not notice a loss.

The cuts of earlier runs with the same program count: they are in build/power/results.json.
"""

import hashlib
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from volatile_disk import VolatileDisk

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build/power"
ENGINES = ("phast", "pskiplist", "as", "ascs", "level", "clevel")
MODULES = ("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci",
           "virtio_blk")
DISK_BYTES = 768 << 20
PATIENCE = 60  # seconds
CANARIES = 6

INIT = """#!/bin/sh
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
echo booted
for module in {modules}; do insmod /modules/$module.ko; done
mount -t ext4 /dev/vda /mnt || echo "wrong the file system cannot be mounted"
/guest /mnt/pool $engine
poweroff -f
"""


def run(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, **options).stdout


# --- the machine ---------------------------------------------------------------------------------

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


def make_start(kernel, guest):
    """The file system that the machine starts with."""
    with tempfile.TemporaryDirectory(dir=WORK) as there:
        root = pathlib.Path(there)
        for name in ("bin", "proc", "sys", "dev", "mnt", "modules", "tmp"):
            (root / name).mkdir()
        shutil.copy("/bin/busybox", root / "bin/busybox")
        for name in ("sh", "mount", "insmod", "poweroff", "echo"):
            (root / "bin" / name).symlink_to("busybox")
        for module in MODULES:
            shutil.copy(next(kernel.rglob(module + ".ko")), root / "modules")
        shutil.copy(guest, root / "guest")
        for line in run("ldd", guest, text=True).splitlines():
            path = next((word for word in line.split() if word.startswith("/")), None)
            if path is not None:
                (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, root / path[1:])
        (root / "init").write_text(INIT.format(modules=" ".join(MODULES)))
        (root / "init").chmod(0o755)
        names = run("find", ".", "-print0", cwd=root)
        (WORK / "start.cpio").write_bytes(run("cpio", "--null", "-o", "-H", "newc", cwd=root,
                                              input=names, stderr=subprocess.DEVNULL))


def make_disk(path):
    with open(path, "wb") as file:
        file.truncate(DISK_BYTES)
    run("mkfs.ext4", "-q", "-F", path)


class Machine:
    """Runs until its power is cut. Collects what the guest says."""

    accelerator = []  # options of QEMU

    def __init__(self, kernel, image, engine, ignores_flushes=False, flush_seconds=0):
        self.folder = tempfile.TemporaryDirectory(prefix="perdure-power-")
        path = self.folder.name + "/disk"
        self.disk = VolatileDisk(image, path, ignores_flushes, flush_seconds)
        self.found, self.wrong, self.lines = None, None, []
        self.booted, self.durable = False, None
        self.acked = []  # (milliseconds, counts)
        self.changed = threading.Condition()
        command = [
            "qemu-system-x86_64", *self.accelerator, "-smp", "2", "-m", "512",
            "-display", "none", "-serial", "stdio", "-monitor", "none", "-no-reboot",
            "-nic", "none",
            "-kernel", str(next(kernel.glob("boot/vmlinuz-*"))), "-initrd", WORK / "start.cpio",
            "-append", f"console=ttyS0 quiet panic=-1 engine={engine}",
            "-blockdev", f"driver=nbd,node-name=disk,server.type=unix,server.path={path}",
            "-device", "virtio-blk-pci,drive=disk,write-cache=on"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, errors="replace")
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

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
            last = " | ".join(self.lines[-5:])
            self.wrong = self.wrong or f"the machine stopped: {last}"
            self.changed.notify_all()

    def take(self, line):
        what, *numbers = line.split()
        if what == "booted":
            self.booted = True
        elif what == "found":
            self.found = [int(number) for number in numbers]
        elif what == "wrong":
            self.wrong = line
        elif what == "durable":
            counts = [int(number) for number in numbers]
            self.durable = [max(pair) for pair in zip(counts, self.durable or counts, strict=True)]
        elif what == "acked":
            self.acked.append((int(numbers[0]), [int(number) for number in numbers[1:]]))
        else:
            self.lines.append(line)

    def wait_for(self, condition, seconds=PATIENCE):
        with self.changed:
            self.changed.wait_for(lambda: condition() or self.wrong is not None, seconds)
            return condition() and self.wrong is None

    def cut(self, seed):
        with self.changed:
            wrong = self.wrong
        self.disk.power_off()
        self.process.kill()
        self.process.wait()
        self.reader.join()
        undecided = self.disk.cut(seed)
        self.disk.close()
        self.folder.cleanup()
        self.wrong = wrong
        return undecided


def choose_accelerator(kernel):
    """KVM can be there and not work: in a machine that is itself virtual, it can be too slow to
    boot another one."""
    image = WORK / "probe"
    make_disk(image)
    ways = [("an emulated processor", ["-accel", "tcg,thread=multi", "-cpu", "max"], PATIENCE)]
    if os.access("/dev/kvm", os.R_OK | os.W_OK):
        ways.insert(0, ("KVM", ["-enable-kvm", "-cpu", "host,-arch-capabilities"], 15))
    for name, options, seconds in ways:
        Machine.accelerator = options
        machine = Machine(kernel, image, "phast")
        boots = machine.wait_for(lambda: machine.booted, seconds)
        machine.cut(0)
        if boots:
            print(f"the machine is QEMU with {name}", flush=True)
            return True
        print(f"no machine boots with {name}: {machine.wrong or 'it says nothing'}", flush=True)
    return False


# --- the cuts ------------------------------------------------------------------------------------

class Disk:
    """The disk of an engine, and what it must have."""

    def __init__(self, engine, ignores_flushes=False):
        self.engine, self.ignores_flushes = engine, ignores_flushes
        self.path = WORK / f"disk-{engine}"
        make_disk(self.path)
        self.durable, self.acked = [0, 0, 0], []

    def run(self, kernel, chance):
        """Boots, verifies, works, cuts. Returns what is wrong, and figures."""
        machine = Machine(kernel, self.path, self.engine, self.ignores_flushes,
                          chance.choice((0, 0.005, 0.05)))
        figures = {}
        wrong = None
        if not machine.wait_for(lambda: machine.found is not None):
            if not machine.booted:
                machine.cut(0)
                sys.exit(f"power_cuts: the machine does not boot: {machine.wrong}")
            wrong = machine.wrong or "the machine says nothing: " + " | ".join(machine.lines[-5:])
        elif any(a < b for a, b in zip(machine.found, self.durable)):
            wrong = f"found {machine.found}, but {self.durable} was durable"
        else:
            if self.acked:
                figures["lost_ms"] = self.lost_ms(machine.found)
                lost = sum(self.acked[-1][1]) - sum(machine.found)
                figures["lost_operations"] = max(lost, 0)  # the last ones were not reported
            machine.wait_for(lambda: machine.acked)
            time.sleep(chance.uniform(0.05, 2.5))
        figures["undecided"], figures["changed"] = machine.cut(chance.random())
        wrong = wrong or machine.wrong
        figures["flushes"] = machine.disk.flushes
        self.durable, self.acked = machine.durable or self.durable, machine.acked
        return wrong, figures

    def lost_ms(self, found):
        """From the first report of an operation that is gone to the last report."""
        gone = [at for at, counts in self.acked if any(a > b for a, b in zip(counts, found))]
        return self.acked[-1][0] - gone[0] if gone else 0


def canary(kernel, chance):
    for number in range(CANARIES):
        disk = Disk("phast", ignores_flushes=True)
        for _ in range(3):
            wrong, _ = disk.run(kernel, chance)
            if wrong is not None:
                print(f"a disk that ignores flushes loses data: {wrong}", flush=True)
                return True
    print(f"{number + 1} disks that ignore flushes have lost nothing: these tests notice no loss")
    return False


def main():
    guest, wanted = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2])
    engines = sys.argv[3:] or ENGINES
    WORK.mkdir(parents=True, exist_ok=True)
    kernel = make_kernel()
    make_start(kernel, guest)
    if not choose_accelerator(kernel):
        return 1
    seed = int(os.environ.get("PERDURE_SEED", random.randrange(1 << 32)))
    print(f"PERDURE_SEED={seed}", flush=True)
    chance = random.Random(seed)
    results = WORK / "results.json"
    program = hashlib.sha256(guest.read_bytes()).hexdigest()
    done = json.loads(results.read_text()) if results.exists() else {}
    cuts = done.get(program, [])
    if not cuts and not canary(kernel, chance):
        return 1
    disks = {}
    while len(cuts) < wanted:
        engine = engines[len(cuts) // 10 % len(engines)]
        if engine not in disks:
            disks[engine] = Disk(engine)
        wrong, figures = disks[engine].run(kernel, chance)
        if wrong is not None:
            print(f"cut {len(cuts)}, {engine}: {wrong}; the disk is {disks[engine].path}")
            return 1
        cuts.append({"engine": engine, **figures})
        results.write_text(json.dumps({program: cuts}))
        if len(cuts) % 10 == 0:
            print(f"{len(cuts)} cuts", flush=True)
    lost = sorted(cut["lost_ms"] for cut in cuts if "lost_ms" in cut)
    undecided = sorted(cut["undecided"] for cut in cuts)
    print(f"{len(cuts)} cuts, none wrong. After {len(lost)} of them: lost at most {lost[-1]} ms, "
          f"median {statistics.median(lost)} ms; blocks that were not flushed: median "
          f"{statistics.median(undecided)}, at most {undecided[-1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
