#!/usr/bin/env bash
# timed.sh NAME COMMAND...: runs a test and appends its name and its processor seconds (user
# and system, children included) to the file $PERDURE_TEST_TIMES.
name=$1
shift
exec 3>&2
TIMEFORMAT="$name %U %S"
{ time "$@" 2>&3 3>&-; } 2>>"$PERDURE_TEST_TIMES"
