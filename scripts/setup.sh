#!/usr/bin/env bash
# Installs the Debian packages that are missing for one purpose:
#   setup.sh tools    the library, the command line and the demo
#   setup.sh tests    the same and the tests (the default)
#   setup.sh clang    the sanitizers and the fuzzers
#   setup.sh lint     the formatter and clang-tidy
#   setup.sh compare  the comparison with other libraries; scripts/venv.sh compare installs Boost
#   setup.sh go       the linearizability checker
#   setup.sh mpi      perdure::mpi
#   setup.sh c        the tests of the C library that need more than a compiler
#   setup.sh report   the pictures of a report; scripts/venv.sh report installs the rest
#   setup.sh docs     the documentation site and its tests; scripts/venv.sh docs installs the rest
#   setup.sh python   the Python package; scripts/venv.sh installs the rest
#   setup.sh others   tests of other projects; scripts/venv.sh others installs the rest
#   setup.sh aarch64  the cross build for aarch64; scripts/aarch64.sh unpacks the rest
#   setup.sh ycsb     the bindings of YCSB: Java, Maven, redis; bench/ycsb/build.sh fetches the rest
#   setup.sh packages the Debian packages, and a clean system that tries them
#   setup.sh power    the virtual machine of power-cuts and disk-errors; they fetch the kernel
#   setup.sh world    the file systems of the disks that fail
# If nothing is missing, it only asks dpkg.
set -euo pipefail

tools=(g++ cmake ninja-build pkg-config python3 libcli11-dev libfmt-dev nlohmann-json3-dev
       libpmem2-dev)
case "${1:-tests}" in
  tools) packages=("${tools[@]}") ;;
  tests) packages=("${tools[@]}" ccache libgtest-dev librapidcheck-dev relacy-dev libsqlite3-dev) ;;
  clang) packages=(clang-19 libclang-rt-19-dev binutils) ;;
  lint) packages=(clang-format-19 clang-tidy-19) ;;
  compare) packages=(librocksdb-dev libleveldb-dev liblmdb-dev libsqlite3-dev libpmemobj-dev
                     libabsl-dev libcuckoo-dev libtbb-dev libhiredis-dev redis-server
                     python3-venv) ;;
  go) command -v go >/dev/null && exit 0  # any version
      packages=(golang-go ca-certificates) ;;
  python) packages=("${tools[@]}" ccache python3-dev python3-venv) ;;
  others) packages=(python3 python3-venv)
          if [ "$(command -v python3)" = /usr/bin/python3 ]; then  # other ones have their tests
            version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
            packages+=("libpython$version-testsuite")
          fi ;;
  ycsb) packages=(gcc maven redis-server)
        command -v javac >/dev/null || packages+=(default-jdk-headless) ;;  # any version from 17 on
  mpi) packages=(libopenmpi-dev openmpi-bin) ;;
  c) packages=(gcc abigail-tools valgrind) ;;
  aarch64) packages=("${tools[@]}" ccache g++-aarch64-linux-gnu qemu-user-static) ;;
  report) packages=(python3 python3-venv) ;;
  docs) packages=(python3 python3-venv doxygen chromium fonts-dejavu-core) ;;
  packages) packages=("${tools[@]}" debhelper dh-python help2man lintian python3-dev python3-venv
                      debootstrap) ;;
  power) packages=("${tools[@]}" ccache qemu-system-x86 busybox-static cpio e2fsprogs
                   xfsprogs btrfs-progs) ;;
  world) packages=("${tools[@]}" ccache util-linux mount e2fsprogs xfsprogs btrfs-progs) ;;
  *) sed -n '2,20p' "$0" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this is not a Debian system; install the equivalents of: ${packages[*]}" >&2
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi

apt() {
  if [ "${#as_root[@]}" -gt 0 ] && ! command -v sudo >/dev/null; then
    echo "setup: not root and no sudo; as root, run: apt-get $*" >&2
    return 1
  fi
  ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -q "$@"
}

has_lists() { [ -n "$(find /var/lib/apt/lists -name '*_Packages*' -print -quit 2>/dev/null)" ]; }

missing=()
for package in "${packages[@]}"; do
  # shellcheck disable=SC2016  # dpkg-query's own format, not the shell's
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done

# The demo loads the package index, so an empty index is fetched even if no package is missing.
updated=no
if ! has_lists && apt update; then updated=yes; fi
[ "${#missing[@]}" -gt 0 ] || exit 0

echo "setup: installing ${missing[*]}"
install() { apt install -y --no-install-recommends "${missing[@]}"; }
if ! install; then
  [ "$updated" = no ] || exit 1
  apt update  # the lists were old: the server no longer has the versions that they name
  install
fi
