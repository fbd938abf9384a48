"""The cases of scripts/world.py. Each gets a World and a Disk, and returns what happened.

Keys `a` are in the live image that the disk has; `b` came later, and sync() has returned for them;
`late` was acknowledged after that."""

import hashlib
import os
import pathlib
import shutil
import signal
import uuid

import world_disks
from engines import ENGINES
from world_attack import prepared_names, raced_names
from world_disks import Skip, run
from world_owner import KEYS, Wrong


def begin(world, disk):
    """An owner whose pool the disk has, image included."""
    owner = world.opened(disk.root / "pool")
    owner.must("put", "a", KEYS)
    owner.must("sync")
    run("sync", "-f", disk.root)
    return owner


def part(owner, suffix):
    return pathlib.Path(str(owner.path) + suffix)


def content(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).digest()


# --- pages of the live image that cannot be written ----------------------------------------------

SILENT = "the loop device has reported no error, so no program can notice one"


def lose_image(world, disk, way, told, unnoticed=False):
    """Begins, puts `b`, and lets the write-back of the live image fail once.

    `way`: "full" if the disk below has no space, "errors" if it fails. `told`: another process
    calls fsync, and gets the error. `unnoticed`: the owner does not run any more."""
    owner = begin(world, disk)
    owner.must("put", "b", KEYS)
    owner.must("sync")
    image = part(owner, "-live")
    before = content(image)
    disk.watch(image)
    if unnoticed:
        owner.process.send_signal(signal.SIGSTOP)
    disk.fill() if way == "full" else disk.fail()
    world_disks.start_write_back(image)
    if told and not disk.was_told():
        raise Skip(SILENT)
    disk.make_room() if way == "full" else disk.set_limit(0)
    return owner, image, before


def must_be_lost(image, before):
    world_disks.drop(image)
    try:
        lost = content(image) != before
    except OSError:
        return
    if not lost:
        raise Skip("the kernel has written all of the live image")


def lost(way, told, calls=("sync", "fold", "close")):
    """`calls`: what its owner does then, after a put. No call may say that all is well."""
    def case(world, disk):
        owner, _, _ = lose_image(world, disk, way, told)
        owner.do("drop")
        owner.do("put", "late", 1)
        replies = [owner.do(call) for call in calls]
        owner.kill()
        said = ", ".join(f"{call}: {reply.code}"
                         for call, reply in zip(calls, replies, strict=True))
        if any(reply.code not in ("poisoned", "io") for reply in replies):
            raise Wrong(said)
        disk.mend()
        return f"{said}; {world.must_find(owner.path, 'ab')}"
    return case


def lost_and_kill(way, told):
    def case(world, disk):
        owner, image, before = lose_image(world, disk, way, told, unnoticed=True)
        owner.kill()
        must_be_lost(image, before)
        disk.mend()
        return world.must_find(owner.path, "ab")
    return case


def kill_and_lost(way, told):
    """The kernel still has the pages when the next process opens the pool."""
    def case(world, disk):
        owner, _, _ = lose_image(world, disk, way, told, unnoticed=True)
        owner.kill()
        disk.mend()
        after = world.owner(owner.path)
        if after.opened.code != "ok":
            after.kill()
            return world.must_find(owner.path, "ab")
        after.must_have("b")
        after.do("drop")
        after.do("put", "late", KEYS)
        sync = after.do("sync")
        after.kill()
        world_disks.drop(part(owner, "-live"))
        disk.mend()
        durable = ("a", "b", "late") if sync.code == "ok" else "ab"
        how = "restored" if after.is_restored() else "goes on"
        return f"{how}, sync: {sync.code}; " + world.must_find(owner.path, durable)
    return case


# --- a file system without space -----------------------------------------------------------------

