#!/usr/bin/env bash
# tests/sim.sh FAULTS [KINDS]: the simulator on all cores. Each of JOBS processes (default: the cores)
# injects its share of the faults, from seeds of its own; KINDS as SEQD_SIM_KINDS. Ends with
# "N passed, N failed".
set -u
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)} logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
[ -n "${2:-}" ] && export SEQD_SIM_KINDS=$2
for ((i = 0; i < jobs; i++)); do
    build/release/sim --faults $((($1 + jobs - 1) / jobs)) $((1 + i * 1000000)) >"$logs/$i" 2>&1 &
done
wait
cat "$logs"/*
sed -nE 's/^sim: ([0-9]+) passed, ([0-9]+) failed$/\1 \2/p' "$logs"/* |
    awk -v jobs="$jobs" '{ passed += $1; failed += $2 } END { print passed + 0 " passed, " failed + jobs - NR " failed"; exit failed + jobs > NR }'
