#!/usr/bin/env bash
# Part 1 loads real data: Debian's package index and the paths of all installed packages. It kills
# the loader at a random moment and reopens the pool. A program that does not use perdure compares
# the pool with the input. Part 2 loads 5 million records, kills the process, and measures the next
# process from its start until it has looked up a record and ended. Exit status 1: an acknowledged
# record is missing. DEMO_SEED=N repeats a run. DEMO_RECORDS=N shrinks part 2.
set -euo pipefail
cd "$(dirname "$0")/.."

cli=${PERDURE_CLI:-build/release/perdure}
helper=(python3 scripts/demo_helper.py)
seed=${DEMO_SEED:-$((RANDOM * 32768 + RANDOM))}
records=${DEMO_RECORDS:-5000000}
sqlite_records=$((records < 1000000 ? records : 1000000))
threads=$(nproc)
[ "$threads" -le 4 ] || threads=4

[ -x "$cli" ] || { echo "demo: $cli is missing; run make build" >&2; exit 1; }
case $records in
  '' | *[!0-9]* | 0*) echo "demo: DEMO_RECORDS=$records is not a number of records" >&2; exit 2 ;;
esac

# Main memory if 2 GiB of it are free (containers often have 64 MiB there), otherwise the build
# tree.
scratch=build
if [ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -1)" -ge $((2 << 20)) ] 2>/dev/null; then
  scratch=/dev/shm
fi
mkdir -p "$scratch"
folder=$(mktemp -d "$scratch/perdure-demo.XXXXXX")
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
pool=$folder/demo.perdure
input=$folder/input.tsv

section() { printf '\n== %s\n' "$*"; }
show() { printf '$ perdure %s\n' "$*" | sed "s|$folder/||g"; }
run() { show "$@"; "$cli" "$@" 2>&1 | sed "s|$folder/||g"; }
short() { cut -c1-"${1:-96}"; }

# ---- the input ----------------------------------------------------------------------------------

section "The input: this machine's package index and the paths of its installed packages"
as_root=()
if [ "$(id -u)" -ne 0 ] && command -v sudo >/dev/null; then as_root=(sudo); fi
index=$folder/index
packages() {
  apt-cache dumpavail >"$index" 2>/dev/null || true
  grep -c '^Package: ' "$index" || true
}
if [ "$(packages)" -lt 1000 ]; then
  echo "The package lists are empty: apt-get update"
  ${as_root[@]+"${as_root[@]}"} apt-get -q update >/dev/null || echo "apt-get update failed"
  if [ "$(packages)" -lt 1000 ]; then
    echo "There is no package index: the records of the installed packages are used instead"
    cp /var/lib/dpkg/status "$index"
  fi
fi
"${helper[@]}" input "$input" <"$index"
rm "$index"
lines=$(wc -l <"$input")

# ---- the kill -----------------------------------------------------------------------------------

section "Load the input, and kill the loader with SIGKILL after a random part (seed $seed)"
run create "$pool" --max-size 4G
show load "$pool" "$input" --threads "$threads"
"${helper[@]}" kill "$seed" "$lines" "$folder/acknowledged" \
    "$cli" load "$pool" "$input" --threads "$threads"
acknowledged=$(cat "$folder/acknowledged")

section "Reopen: is every acknowledged record there?"
run info "$pool" | grep -E '^(medium|durability|  |state)'
run dump "$pool" "$folder/killed.tsv"
"${helper[@]}" verify "$input" "$acknowledged" "$folder/killed.tsv"
rm "$folder/killed.tsv"

section "Finish the load: it continues where it was killed"
run load "$pool" "$input" --threads "$threads" | grep -v '^acknowledged'
run dump "$pool" "$folder/whole.tsv"
LC_ALL=C sort "$input" >"$folder/expected.tsv"
LC_ALL=C sort "$folder/whole.tsv" | cmp - "$folder/expected.tsv"
echo "sort | cmp: the dump and the input are equal, byte for byte"
rm "$folder/whole.tsv" "$folder/expected.tsv"

# ---- queries ------------------------------------------------------------------------------------

section "Query the pool: prefix scans, a reverse scan, one lookup"
run scan "$pool" --prefix /usr/bin/ --limit 5 | short
run scan "$pool" --prefix python3- --limit 3 | short
run scan "$pool" --prefix zsh --reverse --limit 3 | short
key=$("$cli" scan "$pool" --prefix bash/ --limit 1 | cut -f1)
run get "$pool" "$key" | head -4 | short

section "Check every invariant and every checksum, and show the use of space"
run check "$pool" --deep
run stats "$pool"

# ---- restart ------------------------------------------------------------------------------------

section "Restart: load $records records, kill -9, and time the next process"
"${helper[@]}" records "$folder/records.tsv" "$records"
for engine in clevel phast; do
  run create "$folder/$engine.perdure" --engine "$engine" --key u64 --value u64 --max-size 4G |
    grep -v '^durability' || true
  "${helper[@]}" restart "$cli" "$folder/$engine.perdure" "$folder/records.tsv" "$records" \
      "$threads" "$folder/$engine.figures"
  rm "$folder/$engine.perdure"
done
"${helper[@]}" sqlite "$folder/records.tsv" "$sqlite_records" "$folder/sqlite.figures"

section "Results (DEMO_SEED=$seed repeats this run)"
echo "The loader was killed. Of $lines records it had acknowledged $acknowledged; none is missing."
"${helper[@]}" table "$folder"/{clevel,phast,sqlite}.figures
