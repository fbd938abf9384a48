"""The file of a report's results: written after each run, so that a report that was stopped goes
on where it was."""

import json
import os
import pathlib
import statistics

from reporting import plan

# What a report shows of a phase. The rest of a run's output is not kept.
KEPT = ("name", "operations", "mops", "wall_seconds", "p50_ns", "p99_ns", "p999_ns",
        "flushes_per_op", "fences_per_op", "bytes_written_per_op")
KEPT_OF_RUN = ("engine", "version", "medium", "durability", "missing", "unexpected",
               "bytes_per_entry_pm", "bytes_per_entry_dram", "close_seconds",
               "reopen_clean_seconds", "reopen_killed_seconds", "first_lookup_seconds", "cuts")


def shortened(run, latencies):
    """Returns what is kept of a run: its latencies only if asked for."""
    kept = {key: run[key] for key in KEPT_OF_RUN if run.get(key) is not None}
    kept["phases"] = []
    for phase in run["phases"]:
        row = {key: phase[key] for key in KEPT if phase.get(key) is not None}
        if latencies:
            row["latency_ns"] = phase["latency_ns"]
        kept["phases"].append(row)
    return kept


class Results:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.data = {"machine": {}, "runs": {}}
        if self.path.exists():
            self.data = json.loads(self.path.read_text())

    @property
    def machine(self):
        return self.data["machine"]

    def begin(self, machine):
        """Keeps the runs of a report of the same sources, if it is not finished; else drops them.
        Returns whether it keeps some."""
        goes_on = (self.machine.get("sources") == machine["sources"]
                   and not self.machine.get("finished"))
        if not goes_on:
            self.data = {"machine": machine, "runs": {}}
        return goes_on

    def save(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps(self.data, separators=(",", ":"), sort_keys=True)
                          .replace('},"', '},\n"') + "\n")
        os.replace(beside, self.path)

    def turns(self, name):
        """The turns of run GROUP/ENGINE."""
        return self.data["runs"].get(name, {}).get("turns", [])

    def add(self, name, command, turn):
        run = self.data["runs"].setdefault(name, {"command": command, "turns": []})
        run["turns"].append(turn)
        self.save()

    def lost(self):
        """Keys that were missing, or there and must not be, in all runs."""
        return sum(turn.get("missing", 0) + turn.get("unexpected", 0)
                   for run in self.data["runs"].values() for turn in run["turns"])

    def phases(self, name):
        turns = self.turns(name)
        return [phase["name"] for phase in turns[0]["phases"]] if turns else []

    def values(self, name, phase, field="mops"):
        """The field of a phase in all turns."""
        return [row[field] for turn in self.turns(name) for row in turn["phases"]
                if row["name"] == phase and field in row]

    def median(self, name, phase, field="mops"):
        values = self.values(name, phase, field)
        return statistics.median(values) if values else None

    def distance(self, name, engine, phase):
        """The measured time of an operation by the least that it can take: its fences, and the
        lines that every design must fetch. None if it was not measured."""
        rate = self.median(name, phase)
        if rate is None:
            return None
        calibration = self.machine["calibration"]
        load = calibration["load_huge_ns"] or calibration["load_ns"]
        persist = calibration["persist_huge_ns"] or calibration["persist_ns"]
        lines = plan.UNAVOIDABLE[phase][engine in plan.ORDERED]
        least = self.median(name, phase, "fences_per_op") * persist + lines * load
        return 1e3 / rate / least

    def of_run(self, name, field):
        """The median of a field of the run itself."""
        values = [turn[field] for turn in self.turns(name) if field in turn]
        return statistics.median(values) if values else None
