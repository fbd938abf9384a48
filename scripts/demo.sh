#!/usr/bin/env bash
# Loads real data (Debian's package index and the paths of all installed packages), kills the loader
# at a random moment, reopens the pool, and has an independent program compare it with the input.
# Status 1 if anything acknowledged is missing. DEMO_SEED=N repeats a run.
set -euo pipefail
cd "$(dirname "$0")/.."

cli=${PERDURE_CLI:-build/release/perdure}
helper=(python3 scripts/demo_helper.py)
seed=${DEMO_SEED:-$((RANDOM * 32768 + RANDOM))}
threads=$(nproc)
[ "$threads" -le 4 ] || threads=4

[ -x "$cli" ] || { echo "demo: $cli is missing; run make build" >&2; exit 1; }

# Main memory where 1 GiB of it is free (containers often have 64 MiB there), else the build tree.
scratch=build
if [ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -1)" -ge $((1 << 20)) ] 2>/dev/null; then
  scratch=/dev/shm
fi
mkdir -p "$scratch"
folder=$(mktemp -d "$scratch/perdure-demo.XXXXXX")
background=
cleanup() {
  if [ -n "$background" ]; then kill -KILL "$background" 2>/dev/null || true; fi
  rm -rf "$folder"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
pool=$folder/demo.perdure
input=$folder/input.tsv

section() { printf '\n== %s\n' "$*"; }
show() { printf '$ perdure %s\n' "$*" | sed "s|$folder/||g"; }
run() { show "$@"; "$cli" "$@" 2>&1 | sed "s|$folder/||g"; }
short() { cut -c1-"${1:-96}"; }
seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f", b - a }'; }

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
  ${as_root[@]+"${as_root[@]}"} apt-get -q update >/dev/null || echo "(that failed)"
  if [ "$(packages)" -lt 1000 ]; then
    echo "No package index: the records of the installed packages have to do"
    cp /var/lib/dpkg/status "$index"
  fi
fi
"${helper[@]}" input "$input" <"$index"
rm "$index"
lines=$(wc -l <"$input")

# ---- the kill -----------------------------------------------------------------------------------

section "Load it, and SIGKILL the loader after a random part (seed $seed)"
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

section "Finish the load: it goes on where it was killed"
run load "$pool" "$input" --threads "$threads" | grep -v '^acknowledged'
run dump "$pool" "$folder/whole.tsv"
LC_ALL=C sort "$input" >"$folder/expected.tsv"
LC_ALL=C sort "$folder/whole.tsv" | cmp - "$folder/expected.tsv"
echo "sort | cmp: dump and input are the same, byte for byte"
rm "$folder/whole.tsv" "$folder/expected.tsv"

# ---- queries ------------------------------------------------------------------------------------

section "Ask it: a prefix scan, the last keys, one lookup"
run scan "$pool" --prefix /usr/bin/ --limit 5 | short
run scan "$pool" --prefix python3- --limit 3 | short
run scan "$pool" --prefix zsh --reverse --limit 3 | short
key=$("$cli" scan "$pool" --prefix bash/ --limit 1 | cut -f1)
run get "$pool" "$key" | head -4 | short

section "Check every invariant and every checksum; where the space goes"
run check "$pool" --deep
run stats "$pool"

# ---- restart ------------------------------------------------------------------------------------

section "Restart: reopen after a kill, beside a rebuild from the input"
# A loader that has everything open and waits for input, killed: the pool is not closed.
mkfifo "$folder/never"
"$cli" load "$pool" - <"$folder/never" >/dev/null 2>"$folder/heard" &
background=$!
exec 3>"$folder/never"
printf 'demo\tlast words\n' >&3
for _ in $(seq 500); do
  if grep -q '^acknowledged 1$' "$folder/heard"; then break; fi
  sleep 0.01
done
grep -q '^acknowledged 1$' "$folder/heard"
kill -KILL "$background"
wait "$background" 2>/dev/null || true
background=
exec 3>&-

began=$EPOCHREALTIME
"$cli" get "$pool" "$key" >"$folder/value"
reopened=$(seconds_since "$began")
[ -s "$folder/value" ]
[ "$("$cli" get "$pool" demo)" = "last words" ]
began=$EPOCHREALTIME
"$cli" load "$folder/rebuilt.perdure" "$input" --threads "$threads" >/dev/null 2>&1
rebuilt=$(seconds_since "$began")
printf '%8s s  kill -9, then a new process: open, recover, look one key up, close\n' "$reopened"
printf '%8s s  the same %s records put into a new pool from the input file\n' "$rebuilt" "$lines"

section "Nothing acknowledged was lost (DEMO_SEED=$seed repeats this run)"
