#!/usr/bin/env bash
# Checks the functions that an object of the product exports and no other object of it calls. Such a
# function must be called by its own file and named by a test, or be listed in tests/uncalled.txt with
# the reason. Fails on any other function, and on a row of the list that no function needs.
#   tests/check_callers.sh [ROOT [OBJECTS [LIST]]]   (., build/release/obj, tests/uncalled.txt):
#   run it after `make all`; check_symbols.sh names an object that is missing
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2
objects=${2:-build/release/obj}
list=${3:-tests/uncalled.txt}
find api daemon worker kernels client -name '*.c' 2>/dev/null | sort | while read -r c; do
    [ ! -e "$objects/${c%.c}.o" ] || echo "$objects/${c%.c}.o"
done | xargs -r nm -A -P | awk -v objects="$objects/" '
    $3 == "U" { used[$2] = 1 }
    $3 == "T" && $2 != "main" { file = $1; sub(/:$/, "", file); sub(/\.o$/, ".c", file); at[$2] = substr(file, length(objects) + 1) }
    END { for (name in at) if (!(name in used)) print name, at[name] }' | sort |
while read -r name file; do
    own=$(awk '{ text = text $0 "\n" }
        END { while (i = index(text, "/*")) { printf "%s", substr(text, 1, i - 1); text = substr(text, i + 2); text = substr(text, index(text, "*/") + 2) } print text }' "$file" | grep -ow "$name" | wc -l)
    grep -rqw --include='*.[ch]' "$name" tests 2>/dev/null && tested=1 || tested=0
    echo "$name $file $own $tested"
done | awk -v list="$list" '
function say(text) { print "check-callers: " text; bad = 1 }
BEGIN {
    while ((getline line < list) > 0) {
        sub(/#.*/, "", line)
        n = split(line, word, " ")
        if (n == 1) say(list ": " word[1] " has no reason")
        if (n) listed[word[1]] = 1
    }
}
# $3 counts the name in its file; the definition is one of them. $4 is 1 where a test names it.
$3 < 2 { needed[$1] = 1; if (!($1 in listed)) say($1 " of " $2 " has no caller in the product: remove it, move it to the tests, or list it in " list) }
$3 > 1 && !$4 { needed[$1] = 1; if (!($1 in listed)) say($1 " of " $2 " is called by its own file alone: make it static") }
END {
    for (name in listed) if (!(name in needed)) say(list ": " name " is called by another file, or is gone: remove the row")
    exit bad
}'
