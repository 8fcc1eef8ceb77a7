#!/usr/bin/env bash
# comments.awk and prose.awk: comments are told from code, and sentences are counted.
set -u
cd "$(dirname "$0")/../.." || exit 2
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
passed=0 failed=0
same() { # NAME GOT WANT
    if [ "$2" = "$3" ]; then passed=$((passed + 1)); echo "ok   $1"
    else failed=$((failed + 1)); printf 'FAIL %s: got\n%s\nwant\n%s\n' "$1" "$2" "$3"; fi
}
cat >"$T/a.c" <<'E2'
/* What a file is. Of a file
 * the rest; and more. */
int  x = '"'; // Those that follow are counted, the one that is last too
char *s = "a /* no comment */ b // none \" either"; /* short */
int y /* Adds what is left of it, as a sum. */ = 1 / 2;
E2
code() { awk -v want=code -f tests/scripts/comments.awk "$1"; }
same "code" "$(code "$T/a.c")" "file $T/a.c
int x = '\"';
char *s = \"a /* no comment */ b // none \\\" either\";
int y = 1 / 2;"
comments() { awk -v want=comments -f tests/scripts/comments.awk "$T/a.c"; }
same "comments" "$(comments | cut -f 2)" "What a file is. Of a file the rest; and more.
Those that follow are counted, the one that is last too
short
Adds what is left of it, as a sum."
same "sentences and phrases" "$(comments | awk -f tests/scripts/prose.awk | sed 's/^[^:]*: //')" "What a file is.
... what a ...
Of a file the rest;
Those that follow are counted, the one that is last too
... the one that ...
... what is ..."
sed 's#/\* short \*/##; s#^int  x#int x#' "$T/a.c" >"$T/b.c"
same "a comment moves nothing" "$(code "$T/b.c" | tail -n +2)" "$(code "$T/a.c" | tail -n +2)"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
