#!/usr/bin/env python3
"""Runs YCSB's client on the engines of perdure and on redis, in turns, and prints tables.

  make ycsb-run
  bench/ycsb/run.py [--stores LIST] [--workloads LIST] [--records N] [--seconds N] [--turns N]

In a turn each store is loaded afresh and then runs the workloads, and the next store follows. A run
lasts --seconds. The script fails if an operation returns something else than OK, or if a store does
not hold as many records in the end as were inserted. docs/ycsb.md says what the stores are and how
to read the tables. `make ycsb` builds what this needs.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "bench/ycsb"
CLI = ROOT / "build/release/perdure"

sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

from reporting import machine  # noqa: E402
from reporting.plan import ENGINES, HASHES  # noqa: E402

LATENCIES = [("c", "READ"), ("a", "UPDATE"), ("f", "READ-MODIFY-WRITE"), ("d", "INSERT"),
             ("e", "SCAN")]


class Failed(Exception):
    """A run that did not do what it should."""


# ---- the client ---------------------------------------------------------------------------------

def given(properties):
    return [part for name, value in properties.items() for part in ("-p", f"{name}={value}")]


def parsed(output):
    """The measurements that the client prints: {"READ": {"Return=OK": 100.0, ...}, ...}."""
    measured = {}
    for line in output.splitlines():
        parts = line.split(", ")
        if len(parts) == 3 and parts[0].startswith("["):
            with contextlib.suppress(ValueError):
                measured.setdefault(parts[0][1:-1], {})[parts[1]] = float(parts[2])
    return measured


def client(phase, binding, workload, properties, threads):
    """Runs the client of YCSB. Returns its measurements."""
    done = subprocess.run(
        [HERE / "ycsb.sh", phase, binding, "-P", HERE / "workloads" / workload,
         "-threads", str(threads), *given(properties)],
        capture_output=True, text=True, check=False, timeout=600)
    measured = parsed(done.stdout)
    returned = {(kind, name.removeprefix("Return=")): int(value) for kind, values in
                measured.items() for name, value in values.items() if name.startswith("Return=")}
    # The client goes on, and returns 0, if a thread of it cannot open or close the store.
    wrong = done.returncode or "Exception" in done.stderr
    if wrong or not returned or any(name != "OK" for _, name in returned):
        raise Failed(f"{binding}, workload {workload}: {phase} returned {returned}\n{done.stderr}")
    return measured


def count(measured, kind):
    return int(measured.get(kind, {}).get("Return=OK", 0))


# ---- stores -------------------------------------------------------------------------------------

class Basic:
    """YCSB's own store that does nothing: what the client itself costs."""
    binding = "basic"
    scans = True
    properties = {"basicdb.verbose": "false"}

    def entries(self):
        return None

    def stop(self):
        pass


class Engine:
    binding = "perdure"

    def __init__(self, name, folder, durability):
        self.scans = name not in HASHES
        self.path = folder / f"{name}.perdure"
        self.properties = {"perdure.path": self.path, "perdure.engine": name,
                           "perdure.durability": durability}

    def entries(self):
        """Asks the command line, which opens the pool itself."""
        text = subprocess.run([CLI, "stats", "--json", self.path], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        return next(each["entries"] for each in json.loads(text)["maps"]
                    if each["name"] == "usertable")

    def stop(self):
        self.path.unlink()


class Redis:
    """A server of its own on a free port of the loopback device, in a folder of its own."""
    binding = "redis"
    scans = True

    def __init__(self, name, folder, *options):
        self.folder = folder / name
        self.folder.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = self.folder / "log"
        self.server = subprocess.Popen(
            ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--dir", self.folder,
             "--daemonize", "no", "--save", "", "--logfile", self.log, *options])
        self.properties = {"redis.host": "127.0.0.1", "redis.port": self.port}
        for _ in range(200):
            with contextlib.suppress(OSError):
                if self.ask("PING") == "+PONG":
                    return
            time.sleep(0.05)
        self.stop()
        raise Failed("redis-server does not accept connections")

    def ask(self, line):
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.sendall(line.encode() + b"\r\n")
            with connection.makefile(encoding="utf-8") as lines:
                return lines.readline().strip()

    def entries(self):
        """The records, without the set of all keys. The set must have as many."""
        records, listed = self.ask("DBSIZE"), self.ask("ZCARD _indices")
        if int(records[1:]) != int(listed[1:]) + 1:
            raise Failed(f"redis has {records[1:]} keys and lists {listed[1:]}")
        return int(listed[1:])

    def stop(self):
        self.server.send_signal(signal.SIGTERM)
        try:
            ended = self.server.wait(60)
        except subprocess.TimeoutExpired:
            self.server.kill()
            ended = self.server.wait()
        if ended != 0:
            print(self.log.read_text(), file=sys.stderr)
        shutil.rmtree(self.folder)


SETTINGS = {"redis": ("--appendonly", "no"),
            "redis_aof": ("--appendonly", "yes", "--appendfsync", "everysec")}
