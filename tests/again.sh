#!/usr/bin/env bash
# Runs a failed test twice more, alone, if UNSTABLE=pass, which CI sets: a test may have failed by chance
# because others ran beside it. A test that passes both times is unstable: build/unstable gets its name
# and the end of its log. Some failures are never chance, and the test is not run again: the report of a
# sanitizer, a leak, a signal, and bits, digests or ledgers that differ. (Lines of JSON that a failed
# check prints are not searched: they name right digests too.) An unstable test fails all the same when
# tests/unstable.txt has it from the last 14 days: its cause must be mended.
#   tests/again.sh NAME LOG COMMAND...   LOG: the output of the failure. Exit 0: the test is unstable
set -u
cd "$(dirname "$0")/.."
name=$1 log=$2; shift 2
[ $# -gt 0 ] || { echo "$name: there is no command to run again"; exit 1; }
[ "${UNSTABLE:-}" = pass ] || exit 1
if grep -avE '^(ok | +\{)' "$log" | grep -qiE 'Sanitizer|runtime error:|leak|ledger|digest|sha256|bit by bit|same bits|Assertion|core dumped|died \(status 1(2[89]|[3-9][0-9])\)'; then
    echo "$name: not run again, its output is no luck's"; exit 1
fi
day=$(date -d "${TODAY:-today}" +%s)
while read -r date listed _; do
    if [ "$listed" = "$name" ] && [ $((day - $(date -d "$date" +%s))) -lt $((14 * 86400)) ]; then
        echo "$name: it was unstable on $date (tests/unstable.txt): mend its cause"; exit 1
    fi
done < <(grep -v '^#' "${UNSTABLE_LISTED:-tests/unstable.txt}")
for i in 1 2; do "$@" >"$log.again" 2>&1 || { echo "$name: failed again, alone"; tail -n 20 "$log.again"; exit 1; }; done
echo "$name: unstable, it failed beside others and passed twice alone"
{ echo "unstable: $name"; grep -avE '^ok ' "$log" | tail -n 12 | sed 's/^/    /'; } >>"${UNSTABLE_FOUND:-build/unstable}"
