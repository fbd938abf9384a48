#!/usr/bin/env bash
# Fuzzing. Runs every target of build/fuzz with libFuzzer, two at a time, after each has found a bug
# that is planted in it. Prints name=value lines. Inputs that found something stay in
# build/fuzz/work. Exit status 0: nothing was found, every planted bug was, and the number of
# executions was reached.
#
#   scripts/fuzz.sh figures [--engine E]   about 2 minutes on 2 cores
#   scripts/fuzz.sh nightly [--engine E]   1 M executions of the parsers, 200 k of the pool targets
#   scripts/fuzz.sh merge [--engine E]     puts what the last run found new into fuzz/corpus
#
# PERDURE_FUZZ_SEED repeats the choices of a run as far as libFuzzer can.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:-figures}
engine=phast
[ "${2:-}" != --engine ] || engine=${3:?an engine}
export PERDURE_FUZZ_ENGINE=$engine
bin=$PWD/build/fuzz/fuzz
work=$PWD/build/fuzz/work/$engine
seed=${PERDURE_FUZZ_SEED:-$((RANDOM * 32768 + RANDOM + 1))}
parsers="tsv cli"
pools="open check ops"
declare -A plants=([ops]="1 2")  # a memory error, and a wrong result
[ -x "$bin/fuzz_ops" ] || { echo "fuzz: run make build-fuzz first" >&2; exit 2; }

case "$mode" in
  figures) declare -A runs=([tsv]=200000 [cli]=20000 [open]=20000 [check]=15000 [ops]=10000) ;;
  nightly) declare -A runs=([tsv]=900000 [cli]=120000 [open]=90000 [check]=70000 [ops]=60000) ;;
  merge) ;;
  *) sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

# The sanitizers print to a descriptor of their own. The library must handle allocations that are
# refused. The target has its own limit, in processor time.
ASAN_OPTIONS=allocator_may_return_null=1:allocator_release_to_os_interval_ms=-1
export ASAN_OPTIONS=$ASAN_OPTIONS:quarantine_size_mb=16:detect_leaks=1
options=(-max_len=1024 -timeout=0 -rss_limit_mb=3000 -malloc_limit_mb=512 -close_fd_mask=1
         -print_final_stats=1 -verbosity=1)

# dictionary TARGET: prints the option that names its dictionary, if it has one.
dictionary() { [ ! -e "fuzz/$1.dict" ] || echo "-dict=fuzz/$1.dict"; }

# canary TARGET PLANT: measures the processor seconds until the planted bug is found, from an empty
# corpus.
canary() {
  local folder=$work/$1/canary$2 seconds
  mkdir -p "$folder/corpus"
  TIMEFORMAT='%U %S'
  seconds=$({ time PERDURE_FUZZ_PLANT=$2 "$bin/fuzz_$1" "${options[@]}" \
      $(dictionary "$1") -seed="$seed" -max_total_time=120 -artifact_prefix="$folder/" \
      "$folder/corpus" >"$folder/log" 2>&1 || true; } 2>&1 | awk '{printf "%.1f", $1 + $2}')
  local found
  found=$(find "$folder" -name 'crash-*' -print -quit)
  if [ -z "$found" ]; then
    echo "fuzz: $1: planted bug $2 was not found; see $folder/log" >&2
    return 1
  fi
  # It must be the planted bug: without it the input finds nothing.
  "$bin/fuzz_$1_replay" "$found" >"$folder/replay_log" 2>&1 || return 1
  echo "$seconds" >>"$work/$1/canary_seconds"
  awk -v s="$seconds" 'BEGIN {exit !(s < 10)}' && return 0
  echo "fuzz: $1: planted bug $2 took $seconds s to find" >&2
  return 1
}

# run_target TARGET EXECUTIONS
run_target() {
  local folder=$work/$1
  rm -rf "$folder"
  mkdir -p "$folder/corpus" "$folder/found"
  for plant in ${plants[$1]:-1}; do
    canary "$1" "$plant" || touch "$folder/canary_failed"
  done
  "$bin/fuzz_$1_replay" --unpack "$folder/corpus" "fuzz/corpus/$1.hex"
  "$bin/fuzz_$1" "${options[@]}" $(dictionary "$1") -seed="$seed" -runs="$2" \
      -artifact_prefix="$folder/found/" "$folder/corpus" >"$folder/log" 2>&1 || true
}

# executions TARGET
executions() {
  sed -n 's/^stat::number_of_executed_units: *//p' "$work/$1/log" | tail -1 | grep . || echo 0
}

if [ "$mode" = merge ]; then
  for target in $parsers $pools; do
    [ -d "$work/$target/corpus" ] || continue
    rm -rf "$work/$target/merged"
    mkdir "$work/$target/merged"
    "$bin/fuzz_$target" -max_len=1024 -merge=1 "$work/$target/merged" "$work/$target/corpus" \
        >"$work/$target/merge_log" 2>&1
    scripts/fuzz_corpus.py "fuzz/corpus/$target.hex" "$work/$target/merged"
  done
  exit 0
fi

jobs=()
for target in ops cli check tsv open; do  # the slow ones first
  while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n || true; done
  run_target "$target" "${runs[$target]}" &
  jobs+=($!)
done
wait

status=0
total=0
findings=0
for kind in parser pool; do
  sum=0
  if [ "$kind" = parser ]; then targets=$parsers; else targets=$pools; fi
  for target in $targets; do
    count=$(executions "$target")
    found=$(find "$work/$target/found" -type f | wc -l)
    echo "$engine.fuzz.$target.executions=$count"
    [ ! -e "$work/$target/canary_failed" ] || status=1
    if [ "$found" -gt 0 ]; then
      grep -m1 -E 'ERROR|SUMMARY|not so' "$work/$target/log" >&2 || true
      find "$work/$target/found" -type f -printf 'fuzz: found %p\n' >&2
    elif [ "$count" -lt "${runs[$target]}" ]; then
      echo "fuzz: $target ended early; see $work/$target/log" >&2
      status=1
    fi
    sum=$((sum + count))
    findings=$((findings + found))
  done
  echo "$engine.${kind}_executions=$sum"
  total=$((total + sum))
done
echo "$engine.fuzz_executions=$total"
echo "$engine.fuzz_findings=$findings"
echo "$engine.fuzz_canary_seconds=$(sort -n "$work"/*/canary_seconds 2>/dev/null | tail -1)"
[ "$findings" -eq 0 ] || status=1
exit $status
