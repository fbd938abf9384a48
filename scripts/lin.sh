#!/usr/bin/env bash
# Linearizability. perdure-guard lin records concurrent and killed runs, and porcupine judges them.
# First come planted bugs, which the checker must find. Histories that are not linearizable stay in
# build/lin, with an HTML drawing. Prints name=value lines. Exit status 0: every history is
# linearizable and every planted bug was found.
#
#   scripts/lin.sh [--engine E] [figures|nightly]          100 of 100,000 operations and 1000
#                                                          crashed; four times that
#   scripts/lin.sh [--engine E] HISTORIES [CRASHES [SEED]]
set -euo pipefail
cd "$(dirname "$0")/.."

engine=phast
if [ "${1:-}" = --engine ]; then
  engine=${2:?an engine}
  shift 2
fi
case "${1:-figures}" in
  figures) set -- 100 1000 ;;
  nightly) set -- 400 4000 ;;
esac
histories=$1
crashes=${2:-1000}
seed=${3:-1}
batch=50  # histories on disk at a time, 3 MB each
guard=${PERDURE_GUARD:-build/release/perdure-guard}
[ -x "$guard" ] ||
  { echo "lin: $guard is missing; run make build-release first" >&2; exit 2; }
command -v go >/dev/null || { echo "lin: go is missing; run make setup-go first" >&2; exit 2; }
out=$PWD/build/lin
checker=$out/porcupine
rm -rf "$out"
mkdir -p "$out"
(cd testing/lin/porcupine && go build -o "$checker" .)

scratch=$out
if [ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -1)" -ge $((1 << 20)) ] 2>/dev/null; then
  scratch=/dev/shm
fi
folder=$(mktemp -d "$scratch/perdure-lin.XXXXXX")
trap 'rm -rf "$folder"' EXIT

# value NAME TEXT: prints the number after NAME= in TEXT.
value() { sed -n "s/.*\b$1=\([0-9]*\).*/\1/p" <<<"$2"; }

# canary EXPECTED RECORDER-OPTIONS...: the checker must find all, or some, of these histories wrong.
canary() {
  local expected=$1 report status=0 start=$EPOCHREALTIME
  shift
  rm -rf "$folder"/*
  # Recovery itself may notice a mutant. The recorder reports such crashed runs as failed.
  "$guard" lin --engine "$engine" --seed "$seed" --out "$folder" --pool "$folder" "$@" \
    >"$folder/log" || true
  report=$("$checker" -expect "$expected" "$folder"/*.lin) || status=1
  local refused
  refused=$(sed -n 's/^crashed=.* failures=\([0-9]*\)$/\1/p' "$folder/log")
  echo "canary $*: $(tail -n 1 <<<"$report") refused=${refused:-0}"
  if [ "$status" -ne 0 ] && [ "${refused:-0}" -eq 0 ]; then
    echo "$report" >&2
    echo "lin: the checker did not find a planted bug" >&2
    exit 1
  fi
  slowest=$(echo "$slowest $start $EPOCHREALTIME" |
    awk '{s = $3 - $2; printf "%.1f", (s > $1 ? s : $1)}')
}
slowest=0
for bug in $("$guard" lin --engine "$engine" --canaries); do
  canary illegal --histories 16 --canary $bug
done
while read -ra planted; do
  canary some --crashes 40 "${planted[@]}"
done <<<"$("$guard" lin --engine "$engine" --planted)"
echo "$engine.lin_canary_seconds=$slowest"

wrong=0    # unknown ones included
unknown=0
failed=0
total=(0 0 0 0 0)  # operations, crash operations, kills, in flight, shrunk
tags=(0 0)         # concurrent, crashed
reads=(0 0)        # at versions; likewise
trims=(0 0)        # and reads of what they have forgotten
judged=(0 0)       # histories that the checker has read: whole ones, crashed ones
# judge: checks the histories in the folder and keeps the wrong ones.
judge() {
  local report
  files=0
  if ! report=$("$checker" -html "$out" "$folder"/*.lin); then
    wrong=$((wrong + $(value not_ok "$(tail -n 1 <<<"$report")")))
    unknown=$((unknown + $(value unknown "$(tail -n 1 <<<"$report")")))
    echo "$report"
    grep -o "^$folder/[^:]*" <<<"$report" | xargs -r cp -t "$out"
  fi
  files=$(value files "$(tail -n 1 <<<"$report")")
}
# record COUNT-FLAG COUNT SEED: records and judges one batch. Its totals are in $line.
record() {
  rm -rf "$folder"/*
  "$guard" lin --engine "$engine" "$1" "$2" --seed "$3" --out "$folder" --pool "$folder" \
    >"$folder/log" ||
    { failed=1; cat "$folder/log"; }
  line=$(tail -n 1 "$folder/log")
  judge
}
versioned=0        # 1 if the engine keeps versions
# count_versions WHICH: adds the counts of versions in $line.
count_versions() {
  versioned=$(value versioned "$line")
  tags[$1]=$((tags[$1] + $(value tags "$line")))
  reads[$1]=$((reads[$1] + $(value version_reads "$line")))
}
for ((done = 0; done < histories; done += batch)); do
  record --histories $((histories - done < batch ? histories - done : batch)) $((seed + done))
  total[0]=$((total[0] + $(value operations "$line")))
  total[4]=$((total[4] + $(value shrunk "$line")))
  count_versions 0
  trims[0]=$((trims[0] + $(value trims "$line")))
  trims[1]=$((trims[1] + $(value reads_of_trimmed "$line")))
  judged[0]=$((judged[0] + files))
done
for ((done = 0; done < crashes; done += batch * 10)); do
  record --crashes $((crashes - done < batch * 10 ? crashes - done : batch * 10)) $((seed + done))
  total[1]=$((total[1] + $(value operations "$line")))
  total[2]=$((total[2] + $(value kills "$line")))
  total[3]=$((total[3] + $(value in_flight "$line")))
  count_versions 1
  judged[1]=$((judged[1] + files))
done

echo "$engine.histories=${judged[0]}"
echo "$engine.history_operations=${total[0]}"
echo "$engine.keeps_versions=$versioned"
echo "$engine.history_tags=${tags[0]}"
echo "$engine.history_version_reads=${reads[0]}"
echo "$engine.history_trims=${trims[0]}"
echo "$engine.history_reads_of_trimmed=${trims[1]}"
echo "$engine.history_shrunk=${total[4]}"
echo "$engine.crash_histories=${judged[1]}"
echo "$engine.crash_history_operations=${total[1]}"
echo "$engine.crash_history_kills=${total[2]}"
echo "$engine.crash_history_in_flight=${total[3]}"
echo "$engine.crash_history_tags=${tags[1]}"
echo "$engine.crash_history_version_reads=${reads[1]}"
echo "$engine.not_linearizable=$wrong"
echo "$engine.linearizability_unknown=$unknown"
if [ "$wrong" -ne 0 ] || [ "$failed" -ne 0 ]; then
  again="scripts/lin.sh --engine $engine $histories $crashes $seed"
  echo "lin: see build/lin; repeat with: $again" >&2
  exit 1
fi
