#!/usr/bin/env bash
# opening.sh: the openings that it takes, and the sources that it refuses.
# tests: needs scripts/opening.sh scripts/tree.sh
set -u
cd "$(dirname "$0")/../.." || exit 2
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
passed=0 failed=0
opens() { # NAME FILE STATUS OUTPUT; the source on stdin
    local out rc
    cat >"$T/$2"
    out=$(tests/scripts/opening.sh "$T/$2"); rc=$?
    out=${out//$T\//}
    if [ "$rc" = "$3" ] && [ "$out" = "$4" ]; then passed=$((passed + 1)); echo "ok   $1"
    else failed=$((failed + 1)); printf 'FAIL %s: status %s, got\n%s\nwant %s\n%s\n' "$1" "$rc" "$out" "$3" "$4"; fi
}
none() { printf '%s: does not open with a line that says its work: /* %s: ... */\nopening: 1 found in 1 files' "$1" "$1"; }
good="opening: 0 found in 1 files"
opens "a line" a.c 0 "$good" <<<'/* a.c: adds two numbers with care. */'
opens "a line without a name" a.cc 0 "$good" <<<'/* Adds two numbers with care. */'
opens "two lines" a.cu 0 "$good" <<<$'/* a.cu: adds two\n * numbers with care. */\nint x;'
opens "after the list of sources" fuzz.c 0 "$good" <<<$'/* sources: api/a.c api/b.c\n *\n * Two numbers in any order. */'
opens "no comment" a.c 1 "$(none a.c)" <<<$'#include "a.h"\n/* Adds two numbers with care. */'
opens "a line that is empty" a.c 1 "$(none a.c)" <<<$'\n/* a.c: adds two numbers with care. */'
opens "the name alone" a.c 1 "$(none a.c)" <<<'/* a.c: the source. */'
opens "words that come after the comment" a.c 1 "$(none a.c)" <<<'/* a.c: numbers. */ int that = are + not * comments;'
opens "the list of sources alone" fuzz.c 1 "$(none fuzz.c)" <<<'/* sources: api/a.c api/b.c api/c.c api/d.c api/e.c */'
opens "another file's name" a.c 1 $'a.c: opens with the name of b.c\nopening: 1 found in 1 files' <<<'/* b.c: adds two numbers with care. */'
opens "a header" a.h 0 "opening: 0 found in 0 files" <<<'int x;'
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
