#!/usr/bin/env bash
# Counts sentences of comments that have to be read twice: they begin with What, Of, Those, One that,
# Where ..., or say "what is", "the one that". No file may have more than tests/prose.txt allows it, and
# a file that is not there may have none: the counts only fall.
#   tests/scripts/prose.sh              the check
#   tests/scripts/prose.sh --write      tests/prose.txt, where counts have fallen
#   tests/scripts/prose.sh --list PATH  the sentences of a file or folder
#   tests/scripts/prose.sh --folders    counts by folder, for 100 sentences and 1,000
set -u
cd "$(dirname "$0")/../.." || exit 2
export LC_ALL=C
sources() { tests/scripts/tree.sh "$@" | grep -E '\.(c|h|inc|cu|cuh)$' | grep -vE 'unicode_tables|chars_table' | sort; }
counts() { sources | xargs awk -v want=comments -f tests/scripts/comments.awk | awk -f tests/scripts/prose.awk | sort; }
case ${1:-} in
--list) shift; sources "$@" | xargs awk -v want=comments -f tests/scripts/comments.awk | awk -v list=1 -f tests/scripts/prose.awk; exit ;;
--folders)
    counts | awk '{ split($1, p, "/"); b[p[1]] += $2; w[p[1]] += $3; n[p[1]] += $4 }
        END { for (f in n) printf "%-8s %6d sentences, %4.1f of 100 begin so, %4.1f phrases in 1,000\n", f, n[f], 100 * b[f] / n[f], 1000 * w[f] / n[f] }' | sort
    exit ;;
esac
now=$(counts | awk '$2 + $3 { print $1, $2, $3 }')
more=$(awk 'NR == FNR { if ($1 !~ /^#/) { begins[$1] = $2; phrases[$1] = $3 } next }
    $2 > begins[$1] + 0 || $3 > phrases[$1] + 0 {
        printf "%s: %d sentences begin so, %d phrases; it may have %d and %d: ", $1, $2, $3, begins[$1], phrases[$1]
        print "tests/scripts/prose.sh --list " $1
    }' tests/prose.txt - <<<"$now")
if [ -n "$more" ]; then printf '%s\n' "$more"; fi
if [ "${1:-}" = --write ] && [ -z "$more" ]; then
    { grep '^#' tests/prose.txt; printf '%s\n' "$now"; } >tests/prose.txt.new && mv tests/prose.txt.new tests/prose.txt
fi
echo "prose: $(awk '{ b += $2; w += $3 } END { print b + 0 " sentences begin so, " w + 0 " phrases" }' <<<"$now")"
[ -z "$more" ]
