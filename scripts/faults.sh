#!/usr/bin/env bash
# Counts what failed calls and flipped bits do. Every k-th call fails. Single bits flip in a pool
# that was closed, in one whose process died, in both as `perdure check` opens them, and in an open
# one. Every run plants a bug in the failures and one in the flips. Prints name=value lines. Exit
# status 0: nothing was lost, no damage was silent, no signal ended a program, and the planted bugs
# were seen.
#
#   scripts/faults.sh [--engine E] [figures|nightly|FLIPS]
#     figures: 65,536 flips per pool
#     nightly: in the closed pool and in that of the dead process, each bit of each line in use and
#       part of those of zeros; 131,072 flips in the other pools; and each k on the disk
set -euo pipefail
cd "$(dirname "$0")/.."

export PERDURE_ENGINE=phast
if [ "${1:-}" = --engine ]; then
  PERDURE_ENGINE=${2:?an engine}
  shift 2
fi
engine=$PERDURE_ENGINE
flips=${1:-figures}
case "$flips" in
  figures) flips=65536 ;;
  nightly) flips=all; export PERDURE_FAULT_STEP=1 ;;
esac
sampled=$flips
[ "$flips" != all ] || sampled=131072
build=$PWD/${PERDURE_BUILD:-build/release}
export PERDURE_BUILD_DIR=$build
[ -x "$build/tests/engines_fault_sweep_test" ] ||
  { echo "faults: run make build-release first" >&2; exit 2; }
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

status=0
# figures NAME: prints the name=value lines of a log, or all of it if its program failed.
figures() {
  grep -E '^(faults|flips)\.' "$logs/$1" | sed "s/^/$engine./" || true
  [ -e "$logs/$1.ok" ] || { status=1; cat "$logs/$1"; }
}
# run NAME PROGRAM FILTER: runs tests into a log.
run() { "$build/tests/$2" --gtest_filter="$3" >"$logs/$1" 2>&1 && touch "$logs/$1.ok" || true; }

start=$EPOCHREALTIME
run planted_fault engines_fault_sweep_test '*Itself*'
run planted_flip engines_bit_flip_test '*TheJudge*:*Without*'
seconds=$(echo "$start $EPOCHREALTIME" | awk '{printf "%.1f", $2 - $1}')
figures planted_fault
figures planted_flip
echo "$engine.faults_canary_seconds=$seconds"

run faults engines_fault_sweep_test '-*Itself*'
figures faults
awk -F= -v e="$engine" '/^faults\.points\./ {n += $2} END {printf "%s.fault_points=%d\n", e, n}' \
    "$logs/faults"

# The slow kinds run on different cores.
kinds="clean open observed unclean observed_unclean"
{
  PERDURE_FLIPS=$flips run clean engines_bit_flip_test '*InACleanlyClosedPool*'
  PERDURE_FLIPS=$sampled run observed engines_bit_flip_test '*PastTheDamageOfAClosedPool*'
} &
{
  PERDURE_FLIPS=$flips run unclean engines_bit_flip_test '*InThePoolOfADeadProcess*'
  PERDURE_FLIPS=$sampled run observed_unclean engines_bit_flip_test '*PastTheDamageOfADeadProcess*'
  PERDURE_FLIPS=$sampled run open engines_bit_flip_test '*InAnOpenPool*'
} &
wait
for kind in $kinds; do figures "$kind"; done
# sum NAME PATTERN: prints the sum of the matching lines of all pools.
sum() {
  for kind in $kinds; do cat "$logs/$kind"; done |
    awk -F= -v e="$engine" -v name="$1" -v pattern="$2" \
        '$1 ~ pattern {n += $2} END {printf "%s.%s=%d\n", e, name, n}'
}
sum bit_flips '^flips[.](un)?clean$'
sum silent_flips '^flips[.][a-z_]+[.](silent|wrong_status)$'
sum signals '^flips[.][a-z_]+[.]signal$'
exit $status