def full_file_system(world, disk):
    """A killed pool is opened, used and removed where no block is free."""
    owner = begin(world, disk)
    owner.must("put", "b", KEYS)
    owner.must("sync")
    owner.must("put", "late", KEYS)
    owner.kill()
    fill = world_disks.use_up(disk.root)
    after = world.owner(owner.path, "sigbus")
    replies = {"open": after.opened}
    if after.opened.code == "ok":
        replies |= {call: after.do(call, *rest) for call, *rest in
                    (("put", "more", 50 * KEYS), ("sync",), ("has", "a", KEYS), ("check",))}
    after.kill()
    again = world.owner(owner.path, "sigbus")
    replies["open again"] = again.opened
    again.kill()
    said = ", ".join(f"{call}: {reply.code}" for call, reply in replies.items())
    wrong = ("SIG", "exit", "live_missing", "untrusted", "corruption")
    if any(reply.code.startswith(wrong) for reply in replies.values()):
        raise Wrong(said)
    fill.unlink()
    how = world.must_find(owner.path, "ab", ("late",))
    owner = world.opened(owner.path)
    owner.must("put", "more", KEYS)
    owner.kill()
    world_disks.use_up(disk.root)
    removed = world.cli("remove", owner.path)
    left = [name for name in os.listdir(disk.root) if name.startswith("pool")]
    if removed.returncode != 0 or left:
        raise Wrong(f"remove: status {removed.returncode}, left: {left}; {removed.stderr.decode()}")
    return f"{said}; {how}; removed"


def put(world, *arguments):
    done = world.cli("put", *arguments)
    if done.returncode != 0:
        raise Wrong(f"put: status {done.returncode}; {done.stderr.decode()}")


def read_full_file_system(world, disk):
    """What a pool has can be printed where no block is free, and that is no failure."""
    closed = disk.root / "closed"
    put(world, closed, "a", "1", "--durability", "buffered")
    killed = begin(world, disk)
    killed.kill()
    fill = world_disks.use_up(disk.root)
    done = (world.cli("get", closed, "a"), world.cli("scan", closed),
            world.cli("scan", killed.path, "--map", "m"))
    fill.unlink()
    said = [(one.returncode, one.stdout.count(b"\n")) for one in done]
    if said != [(0, 1), (0, 1), (0, KEYS)]:
        raise Wrong(f"{said}; {b'; '.join(one.stderr for one in done).decode()}")
    put(world, closed, "b", "2")
    return world.must_find(killed.path, "a")


# --- a disk that goes away -----------------------------------------------------------------------

def disk_goes_away(leave, killed):
    def case(world, disk):
        owner = begin(world, disk)
        owner.must("put", "b", KEYS)
        owner.must("sync")
        owner.must("put", "late", 100)
        if leave == "shutdown" and disk.kind == "btrfs":
            raise Skip("btrfs cannot be shut down")
        disk.shut_down() if leave == "shutdown" else disk.fail()
        said = "killed"
        if not killed:
            owner.do("put", "late", KEYS)
            sync, close = owner.do("sync"), owner.do("close")
            if "ok" in (sync.code, close.code):
                raise Wrong(f"no disk, but sync: {sync}; close: {close}")
            said = f"sync: {sync.code}"
        owner.kill()
        disk.come_back()
        return f"{said}; {world.must_find(owner.path, 'ab')}"
    return case


def clone_after(world, disk):
    """All is on the disk. Another disk has the same file system."""
    owner = begin(world, disk)
    owner.must("put", "b", KEYS)
    owner.must("sync")
    owner.kill()
    disk.unmount()
    copy = disk.clone()
    disk.mount()
    disk.exchange(copy)
    return world.must_find(owner.path, "ab")


def clone_meanwhile(world, disk):
    """As by a snapshot of the volume; the pool on the first disk goes on."""
    owner = begin(world, disk)
    owner.must("put", "b", KEYS)
    owner.must("sync")
    copy = disk.clone()
    owner.must("put", "late", KEYS)
    owner.must("sync")
    owner.kill()
    disk.exchange(copy)
    how = world.must_find(owner.path, "ab")
    disk.exchange(disk.image)
    return f"the clone: {how}; the first: {world.must_find(owner.path, ('a', 'b', 'late'))}"


# --- paths that lead elsewhere -------------------------------------------------------------------

def other_pool(world, disk):
    """A closed pool, to be put in the place of another one."""
    path = disk.root / "other"
    owner = world.opened(path)
    owner.must("put", "other", KEYS)
    owner.close()
    return path


def file_replaced(foreign):
    def case(world, disk):
        other = other_pool(world, disk)
        if foreign:
            other.write_bytes(b"of another program\n" * 100_000)
        before = content(other)
        owner = begin(world, disk)
        os.rename(owner.path, disk.root / "moved")
        os.rename(other, owner.path)
        replies = replaced_pool_goes_on(owner)
        if content(owner.path) != before:
            raise Wrong("the other file was changed")
        kept = find_moved(world, disk.root, owner, disk.root / "moved")
        if not foreign:
            world.must_find(owner.path, ("other",))
        return f"{replies}; {kept}"
    return case


