"""Coverage from gcov's JSON: percentages on standard output, missing lines on standard error.

    coverage_figures.py BUILD PREFIX BAR PATTERN...     exit status 1: below the bar

PREFIX is `ENGINE.` or `ENGINE.what_`. With `ENGINE.` it also prints heap and pool separately.
It counts the lines and branches of the sources whose path matches a pattern. Branches that the
compiler makes for exceptions do not count. The instances of a template count as one: a line or
branch is reached if it is reached in any of them. If instances differ (if constexpr), those with
equally many branches on a line are taken as the same code. An instance that never ran counts only
if no other one did.
"""

import collections
import concurrent.futures
import json
import math
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def own_branches(branches):
    """Returns the counts without the branches of calls that may throw: one to the next
    instruction, one to the handler. Code that is compiled without exceptions has neither."""
    counts = []
    for i, branch in enumerate(branches):
        beside = branches[max(i - 1, 0):i + 2]
        if branch["throw"] or (branch["fallthrough"] and any(b["throw"] for b in beside)):
            continue
        counts.append(branch["count"])
    return counts


def folded(branches, instances):
    """Adds up the branches of several instances, which are listed one after the other."""
    if instances < 2 or len(branches) % instances != 0:
        return branches
    size = len(branches) // instances
    return [sum(branches[i::size]) for i in range(size)]


PARTS = {"src/heap/": "heap", "src/format/": "pool", "src/pool/": "pool",
         "src/background/": "pool", "src/platform/file_storage": "pool",
         "src/platform/medium": "pool"}
LAMBDA = "a lambda in a template"


def place_of(number, functions):
    """For a line without a function's name, returns the first line of its function, LAMBDA if it is
    known to be in one, and the number of instances that it stands for. gcov takes a lambda to be
    one line long. The other lines of a lambda in a template have no name, and one entry stands for
    all instances."""
    around = [f["start_line"] for f in functions if f["start_line"] <= number <= f["end_line"]]
    if not around:
        return 0, "", 1
    start = max(around)
    inside = [f["start_line"] for f in functions if start < f["start_line"] <= number]
    if around.count(start) < 2 or not inside:
        return start, "", 1
    return max(inside), LAMBDA, inside.count(max(inside))


