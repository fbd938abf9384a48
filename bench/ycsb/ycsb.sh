#!/usr/bin/env bash
# Runs YCSB's client, as bin/ycsb of YCSB does:
#   ycsb.sh load|run|shell perdure|redis|basic [options of YCSB]
#   ycsb.sh load perdure -P bench/ycsb/workloads/a -p perdure.path=/dev/shm/a.perdure \
#       -p recordcount=100000 -threads 2
# `shell` reads commands like `read KEY`; `help` lists them. `basic` is YCSB's own store that does
# nothing. `make ycsb` builds what this needs. JAVA_OPTS has options for java. docs/ycsb.md lists
# the properties.
set -euo pipefail
out=$(cd "$(dirname "$0")/../../build/ycsb" && pwd)
case "${1:-}" in
  load) program=(site.ycsb.Client -load) ;;
  run) program=(site.ycsb.Client -t) ;;
  shell) program=(site.ycsb.CommandLine) ;;
  *) sed -n '2,8p' "$0" >&2; exit 2 ;;
esac
case "${2:-}" in
  perdure) class=perdure.ycsb.PerdureClient ;;
  redis) class=perdure.ycsb.RedisClient ;;
  basic) class=site.ycsb.BasicDB ;;
  *) sed -n '2,8p' "$0" >&2; exit 2 ;;
esac
shift 2
export LD_LIBRARY_PATH=$out${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}  # where java looks for the shim
# shellcheck disable=SC2086  # JAVA_OPTS is a list
exec java ${JAVA_OPTS:-} -cp "$out/classes:$out/lib/*" "${program[@]}" -db "$class" "$@"
