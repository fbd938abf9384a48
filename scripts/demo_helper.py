"""Helper of scripts/demo.sh: makes inputs, kills loaders, and compares independently of perdure.

    demo_helper.py input OUT.tsv                  package stanzas on standard input -> TSV
    demo_helper.py kill SEED LINES FILE COMMAND...  starts a load, SIGKILLs it, last line -> FILE
    demo_helper.py verify INPUT N DUMP            verifies that input lines 1..N are in the dump
    demo_helper.py records OUT.tsv N              N records of integers -> TSV
    demo_helper.py restart CLI POOL INPUT N THREADS FIGURES
                      loads, SIGKILLs the loader, and times the next process until it has ended
    demo_helper.py sqlite INPUT N FIGURES
                      loads N records into SQLite, closes it, and times an open with a lookup
    demo_helper.py table FIGURES...               prints the figures as a table
"""

import glob
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time


def escape(text):
    return text.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n")


def packages(stream):
    """Yields (name/version/architecture, stanza) of each package."""
    for stanza in stream.read().split(b"\n\n"):
        fields = {}
        for line in stanza.split(b"\n"):
            name, colon, value = line.partition(b": ")
            if colon and not line.startswith(b" "):
                fields.setdefault(name, value)
        if b"Package" in fields and b"Version" in fields:
            key = b"/".join((fields[b"Package"], fields[b"Version"],
                             fields.get(b"Architecture", b"all")))
            yield key, stanza.strip(b"\n")


def paths():
    """Yields (path, packages that own it) of each installed path."""
    owners = {}
    for name in sorted(glob.glob("/var/lib/dpkg/info/*.list")):
        package = os.path.basename(name)[:-len(".list")].encode()
        with open(name, "rb") as lines:
            for path in lines.read().split(b"\n"):
                if path:
                    owners.setdefault(path, []).append(package)
    return ((path, b", ".join(names)) for path, names in owners.items())


def make_input(out):
    seen = set()
    counts = []
    with open(out, "wb") as lines:
        for source in (packages(sys.stdin.buffer), paths()):
            before = len(seen)
            for key, value in source:
                if key not in seen:
                    seen.add(key)
                    lines.write(escape(key) + b"\t" + escape(value) + b"\n")
            counts.append(len(seen) - before)
    size = os.path.getsize(out)
    print(f"{counts[0]:,} packages (name/version/architecture -> its whole stanza) and "
          f"{counts[1]:,} paths")
    print(f"(path -> its packages): {size / 2**20:.1f} MiB of TSV")
    if len(seen) < 1000:
        sys.exit("demo: too little to load; is this a Debian machine?")


def kill(seed, lines, out, command):
    # The loader reports every few milliseconds, and loads some more before the signal arrives. With
    # an aim of at most 70 % it is killed before 80 %.
    percent = random.Random(int(seed)).uniform(20, 70)
    target = int(int(lines) * percent / 100)
    loader = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    acknowledged = 0
    killed = False
    # The last reports of the loader are still in the pipe, so read it to the end.
    for line in loader.stderr:
        words = line.split()
        if words[:1] != [b"acknowledged"] or not line.endswith(b"\n"):
            print(line.decode(errors="replace").rstrip())
            continue
        acknowledged = int(words[1])
        if acknowledged >= target and not killed:
            os.kill(loader.pid, signal.SIGKILL)
            killed = True
    status = loader.wait()
    if status != -signal.SIGKILL:
        sys.exit(f"demo: the loader should be killed at line {target:,}, but ended with status "
                 f"{status}; run the demo again")
    print(f"aim: {percent:.0f}% of {int(lines):,} records. SIGKILL. Its last line: acknowledged "
          f"{acknowledged:,} ({100 * acknowledged / int(lines):.0f}%)")
    with open(out, "w", encoding="ascii") as file:
        file.write(str(acknowledged))


def key_of(line):
    """Returns the bytes of a line's key."""
    out = bytearray()
    escaped = False
    for byte in line.partition(b"\t")[0]:
        if escaped:
            out.append({ord("t"): 9, ord("n"): 10}.get(byte, byte))
            escaped = False
        elif byte == ord("\\"):
            escaped = True
        else:
            out.append(byte)
    return bytes(out)


def verify(path, count, dump):
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")[:-1]
    with open(dump, "rb") as file:
        dumped = file.read().split(b"\n")[:-1]
    there = set(dumped)
    acknowledged = lines[:int(count)]
    missing = [line for line in acknowledged if line not in there]
    foreign = there.difference(lines)
    keys = [line.partition(b"\t")[0] for line in dumped]
    if any(b"\\" in key for key in keys):
        keys = [key_of(line) for line in dumped]
    unordered = sum(a >= b for a, b in zip(keys, keys[1:]))
    found = len(acknowledged) - len(missing)
    print(f"{len(acknowledged):,} acknowledged records: {found:,} there, {len(missing):,} missing; "
          f"{len(foreign):,} that were never written")
    print(f"{len(there) - len(foreign) - found:,} more are complete and were not yet "
          "acknowledged; that is allowed")
    print(f"{len(dumped):,} entries in the dump, {unordered:,} out of order")
    for line in missing[:3]:
        print("missing:", line[:80])
    if missing or foreign or unordered:
        sys.exit("demo: THE POOL IS WRONG")


MASK = (1 << 64) - 1


def key_number(number):
    """Returns a 64-bit key; consecutive numbers are scattered over all keys."""
    return number * 0x9E3779B97F4A7C15 & MASK