def read(data, patterns):
    """Reads one file: (path, first line of the function, function) -> {line: (count, branches)}."""
    out = subprocess.run(["gcov", "--json-format", "--stdout", "--branch-probabilities", data],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    found = {}
    for text in out.splitlines():
        report = json.loads(text)
        for source in report["files"]:
            path = pathlib.Path(report["current_working_directory"], source["file"]).resolve()
            if not path.is_relative_to(ROOT):
                continue
            path = str(path.relative_to(ROOT))
            if not any(re.fullmatch(pattern, path) for pattern in patterns):
                continue
            starts = {f["name"]: f["start_line"] for f in source["functions"]}
            for line in source["lines"]:
                name = line.get("function_name", "")
                branches = own_branches(line["branches"])
                start = starts.get(name, 0)
                if not name:
                    start, name, count = place_of(line["line_number"], source["functions"])
                    branches = folded(branches, count)
                key = (path, start, name)
                # A line of a function has an entry for each of its blocks, so entries are added up.
                lines = found.setdefault(key, {})
                count, before = lines.get(line["line_number"], (0, []))
                lines[line["line_number"]] = (count + line["count"], before + branches)
    return found


def fold_inlined(parts):
    """A function that is inlined everywhere (always_inline) has no entry of its own, and its lines
    have the branches of all its copies. So the branches of one copy divide those of each object
    file."""
    sizes = collections.defaultdict(int)
    inlined = [(path, number, lines)
               for part in parts for (path, start, name), lines in part.items()
               if (start, name) == (0, "") for number in lines]
    for path, number, lines in inlined:
        sizes[path, number] = math.gcd(sizes[path, number], len(lines[number][1]))
    for path, number, lines in inlined:
        count, branches = lines[number]
        size = sizes[path, number]
        lines[number] = (count, folded(branches, len(branches) // size if size else 1))


def merged(parts):
    """Merges all object files. Adds the counts of a function that is compiled more than once."""
    total = {}
    for part in parts:
        for key, lines in part.items():
            known = total.setdefault(key, {})
            for number, (count, branches) in lines.items():
                before, old = known.get(number, (0, [0] * len(branches)))
                if len(old) == len(branches):
                    branches = [a + b for a, b in zip(old, branches)]
                else:
                    branches = max(old, branches, key=len)
                known[number] = (before + count, branches)
    return total


def instances(total):
    """Returns path -> {line: (reached, [reached branches])}; instances of a template are one."""
    lambdas = {(path, number): start for (path, start, name), lines in total.items()
               if name == LAMBDA for number in lines}
    functions = collections.defaultdict(list)
    for (path, start, _), lines in total.items():
        # If a template has one instance only, the lines of its lambdas count as its own.
        parts = collections.defaultdict(dict)
        for number, counts in lines.items():
            parts[lambdas.get((path, number), start)][number] = counts
        for first, part in parts.items():
            functions[path, first].append(part)
    files = collections.defaultdict(dict)
    for (path, _), group in functions.items():
        ran = [lines for lines in group if any(count for count, _ in lines.values())]
        for number in {n for lines in group for n in lines}:
            counted = [lines[number] for lines in (ran or group) if number in lines]
            if not counted:
                continue
            shapes = collections.defaultdict(list)
            for _, branches in counted:
                shapes[len(branches)].append(branches)
            taken = [any(column) for same in shapes.values() for column in zip(*same)]
            reached, before = files[path].get(number, (False, []))
            files[path][number] = (reached or any(c for c, _ in counted), before + taken)
    return files


def ranges(numbers):
    text, start, last = [], None, None
    for n in [*sorted(numbers), None]:
        if start is not None and n != last + 1:
            text.append(str(start) if start == last else f"{start}-{last}")
            start = None
        if start is None:
            start = n
        last = n
    return " ".join(text) or "-"


def main(build, prefix, bar, *patterns):
    data = [str(path) for path in pathlib.Path(build).resolve().rglob("*.gcda")]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(lambda path: read(path, patterns), data))
    fold_inlined(parts)
    files = instances(merged(parts))
    totals = {"line": [0, 0], "branch": [0, 0]}
    shown = {}
    for path, lines in sorted(files.items()):
        counts = {"line": [r for r, _ in lines.values()],
                  "branch": [b for _, taken in lines.values() for b in taken]}
        shares = []
        for kind, reached in counts.items():
            totals[kind][0] += sum(reached)
            totals[kind][1] += len(reached)
            shares.append(f"{kind} {sum(reached)}/{len(reached)}")
        missing = ranges(n for n, (reached, _) in lines.items() if not reached)
        partly = ranges(n for n, (reached, taken) in lines.items() if reached and not all(taken))
        print(f"{path}: {', '.join(shares)}; lines {missing}; branches of {partly}",
              file=sys.stderr)
        if prefix.count(".") == 1 and prefix.endswith("."):
            part = next((p for folder, p in PARTS.items() if path.startswith(folder)), "")
            for kind, reached in counts.items():
                shown.setdefault((part, kind), []).extend(reached)
    for (part, kind), reached in sorted(shown.items()):
        if part:
            print(f"{part}.{kind}_coverage={100 * sum(reached) / len(reached):.2f}")
    status = 0
    for kind, (reached, total) in totals.items():
        percent = 100 * reached / total if total else 0
        print(f"{prefix}{kind}_coverage={percent:.2f}")
        if percent < float(bar):
            print(f"coverage: {kind}: below {bar}%", file=sys.stderr)
            status = 1
    sys.exit(status)


main(*sys.argv[1:])
