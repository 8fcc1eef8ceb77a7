#!/usr/bin/env bash
# Refuses sentences of comments and documents that have to be read twice (prose.awk): they begin with What, Of,
# Those, One that, Where ..., or say "what is", "the one that". The changelog stays as users were told it. Refuses
# texts of errors that begin as no sentence does (errors.awk).
#   tests/scripts/prose.sh            the check
#   tests/scripts/prose.sh PATH ...   of these files and folders only
# tests: not kept: it reads the whole tree
set -u
cd "$(dirname "$0")/../.." || exit 2
list=$(tests/scripts/tree.sh "$@" | grep -E '\.(c|h|inc|cu|cuh)$' | grep -vE 'unicode_tables|chars_table' | LC_ALL=C sort)
documents=$(tests/scripts/tree.sh "$@" | grep -E '\.md$|(^|/)openapi\.yaml$' | grep -vx .github/CHANGELOG.md | LC_ALL=C sort)
found=$({ [ -z "$list" ] || xargs awk -v want=comments -f tests/scripts/comments.awk <<<"$list"
    [ -z "$documents" ] || xargs awk -f tests/scripts/paragraphs.awk <<<"$documents"; } | awk -f tests/scripts/prose.awk
    [ -z "$list" ] || xargs awk -v want=code -f tests/scripts/comments.awk <<<"$list" | awk -f tests/scripts/errors.awk)
[ -z "$found" ] || cut -c 1-180 <<<"$found"
echo "prose: $(grep -c . <<<"$found") found in $(grep -c . <<<"$list"$'\n'"$documents") files"
[ -z "$found" ]
