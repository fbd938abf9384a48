"""The machine that a report is measured on: read from the system, and calibrated."""

import datetime
import hashlib
import json
import os
import pathlib
import platform
import re
import subprocess

from reporting.plan import BENCH


def output(*command, cwd):
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True).stdout.strip()


def sources(root):
    """A hash of what the figures depend on, with changes that are not committed."""
    parts = ["CMakeLists.txt", "CMakePresets.json", "cmake", "include", "src", "bench",
             "evaluation", "scripts/reporting", ":!bench/results"]
    text = output("git", "ls-tree", "-r", "HEAD", "--", *parts[:-1], cwd=root)
    text = "\n".join(line for line in text.split("\n") if "\tbench/results/" not in line)
    text += output("git", "diff", "HEAD", "--", *parts, cwd=root)
    return hashlib.sha1(text.encode()).hexdigest()


def describe(root, folder):
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())
    return {
        "processor": cpu[1] if cpu else platform.machine(),
        "processors": os.cpu_count(),
        "memory_gib": round(int(memory[1]) / 2**20),
        "kernel": platform.release(),
        "compiler": output("g++", "--version", cwd=root).split("\n")[0],
        "pools_on": output("stat", "-f", "-c", "%T", str(folder), cwd=root),
        "durability": "emulated",
        "sources": sources(root),
        "commit": output("git", "describe", "--always", "--dirty", "--abbrev=7", cwd=root),
        "date": str(datetime.datetime.now(datetime.timezone.utc).date()),
        "load_average": round(os.getloadavg()[0], 2),
    }


def calibrate(root, path):
    done = subprocess.run([*BENCH.split(), "--calibrate", "--json", "--path", path], cwd=root,
                          stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)["calibration"]


def place(machine):
    """The machine, its system and the commit, for a page."""
    return (f"{machine['processor']}, {machine['processors']} processors, "
            f"{machine['memory_gib']} GiB, Linux {machine['kernel']}, {machine['compiler']}, pools "
            f"on {machine['pools_on']}, commit {machine['commit']}, {machine['date']}")


def sentence(machine):
    """The same with what it costs there to reach memory, and what else ran."""
    calibration = machine["calibration"]
    huge = calibration["load_huge_ns"]
    return (f"Machine: {place(machine)}; other programs used at most "
            f"{machine.get('others', 0):.2f} processors. Write-back and fence "
            f"{calibration['persist_ns']:.0f} ns; dependent load {calibration['load_ns']:.0f} ns"
            + ("" if huge is None else f", with huge pages {huge:.0f} ns")
            + f"; a cache line to another thread {calibration['transfer_ns']:.0f} ns.")
