#!/bin/sh
# Runs every program of build/MODE/bench: tables of speed, and a line of JSON after each figure.
# usage: tests/bench/run.sh [program-name ...]      BUILD=build/release
cd "$(dirname "$0")/../.." || exit 2
build=${BUILD:-build/release}
rc=0
for b in ${*:-$(cd "$build/bench" && ls | grep -v '\.')}; do
    echo "== $b"
    "$build/bench/$b" || { echo "$b failed (status $?)"; rc=1; }
done
exit $rc
