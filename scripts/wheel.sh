#!/usr/bin/env bash
# Makes a wheel from a source package, names the systems that it runs on by what it links, and tries
# it in a new environment.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/build/venv/bin:$PATH"
rm -rf build/wheel/raw
python -m build --outdir build/wheel/raw .
mkdir -p dist
auditwheel repair --wheel-dir dist build/wheel/raw/*.whl
wheel=$(ls -t dist/perdure-*.whl | head -1)
auditwheel show "$wheel"
if [[ $wheel != *manylinux_2_34_x86_64* ]]; then
  echo "wheel: docs/python.md says manylinux_2_34; mend it, or what the wheel links" >&2
  exit 1
fi
rm -rf build/wheel/venv
python -m venv build/wheel/venv
build/wheel/venv/bin/pip install --quiet "$wheel"
cd build/wheel
venv/bin/python - <<'P'
import os, perdure, tempfile
with tempfile.TemporaryDirectory() as folder:
    with perdure.open(os.path.join(folder, "wheel.perdure")) as store:
        store["key"] = b"value"
        assert dict(store) == {b"key": b"value"}
print("installed and used: perdure", perdure.__version__)
P
# The command line that pip has installed.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
venv/bin/perdure create "$folder/cli.perdure"
venv/bin/perdure put "$folder/cli.perdure" key value
venv/bin/perdure check "$folder/cli.perdure" --deep
venv/bin/python -c 'import perdure, sys
with perdure.open(sys.argv[1]) as store:
    assert dict(store) == {b"key": b"value"}' "$folder/cli.perdure"
