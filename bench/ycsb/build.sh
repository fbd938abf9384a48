#!/usr/bin/env bash
# Builds what YCSB's client needs to drive perdure and redis, in build/ycsb:
#   lib/                  the jars of pom.xml, which Maven fetches once
#   classes/              perdure.ycsb.PerdureClient and perdure.ycsb.RedisClient
#   libperdure_ycsb.so    the native methods of perdure.ycsb.Pool, on build/release/libperdure.so
set -euo pipefail
cd "$(dirname "$0")/../.."
out=build/ycsb
source=bench/ycsb
mkdir -p "$out/lib" "$out/classes"

verified() { (cd "$out/lib" && sha256sum --quiet --strict -c) <"$source/jars.sha256"; }
if ! verified >/dev/null 2>&1; then
  mvn -B -q -C -f "$source/pom.xml" dependency:copy-dependencies
  if ! verified; then
    echo "ycsb: a jar is not the one of $source/jars.sha256; delete $out/lib" >&2
    exit 1
  fi
fi
listed=$(awk '{print $2}' "$source/jars.sha256" | LC_ALL=C sort)
if [ "$listed" != "$(cd "$out/lib" && printf '%s\n' *.jar | LC_ALL=C sort)" ]; then
  echo "ycsb: $out/lib has other jars than $source/jars.sha256; delete it" >&2
  exit 1
fi

javac --release 17 -Xlint:all,-serial,-processing -Werror -cp "$out/lib/*" -d "$out/classes" \
      -h "$out/include" "$source"/perdure/ycsb/*.java

java_home=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")
"${CC:-cc}" -std=c99 -pedantic -Wall -Wextra -Wshadow -Wstrict-prototypes -Werror -O2 -fPIC \
  -shared -isystem "$java_home/include" -isystem "$java_home/include/linux" -I"$out/include" \
  -Iinclude "$source/shim.c" -o "$out/libperdure_ycsb.so" -Lbuild/release -lperdure \
  -Wl,-z,defs "-Wl,-rpath,\$ORIGIN/../release"
