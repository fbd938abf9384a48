"""Statistics for scripts/bench_check.py: the interval of a median, and verdicts on ratios and on
counts. They assume nothing about the distribution of the ratios."""

import math
import statistics

LEAST_TURNS = 15
BOUND = 0.95  # a row fails if its median ratio is below it with that confidence
LEVEL = 0.95  # of the interval
COUNT_TOLERANCE = 0.02  # a count per operation may rise by this share
# The counts of a real program vary by this much between runs: an extent is taken or not.
COUNT_SLACK = 0.003
# The simulator counts the same every time. Its figures are rounded to four digits.
SIMULATED_SLACK = 0.0001

OK, UNRESOLVED, FAIL = "ok", "unresolved", "FAIL"


def interval_rank(n, level=LEVEL):
    """Returns the largest k for which [k-th smallest, k-th largest] of n values covers the median
    with at least this probability, or 0 if n is too small. The number of values below the median
    is binomial (n, 1/2)."""
    tail, k = 0, 0
    total = 2 ** n
    while k < n // 2:
        tail += math.comb(n, k)
        if 1 - 2 * tail / total < level:
            break
        k += 1
    return k


def median_interval(values, level=LEVEL):
    """Returns (median, lower, upper). The interval covers the true median with at least `level`."""
    values = sorted(values)
    k = interval_rank(len(values), level)
    if k == 0:
        return statistics.median(values), -math.inf, math.inf
    return statistics.median(values), values[k - 1], values[-k]


def verdict(lower, upper, bound=BOUND):
    if upper < bound:
        return FAIL
    return UNRESOLVED if lower < bound else OK


def judge_ratios(ratios):
    """Returns (median, lower, upper, verdict) of the ratios tree / base of one row."""
    median, lower, upper = median_interval(ratios)
    return median, lower, upper, verdict(lower, upper)


def count_rose(before, after, slack=COUNT_SLACK):
    """Returns whether a count per operation rose by more than the tolerance."""
    return after > before * (1 + COUNT_TOLERANCE) + slack


def risen_counts(before, after, slack=COUNT_SLACK):
    """Returns [(name, before, after)] of the counts that rose. A count that only one of the two
    dictionaries has is a new or a removed row, and no rise."""
    return [(name, before[name], after[name]) for name in sorted(before)
            if name in after and count_rose(before[name], after[name], slack)]


def parse_ledger(text):
    """Parses lines name=value into {name: value}. Comments begin with #."""
    figures = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        try:
            figures[name.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise ValueError(f"line {number}: '{line}' is not NAME=NUMBER")
    return figures
