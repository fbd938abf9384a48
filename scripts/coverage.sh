#!/usr/bin/env bash
# Lines and branches of pool, heap, recovery and check that the fast tests, the faults and the fuzz
# corpora reach, measured with gcov. Prints name=value lines and, on standard error, what is not
# reached. Exit status 0: the bar is met.
#
#   scripts/coverage.sh [--engine E] [CTEST-OPTION...]   e.g. -L 'api|fault' to measure a part
#
# Branches that the compiler makes for exceptions do not count. A template counts as reached where
# any of its instances is: the simulated platform runs what a real machine cannot be made to do.
# docs/design/coverage.md says why what is left is left.
set -euo pipefail
cd "$(dirname "$0")/.."

engine=phast
if [ "${1:-}" = --engine ]; then
  engine=${2:?an engine}
  shift 2
fi
bar=95
build=$PWD/build/coverage
out=$build/report
[ -e "$build/build.ninja" ] || { echo "coverage: run make build-coverage first" >&2; exit 2; }
mkdir -p "$out"
find "$build" -name '*.gcda' -delete
status=0
ctest --preset coverage "$@" >"$out/ctest.log" 2>&1 || { tail -20 "$out/ctest.log" >&2; status=1; }

# gcovr 5 knows no atomic counters: a word that threads spoilt is a parse error, and its line is
# left out.
gcovr --root . --object-directory "$build" --gcov-ignore-parse-errors \
    --exclude-throw-branches --exclude-unreachable-branches \
    --filter 'src/pool/' --filter 'src/heap/' --filter 'src/store/pool_impl' \
    --filter 'src/store/pool_report' --filter 'src/index/record.h' \
    --filter "src/index/$engine/.*(recover|check|layout)" \
    --json "$out/coverage.json" --txt "$out/coverage.txt" --json-summary "$out/summary.json" \
    >"$out/gcovr.log" 2>&1 || { tail -20 "$out/gcovr.log" >&2; exit 1; }
python3 scripts/coverage_figures.py "$engine" "$bar" "$out/coverage.json" || status=1
exit $status
