#!/usr/bin/env bash
# Refuses sentences of comments that have to be read twice (prose.awk): they begin with What, Of, Those,
# One that, Where ..., or say "what is", "the one that".
#   tests/scripts/prose.sh            the check
#   tests/scripts/prose.sh PATH ...   of these files and folders only
set -u
cd "$(dirname "$0")/../.." || exit 2
list=$(tests/scripts/tree.sh "$@" | grep -E '\.(c|h|inc|cu|cuh)$' | grep -vE 'unicode_tables|chars_table' | LC_ALL=C sort)
found=$(xargs awk -v want=comments -f tests/scripts/comments.awk <<<"$list" | awk -f tests/scripts/prose.awk)
[ -z "$found" ] || cut -c 1-180 <<<"$found"
echo "prose: $(grep -c . <<<"$found") found in $(wc -l <<<"$list") files"
[ -z "$found" ]
