#!/usr/bin/env bash
# tests/again.sh: a test that fails by luck passes, any other fails. check.sh runs a script again that
# failed among others, as it ran, in the run that it belongs to.
# tests: needs again.sh check.sh script.sh kept.sh
set -u
cd "$(dirname "$0")/../.."
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
passed=0 failed=0
export UNSTABLE=pass UNSTABLE_LISTED=$T/listed UNSTABLE_FOUND=$T/found TODAY=2026-12-20
: >"$T/listed"
# The command fails when it is run for the n-th time.
printf '#!/bin/sh\necho x >>"%s/runs"; [ "$(wc -l <"%s/runs")" -ne "$1" ]\n' "$T" "$T" >"$T/cmd"
chmod +x "$T/cmd"
expect() { # NAME STATUS RUNS LOG N: what again.sh says of a command that fails in its N-th run
    local rc runs
    printf '%s\n' "$4" >"$T/log"; : >"$T/runs"
    tests/again.sh a-test "$T/log" "$T/cmd" "$5" >"$T/out" 2>&1; rc=$?
    runs=$(wc -l <"$T/runs")
    if [ "$rc" -eq "$2" ] && [ "$runs" -eq "$3" ]; then passed=$((passed + 1)); echo "ok   $1"
    else failed=$((failed + 1)); echo "FAIL $1: status $rc, $runs runs"; cat "$T/out"; fi
}
expect "it passes twice alone" 0 2 "FAIL a name" 9
grep -q 'unstable: a-test' "$T/found" || { failed=$((failed + 1)); echo "FAIL it is not named"; }
expect "it fails again at once" 1 1 "FAIL a name" 1
expect "it fails the second time" 1 2 "FAIL a name" 2
expect "a sanitizer's report" 1 0 "ERROR: AddressSanitizer: heap-use-after-free" 9
expect "undefined behaviour" 1 0 "x.c:3: runtime error: shift" 9
expect "a signal" 1 0 "test_x: died (status 139)" 9
expect "a test that took too long" 0 2 "test_x: died (status 124)" 9
expect "bits that differ" 1 0 "FAIL the same bits" 9
expect "bits in a check that passed" 0 2 "ok   the same bits" 9
expect "a digest in the events that a check prints" 0 2 $'FAIL it waits\n     {"seq": 8, "weights_sha256": "64"}' 9
echo "2026-12-07 a-test slow disk" >"$T/listed"
expect "unstable twice in 14 days" 1 0 "FAIL a name" 9
echo "2026-12-05 a-test slow disk" >"$T/listed"
expect "unstable long ago" 0 2 "FAIL a name" 9
echo "2026-12-19 b-test slow disk" >"$T/listed"
expect "another test" 0 2 "FAIL a name" 9
UNSTABLE='' expect "without UNSTABLE" 1 0 "FAIL a name" 9

# A script of check.sh that fails in its N-th run, and prints its variables.
printf '#!/bin/sh\necho x >>"%s/runs"\nif [ "$(wc -l <"%s/runs")" -ne "$1" ]; then f=0; else f=1; fi\necho "$BUILD, $JOBS" >>"%s/with"\necho "1 passed, $f failed"; exit $f\n' "$T" "$T" "$T" >"$T/script"
chmod +x "$T/script"
script=tests/scripts/$(realpath --relative-to=tests/scripts "$T")/script
export AGAIN=$T/again FAILURES=$T/failures SIDES=$T/sides SCRIPTS=$T/scripts
mkdir "$SIDES"
side() { # NAME RUNS RESULT [VARIABLE=VALUE...] N: of a script that fails first, and perhaps in its N-th run
    local name=$1 want=$2 result=$3 got runs; shift 3
    : >"$T/runs"; : >"$T/with"; : >"$AGAIN"; : >"$FAILURES"
    env "${@:1:$#-1}" tests/check.sh --side a-script: "which fails" count "$script 1" >"$T/out" 2>&1
    sed -i "s/ 1\$/ ${*: -1}/" "$AGAIN"
    got=$(tests/check.sh --again 2>&1 | tee -a "$T/out" | tail -n 1)
    runs=$(wc -l <"$T/runs")
    if [ "$got" = "$result" ] && [ "$runs" -eq "$want" ]; then passed=$((passed + 1)); echo "ok   $name"
    else failed=$((failed + 1)); echo "FAIL $name: $got, $runs runs"; cat "$T/out"; fi
}
side "a script among others that passes twice alone" 3 "2 passed, 0 failed" 9
side "one that fails again" 2 "1 passed, 1 failed" 2
side "one that fails the second time" 3 "1 passed, 1 failed" 3
side "one with variables" 3 "2 passed, 0 failed" BUILD=build/asan JOBS=2 9
if [ "$(sort -u "$T/with")" = "build/asan, 2" ]; then passed=$((passed + 1)); echo "ok   which it has again"
else failed=$((failed + 1)); echo "FAIL which it has again"; cat "$T/with"; fi
side "one with the second of them" 3 "2 passed, 0 failed" JOBS=2 9
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