STORES = ("client", *ENGINES, *SETTINGS)


def started(name, folder, durability):
    if name == "client":
        return Basic()
    if name in SETTINGS:
        return Redis(name, folder, *SETTINGS[name])
    return Engine(name, folder, durability)


# ---- runs ---------------------------------------------------------------------------------------

def turn(name, store, options):
    """Loads the store and runs the workloads. Returns the measurements by workload."""
    records = options.records
    common = store.properties | {"recordcount": records}
    results = {"load": client("load", store.binding, "a", common, options.threads)}
    inserted = count(results["load"], "INSERT")
    if inserted != records:
        raise Failed(f"{name}: the load inserted {inserted} records of {records}")
    for workload in options.workloads:
        if workload == "e" and not store.scans:
            continue
        # YCSB's choice of keys to scan depends on the number of operations that it expects.
        operations = options.records if workload == "e" else 2**31 - 1
        properties = common | {"recordcount": records, "operationcount": operations,
                               "maxexecutiontime": options.seconds}
        results[workload] = client("run", store.binding, workload, properties, options.threads)
        records += count(results[workload], "INSERT")
    entries = store.entries()
    if entries is not None and entries != records:
        raise Failed(f"{name}: has {entries} records instead of {records}")
    return results


def measure(options, folder):
    """{store: [measurements of a turn, ...]}"""
    results = {name: [] for name in options.stores}
    for number in range(options.turns):
        for name in options.stores:
            print(f"turn {number + 1} of {options.turns}: {name}", file=sys.stderr)
            store = started(name, folder, options.durability)
            try:
                results[name].append(turn(name, store, options))
            finally:
                store.stop()
    return results


# ---- tables -------------------------------------------------------------------------------------

def digits(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def throughput(turns, workload):
    values = [each[workload]["OVERALL"]["Throughput(ops/sec)"] / 1000 for each in turns
              if workload in each]
    if not values:
        return ""
    return f"{digits(statistics.median(values))} ({digits(min(values))} to {digits(max(values))})"


def latency(turns, workload, kind):
    values = [each[workload][kind] for each in turns if workload in each]
    if not values:
        return ""
    mean, high = (statistics.median(each[field] for each in values) for field in
                  ("AverageLatency(us)", "99thPercentileLatency(us)"))
    return f"{digits(mean)}, {high:.0f}"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def tables(results, workloads):
    columns = ["load", *workloads]
    yield table(["thousand operations/s", *columns],
                [[f"`{name}`", *(throughput(turns, each) for each in columns)]
                 for name, turns in results.items()])
    kinds = [(workload, kind) for workload, kind in LATENCIES if workload in workloads]
    if kinds:
        yield table(["mean and 99th percentile, microseconds",
                     *(f"{kind.lower()} in {workload}" for workload, kind in kinds)],
                    [[f"`{name}`", *(latency(turns, *each) for each in kinds)]
                     for name, turns in results.items()])


def first_line(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return (done.stdout + done.stderr).splitlines()[0].strip()


def heading(options, folder, load_before):
    described = machine.describe(ROOT, folder)
    parts = [f"Machine: {machine.place(described)}", f"durability `{options.durability}`",
             "YCSB 0.17.0", first_line("java", "-version")]
    if any(name in SETTINGS for name in options.stores):
        parts.append("redis " + first_line("redis-server", "--version").split("v=")[1].split()[0])
    parts.append(f"load average {load_before:.2f} before the run")
    return (", ".join(parts) + f".\n\n{options.records:,} records of 1 kB, client threads: "
            f"{options.threads}, seconds of a run: {options.seconds}, turns: {options.turns}; "
            "medians and ranges.")


def names(known):
    def parse(text):
        chosen = text.split(",")
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"'{name}' is none of {','.join(known)}")
        return chosen
    return parse


def scratch():
    """Main memory where there is room, as for the other benchmarks."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage("/dev/shm").free >= 1 << 30:
            return "/dev/shm"
    return "."


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stores", type=names(STORES), default=list(STORES), metavar="LIST",
                        help=f"from {','.join(STORES)} (default: all)")
    parser.add_argument("--workloads", type=names("abcdef"), default=list("abcfde"),
                        metavar="LIST", help="in this order (default: a,b,c,f,d,e)")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=2, help="of each run (default: 2)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="of the client (default: 2)")
    parser.add_argument("--durability", default="emulated", help="of perdure (default: emulated)")
    parser.add_argument("--folder", default=scratch(),
                        help="pools and files of redis lie below it (default: %(default)s)")
    options = parser.parse_args()
    os.environ["LC_ALL"] = "C"
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="perdure-ycsb.", dir=options.folder) as folder:
        head = heading(options, folder, load_before)
        try:
            results = measure(options, pathlib.Path(folder))
        except Failed as failure:
            sys.exit(f"ycsb: {failure}")
    print("\n\n".join([head, *tables(results, options.workloads)]))


if __name__ == "__main__":
    main()