def make_records(out, count):
    with open(out, "w", encoding="ascii") as file:
        for begin in range(1, count + 1, 1 << 16):
            end = min(begin + (1 << 16), count + 1)
            file.write("".join(f"{key_number(n)}\t{n}\n" for n in range(begin, end)))


def feed(path, pipe):
    """Writes the file into the pipe and leaves the pipe open, so that the loader waits for more."""
    try:
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                pipe.write(chunk)
        pipe.flush()
    except BrokenPipeError:
        pass  # the loader ended; its status says why


def restart(cli, pool, path, count, threads, out):
    began = time.perf_counter()
    loader = subprocess.Popen([cli, "load", pool, "-", "--threads", threads],
                              stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE)
    feeder = threading.Thread(target=feed, args=(path, loader.stdin), daemon=True)
    feeder.start()
    done = False
    for line in loader.stderr:
        if line == b"acknowledged %d\n" % count:
            done = True
            break
    loaded = time.perf_counter() - began
    if not done:
        sys.exit(f"demo: the loader of {pool} ended with status {loader.wait()}")
    feeder.join()
    os.kill(loader.pid, signal.SIGKILL)
    loader.wait()
    began = time.perf_counter()
    first = subprocess.run([cli, "get", pool, str(key_number(count))], stdout=subprocess.PIPE,
                           check=False)
    elapsed = time.perf_counter() - began
    if first.stdout != b"%d\n" % count:
        sys.exit(f"demo: THE POOL IS WRONG: key {key_number(count)} has {first.stdout!r}")
    name = os.path.basename(pool).partition(".")[0]
    print(f"{name}: loaded in {loaded:.1f} s; killed; the next process printed the value and "
          f"ended in {1000 * elapsed:.1f} ms")
    write_figures(out, f"perdure, {name}", count, loaded, elapsed, "process")


def sqlite(path, count, out):
    """Loads in one transaction, closes, then opens the file again and looks one key up."""
    folder = tempfile.mkdtemp(dir=os.path.dirname(path))
    database = os.path.join(folder, "records.sqlite")

    def rows():
        with open(path, encoding="ascii") as file:
            for _, line in zip(range(count), file):
                key, _, value = line.partition("\t")
                number = int(key)
                yield (number if number < 1 << 63 else number - (1 << 64), int(value))

    began = time.perf_counter()
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE records (key INTEGER PRIMARY KEY, value INTEGER)")
    with connection:
        connection.executemany("INSERT INTO records VALUES (?, ?)", rows())
    connection.close()
    loaded = time.perf_counter() - began
    key = key_number(count)
    key = key if key < 1 << 63 else key - (1 << 64)
    began = time.perf_counter()
    connection = sqlite3.connect(database)
    found = connection.execute("SELECT value FROM records WHERE key = ?", (key,)).fetchone()
    connection.close()
    elapsed = time.perf_counter() - began
    if found != (count,):
        sys.exit(f"demo: SQLite has {found} for key {key}")
    write_figures(out, "SQLite", count, loaded, elapsed, "call")


def write_figures(out, name, count, loaded, elapsed, kind):
    with open(out, "w", encoding="ascii") as file:
        file.write(f"{name}\t{count}\t{loaded}\t{elapsed}\t{kind}\n")


def table(paths):
    """Prints rates, which do not depend on the number of records, and says what each time covers.

    The lookups are different things, so each kind has its own column.
    """
    print(f"{'':<18}{'loaded':>12}{'loaded':>12}{'process after':>16}{'open + lookup':>18}")
    print(f"{'store':<18}{'records':>12}{'records/s':>12}{'kill -9, ms':>16}"
          f"{'after close, ms':>18}")
    for path in paths:
        with open(path, encoding="ascii") as file:
            name, count, loaded, elapsed, kind = file.read().rstrip("\n").split("\t")
        milliseconds = f"{1000 * float(elapsed):.1f}"
        times = {"process": (milliseconds, "-"), "call": ("-", milliseconds)}[kind]
        rate = int(count) / float(loaded)
        print(f"{name:<18}{int(count):>12,}{rate:>12,.0f}{times[0]:>16}{times[1]:>18}")
    print("loaded: perdure by `perdure load` from a pipe, each record durable against a kill once "
          "it is\n  acknowledged; SQLite by one transaction of Python's module, durable at its end")
    print("process after kill -9: from the start of the next process until it has printed one "
          "value and ended")
    print("open + lookup after close: in the running process, without the start of one and without "
          "recovery")
    print("The last two columns measure different things: do not compare them with each other.")


if __name__ == "__main__":
    if sys.argv[1:2] == ["input"] and len(sys.argv) == 3:
        make_input(sys.argv[2])
    elif sys.argv[1:2] == ["kill"] and len(sys.argv) > 5:
        kill(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
    elif sys.argv[1:2] == ["verify"] and len(sys.argv) == 5:
        verify(*sys.argv[2:])
    elif sys.argv[1:2] == ["records"] and len(sys.argv) == 4:
        make_records(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["restart"] and len(sys.argv) == 8:
        restart(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), sys.argv[6], sys.argv[7])
    elif sys.argv[1:2] == ["sqlite"] and len(sys.argv) == 5:
        sqlite(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    elif sys.argv[1:2] == ["table"] and len(sys.argv) > 2:
        table(sys.argv[2:])
    else:
        sys.exit(__doc__)
