#!/usr/bin/env bash
# Builds the conan package in build/conan, and runs its test_package. Needs no conan before.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -x build/conan/venv/bin/conan ]; then
  python3 -m venv build/conan/venv
  build/conan/venv/bin/pip install --quiet conan
fi
export CONAN_HOME=$PWD/build/conan/home
[ -e "$CONAN_HOME/profiles/default" ] || build/conan/venv/bin/conan profile detect
# perdure needs no other package. A tree that has not changed is not built again.
build/conan/venv/bin/conan create packaging/conan -s compiler.cppstd=23 --build=missing --no-remote
