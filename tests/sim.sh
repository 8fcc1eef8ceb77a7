#!/usr/bin/env bash
# Runs the simulator on all cores. Ends with "N passed, N failed".
#   tests/sim.sh FAULTS [KINDS]   FAULTS: the number of all processes together; KINDS: as SEQD_SIM_KINDS
#   JOBS=n    processes (default: the cores). Each injects its share of the faults, from seeds of its own
#   FIRST=n   the first seed (default 1); `make soak` takes it from the date
# Without KINDS the seeds of tests/sim.cases, which broke a rule once, run before the others.
set -u
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)} first=${FIRST:-1} logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
if [ -n "${2:-}" ]; then
    export SEQD_SIM_KINDS=$2
else
    grep -v '^#' tests/sim.cases | while read -r seed step rule; do
        build/release/sim "$seed" $((step + 500)) >"$logs/case-$seed" 2>&1 || echo "seed $seed broke the rule $rule once, in step $step" >>"$logs/case-$seed"
    done
fi
for ((i = 0; i < jobs; i++)); do
    from=$((first + i * 1000000))
    { echo "seeds from $from"; build/release/sim --faults $((($1 + jobs - 1) / jobs)) "$from"; } >"$logs/$i" 2>&1 &
done
wait
cat "$logs"/[0-9]*
grep -LE '^sim: 1 passed, 0 failed$' "$logs"/case-* 2>/dev/null | xargs -r cat
cases=$(ls "$logs"/case-* 2>/dev/null | wc -l)
sed -nE 's/^sim: ([0-9]+) passed, ([0-9]+) failed$/\1 \2/p' "$logs"/* |
    awk -v jobs="$((jobs + cases))" '{ passed += $1; failed += $2 } END { print passed + 0 " passed, " failed + jobs - NR " failed"; exit failed + jobs > NR }'