def replaced_pool_goes_on(owner):
    owner.must("put", "b", KEYS)
    sync, fold, close = owner.do("sync"), owner.do("fold"), owner.do("close")
    owner.kill()
    owner.synced = sync.code == "ok"
    return f"sync: {sync.code}, fold: {fold.code}, close: {close.code}"


def find_moved(world, folder, owner, moved):
    """The pool itself is where it was moved to, with the files that belong to it."""
    back = folder / "back"
    back.mkdir()
    for name in ("-log", "-live", "-live-dirty"):
        if part(owner, name).exists():
            os.rename(part(owner, name), back / ("pool" + name))
    os.rename(moved, back / "pool")
    return world.must_find(back / "pool", "ab" if owner.synced else "a")


def folder_replaced(world, disk):
    other = other_pool(world, disk)
    before = content(other)
    (disk.root / "folder").mkdir()
    owner = world.opened(disk.root / "folder/pool")
    owner.must("put", "a", KEYS)
    owner.must("sync")
    os.rename(disk.root / "folder", disk.root / "moved")
    (disk.root / "folder").mkdir()
    os.rename(other, owner.path)
    replies = replaced_pool_goes_on(owner)
    if content(owner.path) != before or os.listdir(disk.root / "folder") != ["pool"]:
        raise Wrong(f"the other folder was changed: {os.listdir(disk.root / 'folder')}")
    world.must_find(owner.path, ("other",))
    kept = world.must_find(disk.root / "moved/pool", "ab" if owner.synced else "a")
    return f"{replies}; {kept}"


def log_removed(world, disk):
    owner = begin(world, disk)
    shutil.rmtree(part(owner, "-log"))
    put = owner.do("put", "late", KEYS)
    sync = owner.do("sync")
    owner.kill()
    durable = ("a", "late") if sync.code == "ok" and put.code == "ok" else "a"
    return f"sync: {sync.code}; {world.must_find(owner.path, durable)}"


# --- containers ----------------------------------------------------------------------------------

def mounted(what, on):
    """A command that runs another one in a mount namespace of its own."""
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c",
            'mount --bind "$0" "$1" && shift && exec "$@"', str(what), str(on))


def own_boot_id(world, disk):
    def start():
        name = world.folder / f"boot-id-{uuid.uuid4()}"
        name.write_text(f"{uuid.uuid4()}\n")
        return mounted(name, "/proc/sys/kernel/random/boot_id")

    path = disk.root / "pool"
    for prefix in "ab":
        owner = world.opened(path, inside=start())
        owner.must("put", prefix, KEYS)
        owner.kill()
    return world.must_find(path, (), "ab", inside=start())


def single_file(world, disk):
    path = disk.root / "pool"
    inside = disk.root / "container"
    inside.mkdir()
    (inside / "pool").touch()
    owner = world.opened(path)
    owner.must("put", "a", KEYS)
    owner.close()
    alone = mounted(path, inside / "pool")
    refused = world.owner(inside / "pool", inside=alone)
    if refused.opened.code != "unsupported" or "mounted alone" not in refused.opened.text:
        raise Wrong(f"a pool of mode buffered whose file is mounted alone: {refused.opened}")
    owner = world.opened(inside / "pool", "durability=process", inside=alone)
    owner.must("put", "b", KEYS)
    owner.kill()
    owner = world.opened(path, "durability=buffered")  # a killed pool of mode process
    owner.must_have("b")
    owner.must("put", "late", KEYS)
    owner.kill()
    refused = world.owner(inside / "pool", inside=alone)
    if refused.opened.code != "unsupported" or "mount its folder" not in refused.opened.text:
        raise Wrong(f"a pool that was left open, whose file is mounted alone: {refused.opened}")
    if os.listdir(inside) != ["pool"]:
        raise Wrong(f"files in the container: {os.listdir(inside)}")
    return f"refused; {world.must_find(path, (), ('a', 'b', 'late'))}"


