#!/usr/bin/env bash
# Luck must not cost a day: with UNSTABLE=pass, which CI sets, a test that failed beside others is run
# twice more, alone. One that passes both is unstable: it is named in build/unstable, with what it
# printed when it failed. No luck: a sanitizer's report, a leak, a signal, bits, digests or ledgers that
# differ. (JSON that a failed check prints names right digests too and is not looked at.) An unstable
# test fails where tests/unstable.txt has it from the last 14 days: its cause is to be mended.
#   tests/again.sh NAME LOG COMMAND...   exit 0: unstable. LOG: of the failure
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
