#!/usr/bin/env bash
# Checks the names that the product's objects export. Each begins with the stem of its file (or the
# plural or singular of the stem), with the name of its folder, or with a prefix that
# tests/prefixes.txt gives to its file or folder. Fails on any other name, and on a place in
# tests/prefixes.txt that no name needs.
#   tests/check_names.sh [ROOT [OBJECTS [PREFIXES]]]   (., build/release/obj, tests/prefixes.txt):
#   run it after `make all`
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2
objects=${2:-build/release/obj}
prefixes=${3:-tests/prefixes.txt}
find api daemon worker kernels client -name '*.c' 2>/dev/null | sort | while read -r c; do
    [ ! -e "$objects/${c%.c}.o" ] || echo "$objects/${c%.c}.o" # check_symbols.sh names a missing object
done | xargs -r nm -A -P -g --defined-only | awk -v objects="$objects/" -v prefixes="$prefixes" '
function say(text) { print "check-names: " text; bad = 1 }
function begins(name, word) { return name == word || index(name, word "_") == 1 }
function of_noun(name, noun) {
    return begins(name, noun) || begins(name, noun "s") || begins(name, noun "es") ||
           noun ~ /s$/ && begins(name, substr(noun, 1, length(noun) - 1))
}
# A place is a folder, or a pattern of .c files.
function lies_in(file, place) {
    if (place !~ /\.c$/) { sub(/\/[^\/]*$/, "", file); return file == place }
    gsub(/\./, "\\.", place); gsub(/\*/, "[^/]*", place)
    return file ~ ("^" place "$")
}
function listed(name, file,    r, i) {
    for (r = 1; r <= n_rows; r++) {
        if (!begins(name, prefix[r])) continue
        for (i = 1; i <= n_places[r]; i++)
            if (lies_in(file, place[r, i])) return used[r, i] = 1
    }
    return 0
}
BEGIN {
    while ((getline line < prefixes) > 0) {
        sub(/#.*/, "", line)
        n = split(line, word, " ")
        if (!n) continue
        if (word[2] != ":" || n < 3) { say(prefixes ": \"" line "\": want PREFIX : PLACE..."); continue }
        prefix[++n_rows] = word[1]
        for (i = 3; i <= n; i++) place[n_rows, ++n_places[n_rows]] = word[i]
    }
}
$3 ~ /^[TDBRVWC]$/ && $2 != "main" {
    file = $1; sub(/:$/, "", file); sub(/\.o$/, ".c", file); file = substr(file, length(objects) + 1)
    n = split(file, part, "/")
    noun = part[n]; sub(/\.c$/, "", noun)
    n_names++
    if (of_noun($2, noun) || begins($2, part[n - 1]) || listed($2, file)) next
    say($2 " of " file ": begin it with " noun "_ or " part[n - 1] "_, or give its prefix a row of " prefixes)
    n_bad++
}
END {
    for (r = 1; r <= n_rows; r++)
        for (i = 1; i <= n_places[r]; i++)
            if (!used[r, i]) say(prefixes ": " prefix[r] " : " place[r, i] " is a row that no name needs")
    if (!n_names) say("no object in " objects ": run make all")
    print "check-names: " n_names " names, " n_bad + 0 " of them without a prefix of their file"
    exit bad
}'
