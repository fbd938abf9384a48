#!/usr/bin/env bash
# Unpacks Debian's packages that the tests need for aarch64 into build/aarch64-root. Nothing of them
# is installed on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/build/aarch64-root
packages=(libgtest-dev librapidcheck-dev relacy-dev)
[ ! -e "$root/complete" ] || exit 0

# A package index of its own, with the machine's sources.
apt=$PWD/build/aarch64-apt
rm -rf build/aarch64-apt
mkdir -p "$root" "$apt"/{state/lists/partial,cache/archives/partial,debs}
touch "$apt/state/status"
options=(-q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$apt/state"
         -o Dir::State::status="$apt/state/status" -o Dir::Cache="$apt/cache"
         -o APT::Sandbox::User=root)
apt-get "${options[@]}" update
(cd "$apt/debs" && apt-get "${options[@]}" download "${packages[@]}")
for deb in "$apt"/debs/*.deb; do dpkg-deb -x "$deb" "$root"; done
touch "$root/complete"
