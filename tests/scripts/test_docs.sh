#!/usr/bin/env bash
# The checks of documents and words find defects planted in a copy, and outputs that differ.
# tests: not kept: it copies the whole tree
set -u
cd "$(dirname "$0")/../.." || exit 2
T=$(mktemp -d) passed=0 failed=0
trap 'rm -rf "$T"' EXIT
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL $1"; }

# ---- outputs ------------------------------------------------------------------------------------
compare() { # NAME yes|no WANT GOT
    printf '%b' "$3" >"$T/want"; printf '%b' "$4" >"$T/got"
    if tests/scripts/docs.sh --matches "$T/want" "$T/got" >"$T/out"; then said=yes; else said=no; fi
    if [ "$said" = "$2" ]; then ok; else bad "outputs: $1"; fi
}
compare "the same" yes 'a b\nc\n' 'a  b \nc\n'
compare "another word" no 'a b\n' 'a c\n'
compare "another whole number" no 'rank 1\n' 'rank 2\n'
compare "another number with a point" yes 'loss 1.25, 3e-07\n' 'loss 17.5, 1.1e-9\n'
compare "a line more" no 'a\n' 'a\nb\n'
compare "a line less" no 'a\nb\n' 'a\n'
compare "any text" yes 'a ... c\n' 'a b b c\n'
compare "any lines between" yes 'a\n...\nd\n' 'a\nb\nc\nd\n'
compare "no line between" yes 'a\n...\nd\n' 'a\nd\n'
compare "lines before and after" yes '...\nb\nc\n...\n' 'a\nb\nb\nc\nd\n'
compare "the order" no '...\nc\n...\nb\n...\n' 'a\nb\nc\n'
compare "the last line" no '...\nb\n' 'a\nb\nc\n'
compare "characters of expressions" yes '{"a": [1]}? (x|y) $\n' '{"a": [1]}? (x|y) $\n'
compare "and their meaning" no 'a.c+\n' 'abcc\n'

# ---- words and links ----------------------------------------------------------------------------
tests/scripts/tree.sh | grep -v '^tests/golden/' | tar -cf - -T - 2>/dev/null | { mkdir "$T/tree" && tar -xf - -C "$T/tree"; }
finds() { # CHECK REGEX FILE TEXT: the text at the end of the file is found
    cp "$T/tree/$3" "$T/kept"
    printf '%b' "$4" >>"$T/tree/$3"
    if "$T/tree/tests/scripts/$1" >"$T/out" 2>&1; then bad "$1 passes with $3: $4"
    elif ! grep -qE -- "$2" "$T/out"; then bad "$1 does not say /$2/ with $3: $4"
    else ok; fi
    cp "$T/kept" "$T/tree/$3"
}
finds words.sh 'worker/README.md.*lies [b]ehind' worker/README.md 'A rank lies be''hind it.\n'
finds words.sh 'client/text.c' client/text.c '/* No''body reads this. */\n'
finds words.sh 'openapi.yaml' api/openapi.yaml '# starts an''ew\n'
finds words.sh 'deploy/deps' deploy/deps '# what is be''hind it\n'
finds words.sh 'tests/README.md' tests/README.md '`"be''hind"`: it waits be''hind another\n'
finds links.sh 'nowhere.md leads nowhere' README.md '[x](nowhere.md)\n'
finds links.sh 'no such heading' README.md '[x](api/JOBS.md#no-such-thing)\n'
finds links.sh 'daemon/no_such.c. does not exist' daemon/README.md 'See `daemon/no_such.c`.\n'
finds links.sh 'no file is called .no_such_noun.h' daemon/README.md 'See `no_such_noun.h`.\n'
finds links.sh 'make no-such-target is no target' tests/README.md 'Run `make no-such-target`.\n'
finds links.sh 'daemon/nosuch/, which is no folder' README.md '## The map\n```\ndaemon/ nosuch/\n```\n'
echo "test_docs: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
