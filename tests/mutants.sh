#!/usr/bin/env bash
# make mutants: builds with injected faults (api/core/mutant.h) and runs the tests that must catch them.
# Prints for each fault the tests that caught it and the tensors that verify names. Fails when no test
# catches a fault, or when verify does not see it. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/.."
programs=$(find tests -name 'test_*.c' | xargs grep -lE 'SEQD_MUTANTS' | sed -E 's#.*/(.*)\.c#\1#' | sort)
targets="$(printf 'build/mutants/tests/%s ' $programs) build/mutants/sim"
make -s -j"${JOBS:-$(nproc)}" MODE=mutants all $targets || { echo "FAIL mutants-build"; echo "0 passed, 1 failed"; exit 1; }
# The simulator finds the faults of the control plane, on one thread beside the test programs.
build/mutants/sim --mutants >build/mutants/tests-sim.log &
# shellcheck disable=SC2086
SEQD_TEST_MUTANTS=1 tests/run.sh mutants $programs
read -r passed _ failed _ < build/mutants/result
wait
tail -n 1 build/mutants/tests-sim.log
programs="$programs sim"
passed=${passed%,} failed=${failed%,}
lines=$(for t in $programs; do sed -nE "s/^mutant ([a-z_]+) (caught|missed) (.*)/\\1\t\\2\t$t: \\3/p" "build/mutants/tests-$t.log"; done)
proofs=$(for t in $programs; do sed -nE "s/^verify ([a-z_]+) (names|misses) (.*)/\1\t\2\t\3/p" "build/mutants/tests-$t.log"; done)
# Add the faults that a test reports as invisible to every proof (tests/lib/mutant.h).
for t in $programs; do proofs=$proofs$'\n'$(sed -nE "s/^verify ([a-z_]+) (blind) (.*)/\1\tnames\tnothing: \3/p" "build/mutants/tests-$t.log"); done
names=$(sed -nE 's/^ *\[MUTANT_[A-Z_]+\] = "([a-z_]+)",$/\1/p' tests/mutants/hook.c | grep -v '^none$')
# Prints the first three different texts of a fault, and the number of the others.
some() { awk -F'\t' -v m="$1" -v want="$2" '$1 == m && $2 == want && !seen[$3]++ { n++; if (n <= 3) { out = out (n > 1 ? "; " : "") $3 } } END { if (n > 3) out = out " and " n - 3 " more"; print out }'; }
first() { awk -F'\t' -v m="$1" -v want="$2" '$1 == m && $2 == want { print $3; exit }'; }
printf '\n%-20s %s\n' "injected fault" "caught by"
for m in $names; do
    how=$(printf '%s\n' "$lines" | some "$m" caught)
    proof=$(printf '%s\n' "$proofs" | some "$m" names)
    missed=$(printf '%s\n%s\n' "$lines" "$proofs" | sed 's/\tmisses\t/\tmissed\tverify: /' | first "$m" missed)
    if [ -n "$how$proof" ] && [ -n "$proof" ] && [ -z "$missed" ]; then passed=$((passed + 1))
    else failed=$((failed + 1)); how="${missed:+MISSED by $missed}${missed:-${how:-NOTHING tests it}}"; fi
    printf '%-20s %s\n%-20s verify names %s\n' "$m" "${how:-}" "" "${proof:-NOTHING}"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
