#!/usr/bin/env bash
# Checks that one file of the product alone defines each tag of a struct, enum or union. Prints a tag
# that two files define, and exits with 1. It leaves out kernels/cuda, which is C++: there a type is
# local to its file.
set -u
cd "${1:-$(dirname "$0")/..}"
find api daemon worker client kernels -path kernels/cuda -prune -o \( -name '*.[ch]' -o -name '*.inc' \) -print | sort | xargs grep -HoE '^ *(static |const )*(struct|enum|union) [a-z_0-9]+ \{' |
    awk -F: '{ sub(/ \{$/, "", $2); sub(/.* /, "", $2); if ($2 in at && at[$2] != $1) { print "check-tags: \"" $2 "\" is defined in " at[$2] " and in " $1 ": give one of them another tag"; bad = 1 } at[$2] = $1 } END { exit bad }'
