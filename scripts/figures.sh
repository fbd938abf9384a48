#!/usr/bin/env bash
# The figures of docs/benchmarks.md: runs the commands below, keeps their JSON in build/figures/,
# and says of every bound whether it holds. Exit status 0: all do. Run it on an idle machine.
#
#   scripts/figures.sh [RECORDS]   10,000,000 by default: 16 GB of memory, about half an hour
set -euo pipefail
cd "$(dirname "$0")/.."

records=${1:-10000000}
cli=${PERDURE_CLI:-build/release/perdure}
compare=${PERDURE_COMPARE:-build/compare/perdure-compare}
out=${PERDURE_FIGURES:-build/figures}
[ -x "$cli" ] || { echo "figures: $cli is not there; run make build first" >&2; exit 2; }
[ -x "$compare" ] || make bench-compare
rm -rf "$out"
mkdir -p "$out"

# Main memory where there is room for it, else the build tree (containers often have 64 MiB there).
needed=$((records * 2 * 100 / 1024 + (1 << 20)))
scratch=$out
if [ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -1)" -ge "$needed" ] 2>/dev/null; then
  scratch=/dev/shm
fi
folder=$(mktemp -d "$scratch/perdure-figures.XXXXXX")
trap 'rm -rf "$folder"' EXIT
pool=$folder/bench.perdure

# run NAME COMMAND...: one JSON object into NAME.json, the command beside it. Exit status 1 (a key
# was missing) goes into the table; anything worse ends the script.
run() {
  local name=$1 status=0
  shift
  echo "\$ $*" >&2
  echo "$*" > "$out/$name.command"
  "$@" --path "$pool" --json > "$out/$name.json" || status=$?
  [ "$status" -le 1 ] || { echo "figures: exit status $status" >&2; exit "$status"; }
}

{
  grep -m1 'model name' /proc/cpuinfo | sed 's/.*: //' || uname -m
  echo "$(nproc) cores"
  awk '/MemTotal/ {printf "%.0f GiB of memory\n", $2 / 1048576}' /proc/meminfo
  echo "Linux $(uname -r)"
  echo "the pool lies on $(stat -f -c %T "$folder")"
  echo "load average at the start$(cut -d' ' -f1-3 /proc/loadavg | sed 's/^/ /')"
  "$cli" --version
  git rev-parse --short HEAD 2>/dev/null || true
  date -u +%Y-%m-%d
} > "$out/machine.txt"

phases=load,insert,read,read_batch,read_missing,update,scan,delete
integers=(--engine phast --records "$records" --operations "$records" --durability emulated)

run uniform_1 "$cli" bench --calibrate --workload $phases --threads 1 "${integers[@]}"
run uniform_2 "$cli" bench --calibrate --workload $phases --threads 2 "${integers[@]}"
for shape in sequential clustered; do
  run $shape "$cli" bench --workload $phases --threads 1 --distribution $shape "${integers[@]}"
done
run process "$cli" bench --calibrate --workload load,insert,read --threads 1 --engine phast \
    --records "$records" --operations "$records" --durability process
# Loaded and nothing else: memory per entry, and the time to open again.
run load "$cli" bench --workload load --threads 2 "${integers[@]}"

run strings "$compare" --engines phast,rocksdb --workload load,read --threads 1 \
    --key string:16 --value string:100 --records $((records / 2)) --durability emulated
run compare "$compare" --engines phast,std_map,lmdb,rocksdb \
    --workload load,insert,read,update,scan,delete --threads 1 --records $((records / 10)) \
    --durability emulated
run ycsb "$cli" bench --workload load,ycsb_a,ycsb_b,ycsb_c,ycsb_f,ycsb_d,ycsb_e --threads 2 \
    --distribution zipfian "${integers[@]}"

# Churn: a live set of a twentieth, replaced twenty times in order of age (every second operation
# inserts).
live=$((records / 20))
churn=(--engine phast --distribution sequential --records "$live" --operations $((live * 40))
       --threads 1 --durability emulated --keep)
run churn_before "$cli" bench --workload load "${churn[@]}"
before=$(stat -c %s "$pool")
rm -f "$pool"
run churn "$cli" bench --workload load,churn "${churn[@]}"
after=$(stat -c %s "$pool")
rm -f "$pool"
echo "{\"file_before\": $before, \"file_after\": $after}" > "$out/churn_files.json"

python3 scripts/figures_table.py --check "$out"
