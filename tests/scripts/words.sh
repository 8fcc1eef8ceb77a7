#!/usr/bin/env bash
# Refuses the phrases of tests/words.txt in every file of the tree.
#   tests/scripts/words.sh            the check
#   tests/scripts/words.sh PATH ...   of these files and folders only
# tests: not kept: it reads the whole tree
set -u
cd "$(dirname "$0")/../.." || exit 2
list=$(tests/scripts/tree.sh "$@" | grep -vxE 'tests/(words\.txt|data/.*)' | sort)
# Most files have none of the phrases: one search for all of them finds the files in which each is looked for. In
# the locale C, which has the widest notion of a word's end, it is quick.
any=$(grep -vE '^(#|$)' tests/words.txt | cut -f 1 | paste -sd '|')
# shellcheck disable=SC2086
held=$(LC_ALL=C grep -liIE -- "$any" $list /dev/null)
found=0 n=0
while IFS=$(printf '\t') read -r phrase use allowed; do
    case $phrase in '#'* | '') continue ;; esac
    n=$((n + 1))
    # shellcheck disable=SC2086
    if hits=$(grep -nHiIE -- "$phrase" $held /dev/null | sed -E "s~${allowed:-^\$}~...~Ig" |
        grep -iE -- ":[0-9]+:.*($phrase)"); then
        printf '%s\n' "$hits" | cut -c 1-180
        echo "     instead: $use"
        found=$((found + $(printf '%s\n' "$hits" | wc -l)))
    fi
done <tests/words.txt
echo "words: $n phrases, $found found in $(printf '%s\n' "$list" | wc -l) files"
[ "$found" -eq 0 ]
