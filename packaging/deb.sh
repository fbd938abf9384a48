#!/usr/bin/env bash
# Builds the Debian packages of this tree, committed or not, and lists their sums:
#   build/packages/*.deb, build/packages/SHA256SUMS
# The version is that of include/perdure/version.h.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^#define PERDURE_VERSION "\(.*\)"$/\1/p' include/perdure/version.h)
out=$PWD/build/packages
mkdir -p build/packages

# nanobind is not in Debian 12. The module is for Debian's own Python, so pip runs in that.
if [ ! -e build/packages/venv/nanobind-is-there ]; then
  /usr/bin/python3 -m venv --clear build/packages/venv
  build/packages/venv/bin/pip install --quiet nanobind
  touch build/packages/venv/nanobind-is-there
fi

# debian/ must be at the root of the tree, and is full of results afterwards: a copy has it.
rm -rf build/packages/tree build/packages/perdure_* build/packages/*.deb
mkdir build/packages/tree
tar -c --exclude=./build --exclude=./dist --exclude=./.git --exclude=./.cache . |
  tar -x -C build/packages/tree
cp -r packaging/debian build/packages/tree/debian
when=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
maintainer=$(sed -n 's/^Maintainer: //p' packaging/debian/control)
cat >build/packages/tree/debian/changelog <<EOF
perdure ($version-1) unstable; urgency=medium

  * Packages of version $version. CHANGELOG.md lists its changes.

 -- $maintainer  $(date -u -R -d "@$when")
EOF

# debhelper gives the build an empty home, in which ccache would find nothing.
if command -v ccache >/dev/null; then
  CCACHE_DIR=$(ccache --get-config cache_dir)
  export CCACHE_DIR
fi
cd build/packages/tree
PERDURE_PYTHON3=$out/venv/bin/python DEB_BUILD_OPTIONS="noautodbgsym terse ${DEB_BUILD_OPTIONS:-}" \
  dpkg-buildpackage --build=binary --unsigned-changes --unsigned-buildinfo
cd ..
lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs perdure_*.changes
sha256sum ./*.deb >SHA256SUMS
cat SHA256SUMS
