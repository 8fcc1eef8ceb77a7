#!/bin/sh
# Runs every test program of build/MODE/tests and adds up their "N passed, N failed" lines.
# usage: tests/run.sh MODE [program-name ...]     exit 1 when anything failed
cd "$(dirname "$0")/.." || exit 2
mode=${1:-release}; shift
export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp ${TSAN_OPTIONS:-}"
passed=0; failed=0
list=${*:-$(cd "build/$mode/tests" && ls | grep -v '\.d$')}
for t in $list; do
    log=build/$mode/tests-$t.log
    timeout "${TEST_TIMEOUT:-900}" "build/$mode/tests/$t" >"$log" 2>&1; rc=$?
    line=$(grep -E '^[^ ]+: [0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
    p=$(echo "$line" | sed -E 's/.*: ([0-9]+) passed.*/\1/'); f=$(echo "$line" | sed -E 's/.*, ([0-9]+) failed/\1/')
    if [ -z "$line" ]; then p=0; f=1; line="$t: died (status $rc)"
    elif [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; line="$line, but exit status $rc"; fi
    passed=$((passed + p)); failed=$((failed + f))
    echo "[$mode] $line"
    [ "$f" -eq 0 ] || { grep -vE '^ok ' "$log" | tail -n 60; }
done
echo "$passed passed, $failed failed" > "build/$mode/result"
echo "[$mode] total: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
