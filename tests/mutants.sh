#!/usr/bin/env bash
# make mutants: builds with injected faults (enum sp_mutant of worker/sp/sp.h) and runs the tests of
# them. Prints which fault was caught by what; a fault that nothing catches fails. Ends with
# "N passed, N failed".
set -u
cd "$(dirname "$0")/.."
programs=$(grep -lE 'SEQD_MUTANTS' tests/test_*.c | sed -E 's#tests/(.*)\.c#\1#')
targets=$(printf 'build/mutants/tests/%s ' $programs)
make -s -j"${JOBS:-$(nproc)}" MODE=mutants all $targets || { echo "FAIL mutants-build"; echo "0 passed, 1 failed"; exit 1; }
# shellcheck disable=SC2086
SEQD_TEST_MUTANTS=1 tests/run.sh mutants $programs
read -r passed _ failed _ < build/mutants/result
passed=${passed%,} failed=${failed%,}
lines=$(for t in $programs; do sed -nE "s/^mutant ([a-z_]+) (caught|missed) (.*)/\\1\t\\2\t$t: \\3/p" "build/mutants/tests-$t.log"; done)
names=$(sed -nE 's/^ *\[MUTANT_[A-Z_]+\] = "([a-z_]+)",$/\1/p' worker/sp/mutant.c | grep -v '^none$')
printf '\n%-20s %s\n' "injected fault" "caught by"
for m in $names; do
    how=$(printf '%s\n' "$lines" | awk -F'\t' -v m="$m" '$1 == m && $2 == "caught" && !seen[$3]++ { n++; if (n <= 3) { out = out (n > 1 ? "; " : "") $3 } } END { if (n > 3) out = out " and " n - 3 " more"; print out }')
    missed=$(printf '%s\n' "$lines" | awk -F'\t' -v m="$m" '$1 == m && $2 == "missed" { print $3; exit }')
    if [ -n "$how" ] && [ -z "$missed" ]; then passed=$((passed + 1))
    else failed=$((failed + 1)); how="${missed:+MISSED by $missed}${missed:-NOTHING tests it}"; fi
    printf '%-20s %s\n' "$m" "$how"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
