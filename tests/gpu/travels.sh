#!/usr/bin/env bash
# Prints the bytes that travel to a machine that is lent: the files of the tree and a pack. Status 1
# where they are more than 60 MB together.
#
#   tests/gpu/travels.sh PACK
set -u
cd "$(dirname "$0")/../.." || exit 2
most=60000000
pack=${1:?want the pack}

# Files that git does not ignore; without git those outside of build.
files() {
    git -c safe.directory='*' ls-files -z --cached --others --exclude-standard 2>/dev/null ||
        find . \( -path ./build -o -path ./.git \) -prune -o -type f -print0
}
tree=$(files | xargs -0 stat -c %s -- 2>/dev/null | awk '{ n += $1 } END { printf "%.0f", n }')
packed=$(stat -c %s -- "$pack" 2>/dev/null) || packed=0 # the one who unpacks it says that there is none
awk -v t="$tree" -v p="$packed" -v m=$most 'BEGIN {
    printf "files of the tree %.1f MB, pack %.1f MB, together %.1f of %.0f MB\n", t / 1e6, p / 1e6, (t + p) / 1e6, m / 1e6
    if (t + p <= m) exit 0
    print "they are too much for a machine that is lent: remove files that git does not ignore, or pack less"
    exit 1
}'
