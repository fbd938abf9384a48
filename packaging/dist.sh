#!/usr/bin/env bash
# Makes the source archive of the last commit, and builds what is in it without git:
#   dist/perdure-VERSION.tar.gz, dist/perdure-VERSION.tar.gz.sha256
# A commit gives the same bytes each time.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(git show HEAD:include/perdure/version.h |
          sed -n 's/^#define PERDURE_VERSION "\(.*\)"$/\1/p')
name=perdure-$version
git diff --quiet HEAD || echo "dist: the archive has the last commit, without later changes" >&2
mkdir -p dist
git -c tar.umask=0022 archive --format=tar --prefix="$name/" HEAD | gzip -n -9 >"dist/$name.tar.gz"
(cd dist && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")

rm -rf build/dist
mkdir -p build/dist/bin
printf '#!/bin/sh\necho "git is used: $*" >&2\nexit 1\n' >build/dist/bin/git
chmod +x build/dist/bin/git
tar -xzf "dist/$name.tar.gz" -C build/dist
PATH=$PWD/build/dist/bin:$PATH MAKEFLAGS='' make -C "build/dist/$name" build >build/dist/log 2>&1 ||
  { tail -30 build/dist/log >&2; exit 1; }
if grep "git is used" build/dist/log; then exit 1; fi
[ "$("build/dist/$name/build/release/perdure" --version)" = "perdure $version" ]
cat "dist/$name.tar.gz.sha256"