def overlay_again(durability):
    def case(world, disk):
        folders = [disk.root / name for name in ("lower", "upper", "work", "container")]
        for folder in folders:
            folder.mkdir()
        options = "lowerdir={},upperdir={},workdir={}".format(*folders)
        disk.stack.callback(world_disks.unmount_if_mounted, folders[3])
        for prefix in "ab":
            world_disks.try_to("no overlayfs", "mount", "-t", "overlay", "-o", options, "overlay",
                               folders[3])
            owner = world.opened(folders[3] / "pool", f"durability={durability}")
            owner.must("put", prefix, KEYS)
            owner.kill()
            run("umount", folders[3])
        run("mount", "-t", "overlay", "-o", options, "overlay", folders[3])
        how = world.must_find(folders[3] / "pool", (), "ab")
        run("umount", folders[3])
        return how
    return case


def memory_group(disk, limit):
    """A command that runs another one in a group of its own, with this limit in bytes."""
    for top, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                      ("/sys/fs/cgroup", "memory.max")):
        group = pathlib.Path(top) / f"perdure-world-{uuid.uuid4()}"
        try:
            group.mkdir()
            disk.stack.callback(group.rmdir)
            (group / name).write_text(str(limit))
        except OSError:
            continue
        return ("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group))
    raise Skip("no memory limit can be set")


def memory_limit(in_memory):
    """`in_memory`: the pool is, or else its live image alone."""
    def case(world, disk):
        memory = disk.root / "memory"
        memory.mkdir()
        disk.stack.callback(world_disks.unmount_if_mounted, memory)
        run("mount", "-t", "tmpfs", "tmpfs", memory)
        path = (memory if in_memory else disk.root) / "pool"
        options = () if in_memory else ("durability=buffered", f"memory={memory}")
        inside = memory_group(disk, 64 << 20)
        owner = world.opened(path, *options, inside=inside)
        full = owner.do("put", "a", 1 << 20)
        if full.code != "pool_full" or "memory limit" not in full.text:
            raise Wrong(f"a pool in memory that grows beyond the limit: {full}")
        owner.must("erase", "a", KEYS)
        owner.must("put", "b", KEYS)
        owner.kill()
        owner = world.opened(path, *options, inside=inside)  # with less room than before
        owner.must_have("b")
        owner.must("erase", "b", KEYS)
        owner.kill()
        return f"{full.code} after {full.numbers()[0]} keys"
    return case


# --- descriptors, outputs, readers ---------------------------------------------------------------

def loaded(world, disk, name="pool"):
    path = disk.root / name
    owner = world.opened(path)
    owner.must("put", "a", KEYS)
    owner.close()
    return path


def closed_streams(world, disk):
    path = loaded(world, disk)
    for number, streams in enumerate(("<&-", ">&-", "2>&-", "<&- >&- 2>&-")):
        for command in (("scan", path, "--map", "m"), ("put", path, f"k{number}", "v"),
                        ("check", path)):
            done = world.cli(*command, streams=streams)
            if done.returncode < 0:
                raise Wrong(f"{command[0]} {streams}: signal {-done.returncode}")
    return world.must_find(path, "a")


def outputs_onto_pools(world, disk):
    path, other = loaded(world, disk), loaded(world, disk, "other")
    backup = disk.root / "backup"
    if world.cli("backup", path, backup).returncode != 0:
        raise Wrong("backup")
    owner = world.opened(path)
    owner.must("put", "late", KEYS)
    owner.must("sync")
    owner.kill()
    os.symlink(path, disk.root / "link")
    segment = next(part(owner, "-log").iterdir())
    files = (path, part(owner, "-live"), part(owner, "-live-dirty"), segment, other,
             disk.root / "link", backup / "base")
    tries = [("dump", path, "--map", "m", file) for file in files]
    tries += [("dump", other, "--map", "m", other), ("backup", path, path), ("backup", path, other),
              ("restore", backup, path), ("restore", backup, other)]
    kept = {file: content(file) for file in files}
    for command in tries:
        done = world.cli(*command)
        changed = [str(file) for file in files if not file.exists() or content(file) != kept[file]]
        if done.returncode == 0 or changed:
            raise Wrong(f"{' '.join(map(str, command))}: status {done.returncode}, changed: "
                        + (", ".join(changed) or "nothing"))
    world.must_find(other, "a")
    return "refused; " + world.must_find(path, ("a", "late"))


def readers(world, disk):
    """A reader of a pool in use sees one moment, whatever its owner does."""
    seen = []
    for engine in ENGINES:
        owner = world.opened(disk.root / engine, f"engine={engine}")
        owner.must("put", "a", 2000)
        owner.must("put", "b", 2000)
        owner.must("sync")
        reader = world.opened(owner.path, "read-only")
        owner.must("erase", "a", 2000)
        owner.must("put", "b", 2000, 1)
        owner.must("put", "late", 2000)
        for _ in range(2):
            owner.must("sync")
            owner.must("fold")
            reader.must_have("a", 2000)
            reader.must_have("b", 2000)
            if reader.must("has", "late", 2000).numbers() != [0, 0]:
                raise Wrong(f"{engine}: a reader sees what came later")
        later = world.opened(owner.path, "read-only")
        later.must_have("b", 2000, 1)
        owner.close()
        seen.append(engine)
    return "one moment each: " + ", ".join(seen)


def mounted_again(world, disk):
    """Mode `process`: all that was acknowledged is on the disk after an unmount."""
    owner = world.opened(disk.root / "pool", "durability=process")
    owner.must("put", "a", KEYS)
    owner.kill()
    disk.unmount()
    disk.mount()
    return world.must_find(owner.path, (), "a")


ALL = ("ext4", "xfs", "btrfs")
FIRST = ("ext4",)
THIN = 260  # megabytes of the disk below
ENOUGH = 640



def unless_silent(case):
    def run_case(world, disk):
        try:
            return case(world, disk)
        except Wrong as wrong:
            if not disk.was_told():
                raise Skip(SILENT) from wrong
            raise
    return run_case


def of_lost_pages(way, room):
    cases = {
        "lost": lost(way, told=False),
        "lost-told": lost(way, told=True),
        "lost-fold": lost(way, told=False, calls=("fold", "close")),
        "lost-close": lost(way, told=False, calls=("close",)),
        "lost-kill": lost_and_kill(way, told=False),
        "lost-told-kill": lost_and_kill(way, told=True),
        "kill-lost": kill_and_lost(way, told=False),
        "told-kill-lost": kill_and_lost(way, told=True),
    }
    return ((f"{name}-{way}", unless_silent(case), ALL, room) for name, case in cases.items())


# name, case, file systems, megabytes of the disk below
CASES = (
    *of_lost_pages("full", THIN),
    *of_lost_pages("errors", ENOUGH),
    ("full", full_file_system, ALL, ENOUGH),
    ("full-reads", read_full_file_system, ALL, ENOUGH),
    ("disk-gone", disk_goes_away("errors", killed=False), ALL, ENOUGH),
    ("disk-gone-kill", disk_goes_away("errors", killed=True), ALL, ENOUGH),
    ("shutdown", disk_goes_away("shutdown", killed=False), ALL, ENOUGH),
    ("shutdown-kill", disk_goes_away("shutdown", killed=True), ALL, ENOUGH),
    ("clone-after", clone_after, ALL, ENOUGH),
    ("clone-meanwhile", clone_meanwhile, ALL, ENOUGH),
    ("file-foreign", file_replaced(foreign=True), FIRST, ENOUGH),
    ("file-other-pool", file_replaced(foreign=False), FIRST, ENOUGH),
    ("folder-other", folder_replaced, FIRST, ENOUGH),
    ("own-boot-id", own_boot_id, ALL, ENOUGH),
    ("single-file", single_file, FIRST, ENOUGH),
    ("log-removed", log_removed, FIRST, ENOUGH),
    ("other-user-prepares", prepared_names, FIRST, ENOUGH),
    ("other-user-races-sticky", raced_names(0o1777), FIRST, ENOUGH),
    ("other-user-races", raced_names(0o777), FIRST, ENOUGH),
    ("overlay-process", overlay_again("process"), ALL, ENOUGH),
    ("overlay-buffered", overlay_again("buffered"), ALL, ENOUGH),
    ("mounted-again", mounted_again, ALL, ENOUGH),
    ("memory-limit", memory_limit(in_memory=True), FIRST, ENOUGH),
    ("memory-limit-image", memory_limit(in_memory=False), FIRST, ENOUGH),
    ("closed-streams", closed_streams, FIRST, ENOUGH),
    ("outputs", outputs_onto_pools, FIRST, ENOUGH),
    ("readers", readers, FIRST, ENOUGH),
)
