#!/usr/bin/env bash
# timed.sh NAME COMMAND...: runs a test, and appends its name and its seconds of processor time (user
# and system, children included) to the file $PERDURE_TEST_TIMES.
name=$1
shift
exec 3>&2
TIMEFORMAT="$name %U %S"
{ time "$@" 2>&3 3>&-; } 2>>"$PERDURE_TEST_TIMES"
