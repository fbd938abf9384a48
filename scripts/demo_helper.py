"""What the demo needs beside the command line: input, killer, and an independent comparison.

    demo_helper.py input OUT.tsv                  package stanzas on standard input -> TSV
    demo_helper.py kill SEED LINES FILE COMMAND...  start a load, SIGKILL it, last line -> FILE
    demo_helper.py verify INPUT N DUMP            are input lines 1..N in the dump?
"""

import glob
import os
import random
import signal
import subprocess
import sys


def escape(text):
    return text.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n")


def packages(stream):
    """(name/version/architecture, stanza) of each package."""
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
    """(path, packages that own it) of each installed path."""
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
    # The loader reports every few milliseconds and does some more before the signal arrives: aiming
    # at 70 at most leaves it room below 80.
    percent = random.Random(int(seed)).uniform(20, 70)
    target = int(int(lines) * percent / 100)
    loader = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    acknowledged = 0
    killed = False
    # What the loader said before it died is still in the pipe: read it to the end.
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
        sys.exit(f"demo: the loader was to be killed at line {target:,} but ended with status "
                 f"{status}; run the demo again")
    print(f"aim: {percent:.0f}% of {int(lines):,} records. SIGKILL. Its last words: acknowledged "
          f"{acknowledged:,} ({100 * acknowledged / int(lines):.0f}%)")
    with open(out, "w", encoding="ascii") as file:
        file.write(str(acknowledged))


def key_of(line):
    """The bytes of a line's key."""
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
          f"{len(foreign):,} that nobody wrote")
    print(f"{len(there) - len(foreign) - found:,} more were complete but not yet "
          "acknowledged; that is allowed")
    print(f"{len(dumped):,} entries in the dump, {unordered:,} out of order")
    for line in missing[:3]:
        print("missing:", line[:80])
    if missing or foreign or unordered:
        sys.exit("demo: THE POOL IS WRONG")


if __name__ == "__main__":
    if sys.argv[1:2] == ["input"] and len(sys.argv) == 3:
        make_input(sys.argv[2])
    elif sys.argv[1:2] == ["kill"] and len(sys.argv) > 5:
        kill(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
    elif sys.argv[1:2] == ["verify"] and len(sys.argv) == 5:
        verify(*sys.argv[2:])
    else:
        sys.exit(__doc__)
