#!/usr/bin/env bash
# A tag of a struct, enum or union is defined in one file of the product. Prints those that two
# files define, exit 1. kernels/cuda is C++, where the types of a file are local to it.
set -u
cd "${1:-$(dirname "$0")/..}"
find api daemon worker client kernels -path kernels/cuda -prune -o \( -name '*.[ch]' -o -name '*.inc' \) -print | sort | xargs grep -HoE '^ *(static |const )*(struct|enum|union) [a-z_0-9]+ \{' |
    awk -F: '{ sub(/ \{$/, "", $2); sub(/.* /, "", $2); if ($2 in at && at[$2] != $1) { print "check-tags: \"" $2 "\" is defined in " at[$2] " and in " $1 ": give one of them another tag"; bad = 1 } at[$2] = $1 } END { exit bad }'
