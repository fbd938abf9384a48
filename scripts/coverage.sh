#!/usr/bin/env bash
# Measures, with gcov, the lines and branches of pool, heap, recovery and check that the fast tests
# reach, fault sweeps and fuzz corpora included. `figures` leaves out tests that run other engines
# only. `nightly` adds the mutants that skip a step or a check, and prints both counts. Prints
# name=value lines and, on standard error, the lines that are not reached. Exit status 0: the tests
# are green and, in nightly, at least 95 % are reached.
#
#   scripts/coverage.sh [--engine E] [figures|nightly] [CTEST-OPTION...]
#     e.g. -L 'api|fault' to measure a part
#
# Branches that the compiler makes for exceptions do not count. A template counts as reached if one
# of its instances is, because the simulated platform runs states that a real machine cannot be
# brought into. docs/design/testing.md gives the reasons for the lines that are not reached.
set -euo pipefail
cd "$(dirname "$0")/.."

engine=phast
if [ "${1:-}" = --engine ]; then
  engine=${2:?an engine}
  shift 2
fi
# The folder that defines the engine's row. Both skiplists share a folder and its tests.
row=$(grep -l "EngineRow rows::$engine{" src/index/*/*.cc || true)
folder=$(basename "$(dirname "${row:-.}")")
[ -n "$row" ] || { echo "coverage.sh: no engine $engine" >&2; exit 2; }
mode=all
case "${1:-}" in figures | nightly) mode=$1; shift ;; esac
build=$PWD/build/coverage
out=$build/report
[ -e "$build/build.ninja" ] || { echo "coverage: run make build-coverage first" >&2; exit 2; }
mkdir -p "$out"
find "$build" -name '*.gcda' -delete
status=0
# figures NAME-PREFIX BAR
figures() {
  python3 scripts/coverage_figures.py "$build" "$engine.$1" "$2" \
      'src/(format|pool|heap|background)/.*' 'src/platform/(file_storage|medium)\..*' \
      'src/index/records?\.h' "src/index/$folder/.*(recover|check|layout).*"
}
# In figures, without the tests of other engines only, and without planted bugs.
only=()
if [ "$mode" = figures ]; then
  others=$(ctest --preset coverage -N | sed -n 's|.*: engines/bit_flip_test\.||p' |
    grep -vx "$engine" || true)
  others+=$'\n'$(grep -l 'EngineRow rows::' src/index/*/*.cc | cut -d/ -f3 | grep -vx "$folder")
  only=(-E "^canary/|[/.]($(paste -sd'|' <<<"$others"))(_|\$)")
fi
# As many flips as in a build that is not instrumented.
PERDURE_FLIPS=3000 ctest --preset coverage "${only[@]}" "$@" >"$out/ctest.log" 2>&1 ||
  { tail -20 "$out/ctest.log" >&2; status=1; }
if [ "$mode" != nightly ]; then
  figures "" 0 || status=1
  exit $status
fi
figures tests_ 0 2>"$out/without_mutants.txt" || status=1
"$build/perdure-guard" mutants --engine "$engine" --only skip_ >"$out/mutants.log" 2>&1 ||
  { tail -20 "$out/mutants.log" >&2; status=1; }
figures "" 95 || status=1
exit $status
