#!/usr/bin/env bash
# comments.awk, paragraphs.awk and prose.awk: comments are told from code and paragraphs from the rest of
# documents, and sentences are counted.
# tests: needs scripts/comments.awk scripts/paragraphs.awk scripts/prose.awk scripts/errors.awk scripts/prose.sh scripts/tree.sh
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
cat >"$T/e.c" <<'E2'
int f(void)
{
    err_set(e, ERR_INVALID, "bad value; of %s", "no such x");
    err_field(e, ERR_INVALID, "not a field", "a %s is " /* a text; */
              "missing here", name);
    puts("bad luck");
    return c ? err_set(e, 1, "Not an \"x\"") : cli_fail(1, "no job is named such");
}
E2
same "errors" "$(code "$T/e.c" | sed 's/^file .*/file e.c/' | awk -f tests/scripts/errors.awk)" "e.c: an error that is no sentence: bad value; of %s
e.c: an error that is no sentence: no such x
e.c: an error that is no sentence: not a field
e.c: an error that is no sentence: missing here
e.c: an error that is no sentence: Not an \\\"x\\\""
cat >"$T/a.md" <<'E2'
# What it is

A paragraph of `what is` two lines. What the
second begins with [what a link](what/the/path.md) says.
- an entry of a list, of one
  sentence; one that waits
1. Those of another list
```
What is in code.
```
| a cell | what they are, in a cell |
<!-- Written by a program -->
| What a row | what is |
<!-- To here. -->
Where it ends.
E2
paragraphs() { awk -f tests/scripts/paragraphs.awk "$1" | cut -f 2; }
same "paragraphs" "$(paragraphs "$T/a.md")" "What it is
A paragraph of code two lines. What the second begins with what a link says.
an entry of a list, of one sentence; one that waits
Those of another list
a cell
what they are, in a cell
Where it ends."
same "sentences of a document" "$(awk -f tests/scripts/paragraphs.awk "$T/a.md" | awk -f tests/scripts/prose.awk | sed 's/^[^:]*: //')" "What the second begins with what a link says.
... what the ...
... what a ...
one that waits"
cat >"$T/openapi.yaml" <<'E2'
info:
  summary: A short one
  description: |
    What is literal.

    Another paragraph
    of it.
paths:
  /v1:
    get:
      description: >-
        One that is
        folded.
      parameters: [{name: a, description: "Quoted, \"of\" it: {x}.", schema: {description: plain in braces, type: string}}]
components:
    Spec:
      properties: {a: {description: "What C has."}}
    Other:
      description: plain, to the end
E2
same "texts of OpenAPI" "$(paragraphs "$T/openapi.yaml")" 'A short one
What is literal.
Another paragraph of it.
One that is folded.
Quoted, \"of\" it: {x}.
plain in braces
plain, to the end'
mkdir "$T/tree" && echo 'What it is, in a document that is in the tree.' >"$T/tree/b.md"
same "the check reads documents" "$(tests/scripts/prose.sh "$T/tree" | tail -n 1)" "prose: 2 found in 1 files"
sed 's#/\* short \*/##; s#^int  x#int x#' "$T/a.c" >"$T/b.c"
same "a comment moves nothing" "$(code "$T/b.c" | tail -n +2)" "$(code "$T/a.c" | tail -n +2)"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
