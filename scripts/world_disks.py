"""Disks that fail, for scripts/world.py: file systems on loop devices in main memory."""

import ctypes
import fcntl
import os
import pathlib
import struct
import subprocess
import time

LOOP_SET_STATUS, LOOP_GET_STATUS, SIZE_LIMIT_AT = 0x4C04, 0x4C05, 32  # linux/loop.h, 64 bits
GOING_DOWN = 0x8004587D  # of ext4 and xfs
WITHOUT_FLUSH = struct.pack("I", 2)
START_WRITE_BACK = 2  # SYNC_FILE_RANGE_WRITE

# The whole journal is written at once, so that later it needs no space of the disk below.
MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
    "btrfs": ("mkfs.btrfs", "-q", "-f", "-K"),
}

LIBC = ctypes.CDLL(None, use_errno=True)


class Skip(Exception):
    """What a case needs is not to be had on this machine."""


def run(*command):
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout.strip()


def try_to(what, *command):
    try:
        return run(*command)
    except OSError as error:
        raise Skip(f"{what}: {error}") from error


def unmount_if_mounted(on):
    while os.path.ismount(on):
        run("umount", on)


class Disk:
    """A file system at `root`. Its disk is a file on a tmpfs of `room` megabytes.

    The loop device goes away with this process, and the mounts with their namespace."""

    def __init__(self, stack, folder, kind, room=640, megabytes=600):
        self.kind, self.stack = kind, stack
        self.below, self.root = pathlib.Path(folder) / "below", pathlib.Path(folder) / "disk"
        self.below.mkdir(parents=True)
        self.root.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={room}M", "none", self.below)
        stack.callback(unmount_if_mounted, self.below)
        self.image = self.below / "image"
        with open(self.image, "wb") as file:
            file.truncate(megabytes << 20)
        try_to(f"cannot make {kind}", *MAKE[kind], self.image)
        self.device = self.status = self.witness = None
        self.has_told = False
        stack.callback(self.detach)
        self.attach(self.image)
        self.mount()

    def attach(self, image):
        name = try_to("no loop device", "losetup", "--find", "--show", image)
        self.device = os.open(name, os.O_RDWR)
        run("losetup", "--detach", name)  # once all have closed it
        self.name = name
        self.status = bytearray(232)
        fcntl.ioctl(self.device, LOOP_GET_STATUS, self.status)

    def detach(self):
        self.was_told()
        unmount_if_mounted(self.root)
        if self.device is not None:
            os.close(self.device)
            self.device = None

    def mount(self):
        try_to(f"cannot mount {self.kind}", "mount", "-t", self.kind, self.name, self.root)

    def unmount(self):
        self.was_told()
        run("umount", self.root)

    # --- what happens to it ---

    def set_limit(self, limit):
        status = bytearray(self.status)
        struct.pack_into("Q", status, SIZE_LIMIT_AT, limit)
        fcntl.ioctl(self.device, LOOP_SET_STATUS, status)

    def fail(self):
        """From now on each read and write is an error."""
        self.set_limit(4096)

    def shut_down(self):
        """The file system stops, and writes nothing more."""
        folder = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, GOING_DOWN, WITHOUT_FLUSH)
        finally:
            os.close(folder)

    def come_back(self):
        """The file system is mounted again, on the same device."""
        self.unmount()
        self.set_limit(0)
        self.mount()

    def watch(self, path):
        """From now on was_told() tells whether the kernel could not write a part of the file."""
        self.witness = os.open(path, os.O_RDWR)

    def was_told(self):
        """Ends the watch. A process that opens the file later is not told again."""
        if self.witness is not None:
            self.has_told = returns_error(self.witness)
            os.close(self.witness)
            self.witness = None
        return self.has_told

    def mend(self):
        """A file system that could not write its own data is read-only, or shut down."""
        try:
            is_well = os.statvfs(self.root).f_flag & os.ST_RDONLY == 0
            (self.root / "probe").touch()
        except OSError:
            is_well = False
        if not is_well:
            self.unmount()
            self.mount()

    def clone(self):
        """What is in the disk's file now is in another one, too. Returns that."""
        copy = self.below / "clone"
        run("cp", "--sparse=always", self.image, copy)
        return copy

    def exchange(self, image):
        """The file system is unmounted, and that of the other file mounted in its place."""
        self.unmount()
        os.close(self.device)
        self.device = None
        self.attach(image)
        self.mount()

    def fill(self):
        """No block can be written that has never been written.

        The loop device takes a short write for a whole one, so failures can be silent, and no
        program could notice them: see watch()."""
        with open(self.below / "fill", "wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 16)):
                    pass
            except OSError:
                pass

    def make_room(self):
        (self.below / "fill").unlink()


def use_up(file_system):
    """Writes a file there until no block is left. Returns its path."""
    path = pathlib.Path(file_system) / "fill"
    with open(path, "wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while file.write(bytes(size)) == size:
                    os.fdatasync(file)
            except OSError:
                pass
    return path


def returns_error(file):
    try:
        os.fsync(file)
    except OSError:
        return True
    return False


def start_write_back(path):
    """The kernel writes a file, as it does after some seconds, and keeps its errors."""
    file = os.open(path, os.O_RDWR)
    try:
        LIBC.sync_file_range(file, ctypes.c_int64(0), ctypes.c_int64(0), START_WRITE_BACK)
    finally:
        os.close(file)
    time.sleep(0.5)


def drop(path):
    """The kernel forgets the pages of a file that it takes for clean."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)
