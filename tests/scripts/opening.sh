#!/usr/bin/env bash
# Refuses sources that do not open with a line that says their work: `/* name.c: ... */`. The name may be left
# out; the name of another file is refused. In tests/fuzz the list of sources stands first.
#   tests/scripts/opening.sh            the check
#   tests/scripts/opening.sh PATH ...   of these files and folders only
# tests: not kept: it reads the whole tree
set -u
cd "$(dirname "$0")/../.." || exit 2
list=$(tests/scripts/tree.sh "$@" | grep -E '\.(c|cc|cu|cuh)$' | LC_ALL=C sort)
# The first comment of each file, where the file begins with it; four words beside a name are a line.
found=$(tr '\n' '\0' <<<"$list" | xargs -0r awk '
    function judge(    name, word, n) {
        name = file; sub(/.*\//, "", name)
        n = split(text, word, " ")
        if (word[1] ~ /^[^ ]*\.(c|cc|cu|cuh):$/) {
            if (word[1] != name ":") print file ": opens with the name of " substr(word[1], 1, length(word[1]) - 1)
            n--
        }
        if (n < 4) print file ": does not open with a line that says its work: /* " name ": ... */"
    }
    FNR == 1 {
        if (file) judge()
        file = FILENAME; text = ""; inside = sub(/^\/\*/, "")
    }
    inside {
        if (i = index($0, "*/")) { inside = 0; $0 = substr($0, 1, i - 1) }
        sub(/^[ \t]*\*?[ \t]*/, "")
        if ($0 !~ /^sources: /) text = text " " $0
    }
    END { if (file) judge() }')
[ -z "$found" ] || cut -c 1-180 <<<"$found"
echo "opening: $(grep -c . <<<"$found") found in $(grep -c . <<<"$list") files"
[ -z "$found" ]
