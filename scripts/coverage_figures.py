"""Figures from gcovr's JSON: percentages on standard output, what is missing on standard error.

    coverage_figures.py ENGINE BAR coverage.json     exit status 1: below the bar
"""

import json
import sys


def ranges(numbers):
    text, start, last = [], None, None
    for n in [*sorted(numbers), None]:
        if start is not None and n != last + 1:
            text.append(str(start) if start == last else f"{start}-{last}")
            start = None
        if start is None:
            start = n
        last = n
    return " ".join(text)


def main(engine, bar, path):
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    totals = {"line": [0, 0], "branch": [0, 0]}
    for entry in sorted(report["files"], key=lambda f: f["file"]):
        lines = [line for line in entry["lines"] if not line.get("gcovr/noncode")]
        missing = [line["line_number"] for line in lines if line["count"] == 0]
        partly = []
        counts = {"line": [len(lines) - len(missing), len(lines)], "branch": [0, 0]}
        for line in lines:
            taken = sum(1 for branch in line["branches"] if branch["count"] > 0)
            counts["branch"][0] += taken
            counts["branch"][1] += len(line["branches"])
            if line["count"] > 0 and taken < len(line["branches"]):
                partly.append(line["line_number"])
        for kind, (reached, total) in counts.items():
            totals[kind][0] += reached
            totals[kind][1] += total
        shares = ", ".join(f"{kind} {reached}/{total}" for kind, (reached, total) in counts.items())
        print(f"{entry['file']}: {shares}; lines {ranges(missing) or '-'}; "
              f"branches of {ranges(partly) or '-'}", file=sys.stderr)
    status = 0
    for kind, (reached, total) in totals.items():
        percent = 100 * reached / total if total else 0
        print(f"{engine}.{kind}_coverage={percent:.2f}")
        if percent < bar:
            print(f"coverage: {kind}: below {bar}%", file=sys.stderr)
            status = 1
    sys.exit(status)


main(sys.argv[1], float(sys.argv[2]), sys.argv[3])
