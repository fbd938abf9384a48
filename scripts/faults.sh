#!/usr/bin/env bash
# The figures of failed calls and flipped bits: every k-th failure, and a sample of single-bit flips
# in a pool that was closed and in one whose process died. Prints name=value lines; exit status 0:
# nothing was lost, silent or ended by a signal.
#
#   scripts/faults.sh [FLIPS]   65536 per pool by default; `all`: each bit of each line in use
set -euo pipefail
cd "$(dirname "$0")/.."

build=$PWD/${PERDURE_BUILD:-build/release}
export PERDURE_BUILD_DIR=$build
[ -x "$build/tests/fault_fault_sweep_test" ] || { echo "faults: run make build first" >&2; exit 2; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT

status=0
# figures PROGRAM: its name=value lines; all it says if it fails.
figures() {
  if "$build/tests/$1" >"$log" 2>&1; then
    grep -E '^(faults|flips)\.' "$log" | sed 's/^/phast./'
  else
    status=1
    cat "$log"
  fi
}
figures fault_fault_sweep_test
awk -F= '/^faults\.points\./ {n += $2} END {printf "phast.faults.points=%d\n", n}' "$log"
PERDURE_FLIPS=${1:-65536} figures api_bit_flip_test
exit $status
