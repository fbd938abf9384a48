#!/usr/bin/env bash
# Builds the documentation site in build/site: the reference of the headers by Doxygen, the page of
# the report from its results, the pages by mkdocs. Fails on a warning of Doxygen or mkdocs.
set -euo pipefail
cd "$(dirname "$0")/../.."
rm -rf build/docs/api build/site
mkdir -p build/docs
doxygen scripts/docs/Doxyfile
# A member with data needs no comment if its name says what it is. All else does.
if grep -v 'warning: Member .* (variable) of .* is not documented\.$' build/docs/doxygen.log; then
  echo "docs: describe these in a comment, or correct it" >&2
  exit 1
fi
build/venv-report/bin/python scripts/report.py --page
# The notice is about the next version of mkdocs; ours is pinned. With --quiet, no warning counts.
if ! NO_MKDOCS_2_WARNING=1 build/venv-docs/bin/mkdocs build 2>build/docs/mkdocs.log; then
  cat build/docs/mkdocs.log >&2
  exit 1
fi
echo "docs: build/site/index.html"
