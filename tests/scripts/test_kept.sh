#!/usr/bin/env bash
# tests/kept.sh: a result is kept while nothing that the test depends on has changed, and no longer; of
# test programs (tests/run.sh) and of scripts (tests/script.sh).
# tests: not kept: it makes trees in build/
set -u
cd "$(dirname "$0")/../.."
passed=0 failed=0 root=$PWD
ok() { passed=$((passed + 1)); echo "ok   $1"; }
bad() { failed=$((failed + 1)); echo "FAIL $1"; }
check() { local name=$1; shift; if "$@" >>"$T/out" 2>&1; then ok "$name"; else bad "$name"; fi; }
refuse() { local name=$1; shift; if "$@" >>"$T/out" 2>&1; then bad "$name"; else ok "$name"; fi; }
end() { echo "$passed passed, $failed failed"; [ "$failed" -eq 0 ]; exit; }
T=$(mktemp -d); trap 'rm -rf "$T" "$A" "$B"' EXIT
# Trees of different length, in build/: no result is kept for a tree in /tmp.
A=$root/build/kept-a B=$root/build/kept-much-longer
export XDG_CACHE_HOME=$T/cache
unset FRESH UNSTABLE SEQD_TEST_SMALL SEQD_TEST_DEVICE

# Every line "tests: needs" names what there is, or what the Makefile builds.
for t in $(grep -l 'tests: needs ' tests/*/test_*.c tests/*/check_*.c) tests/scripts/*.sh; do
    case $t in *.c) t=$(basename "$t" .c) ;; esac
    tests/kept.sh needs release "$t" 2>&1 >/dev/null | sed -nE 's/.* needs ([^ ]+): it is not in .*/\1/p'
done | sort -u | while read -r word; do
    make -q "build/release/$word" >/dev/null 2>&1
    [ $? -lt 2 ] || echo "needs $word: there is none" >>"$T/needs"
done
if [ -s "$T/needs" ]; then cat "$T/needs"; bad "needs that exist"; else ok "needs that exist"; fi

cc -std=c11 -D_GNU_SOURCE -O1 -o "$T/confine" tests/confine.c
case $root/ in /tmp/*) echo "left out: the tree is in /tmp"; end ;; esac
"$T/confine" || { echo "left out: this kernel has no Landlock"; end; }

source='/* test_tiny.c: a test.
 * tests: needs golden/a */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static const char revision[64] __attribute__((section(".seqd.revision"), used)) = REVISION;
int main(void)
{
    char text[16] = "";
    FILE *f = fopen("tests/golden/a", "r"), *runs = fopen(getenv("SEQD_RUNS"), "a"), *b = fopen("tests/golden/b", "r");
    fputs("run\n", runs);
    if (strchr(getenv("TINY_FAIL"), (int)("0"[0] + ftell(runs) / 4))) { puts("tiny: 2 passed, 1 failed"); return 1; }
    if (!f) perror("tests/golden/a");
    if (b || f == NULL) { puts("tiny: 0 passed, 1 failed"); return 1; }
    fgets(text, sizeof text, f);
    printf("%.*s\n", (int)sizeof text, text);
    printf("tiny: %d passed, 0 failed\n", getenv("SEQD_NONE") ? 0 : 3);
    return 0;
}'
build() { # TREE REVISION: compiles its test with debug information
    mkdir -p "$1/build/release/tests" "$1/build/release/obj"
    (cd "$1" && cc -g -DREVISION="\"$2\"" -o build/release/tests/test_tiny tests/core/test_tiny.c)
}
make_tree() { # TREE REVISION
    rm -rf "$1"; mkdir -p "$1/tests/core" "$1/tests/golden" "$1/build/release"
    cp tests/run.sh tests/script.sh tests/kept.sh tests/again.sh tests/confine.c "$1/tests/"
    cp "$T/confine" "$1/build/release/confine"
    echo "$source" >"$1/tests/core/test_tiny.c"; echo text >"$1/tests/golden/a"; echo other >"$1/tests/golden/b"
    build "$1" "$2"
}
export SEQD_RUNS=$T/runs TINY_FAIL=none # the digits of TINY_FAIL are the runs that fail; no key has it
run() {
    : >"$SEQD_RUNS"
    (cd "$A" && tests/run.sh release test_tiny) >"$T/log" 2>&1 || { cat "$T/log" >>"$T/out"; return 1; }
}
runs() { run; [ -s "$SEQD_RUNS" ] && grep -qE ': [03] passed, 0 failed \([0-9]+ s\)$' "$T/log"; }
is_kept() { run && [ ! -s "$SEQD_RUNS" ] && grep -q '^\[release\] 1 of 1 results are kept' "$T/log" && grep -q 'total: 3 passed, 0 failed' "$T/log"; }
key() { (cd "$1" && tests/kept.sh key release test_tiny); }

mkdir -p "$T/broken"; printf '#!/bin/sh\nexit 1\n' >"$T/broken/objcopy"; chmod +x "$T/broken/objcopy"
make_tree "$A" 1234567; make_tree "$B" 1234567-dirty
check "it runs, and passes" runs
check "it is kept" is_kept
check "two trees and two revisions have one key" [ "$(key "$A")" = "$(key "$B")" ]
refuse "where a digest fails there is no key" env PATH="$T/broken:$PATH" bash -c "cd '$A' && tests/kept.sh key release test_tiny"
FRESH=1 check "FRESH=1 runs it" runs
FRESH=1 TINY_FAIL=1 refuse "it fails by luck" run
check "and is no longer kept" runs
check "until it passes" is_kept
UNSTABLE=pass FRESH=1 TINY_FAIL=13 refuse "what fails is run twice more, and each time it runs" run
check "of which no result is kept" runs
echo "2026-01-01 release/test_tiny a cause" >"$A/tests/unstable.txt"
check "one that is listed as unstable runs" runs
rm "$A/tests/unstable.txt"
check "and is kept when it is not" is_kept
SEQD_TEST_SMALL=1 check "its small form is another" runs
sed -i '3i /* A comment that moves every line. */' "$A/tests/core/test_tiny.c"; build "$A" 1234567
check "a comment moves nothing" is_kept
sed -i 's/: 3)/: 1 + 2 * (int)(text[0] > 0))/' "$A/tests/core/test_tiny.c"; build "$A" 1234567
check "other code runs" runs
check "and is kept" is_kept
echo changed >"$A/tests/golden/a"
check "a file that it needs runs it" runs
echo changed >"$A/tests/golden/b"
check "a file that it does not need leaves it" is_kept
echo '# more' >>"$A/tests/run.sh"
check "another runner runs it" runs
sed -i 's/^ \* tests: needs golden\/a/ * tests: needs golden/' "$A/tests/core/test_tiny.c"
refuse "a folder that is declared can be read" run # it fails where it can read golden/b
sed -i 's/ \* tests: needs golden/ * No needs:/' "$A/tests/core/test_tiny.c"
refuse "a file that is not declared is refused" run
check "and the line is named" grep -q 'could read no file of the tree' "$T/log"
make_tree "$A" 1; echo "left out: a part" >"$A/tests/golden/a"
check "what left something out runs" runs
check "and runs again" runs
export SEQD_NONE=1
echo 2 >"$A/tests/golden/a"; run
check "nothing passed: runs again" runs
unset SEQD_NONE
echo 3 >"$A/tests/golden/a"
check "one more result" runs
check "which is kept" is_kept
entry=$(ls -td "$XDG_CACHE_HOME/seqd/passed/"* | head -n 1)
check "its folder is for its owner alone" [ "$(stat -c %a "$XDG_CACHE_HOME/seqd/passed")" = 700 ]
mv "$entry" "$T/entry"; ln -s "$T/entry" "$entry"
check "a link is no result" runs
echo "$(($(date +%s) - 15 * 86400)) 3" >"$entry"
check "nor an old one" runs
echo "$(($(date +%s) + 600)) 3" >"$entry"
check "nor one of tomorrow" runs
touch -d '16 days ago' "$XDG_CACHE_HOME/seqd/passed/old"; run
check "an old one is removed" test ! -e "$XDG_CACHE_HOME/seqd/passed/old"
echo nonsense >"$entry"
check "nor a damaged one" runs
if [ "$(id -u)" = 0 ]; then
    check "it is kept again" is_kept
    chown 65534 "$entry"
    check "nor another owner's" runs
fi

# ---- scripts -------------------------------------------------------------------------------------
script='#!/bin/sh
# A script.
# tests: needs golden/a @tool
. tests/lib/lib.sh
echo run >>"$SEQD_RUNS"
cat tests/golden/a
if cat tests/golden/b; then echo "tiny: 0 passed, 1 failed"; exit 1; fi 2>/dev/null
echo "tiny: 4 passed, 0 failed"'
tiny=tests/scripts/tiny.sh
write() { echo "$1" >"$A/$tiny"; } # a text of the script
make_tree "$A" 1; mkdir "$A/tests/lib" "$A/tests/scripts"
seqd() { (cd "$A" && cc -g -DREVISION="\"$1\"" "-DCODE=$2" -x c -o build/release/seqd - <<<"static const char revision[64] __attribute__((section(\".seqd.revision\"), used)) = REVISION; int main(void) { return CODE; }"); }
write "$script"; chmod +x "$A/$tiny"; seqd 1 2
KEPT_SYSTEM=$(cd "$A" && tests/kept.sh system); export KEPT_SYSTEM
printf '# lib.sh: a library.\n# tests: needs seqd\ntest -x build/release/seqd || exit 1\n' >"$A/tests/lib/lib.sh"
mkdir "$T/bin"; printf '#!/bin/sh\n' >"$T/bin/tool"; chmod +x "$T/bin/tool"; PATH=$T/bin:$PATH
run() { # [ARG...]
    : >"$SEQD_RUNS"; : >"$T/of"
    (cd "$A" && SCRIPTS=$T/of tests/script.sh $tiny "$@") >"$T/log" 2>&1 || { cat "$T/log" >>"$T/out"; return 1; }
}
runs() { run "$@"; [ "$(cat "$SEQD_RUNS" "$T/of" | xargs)" = "run 0" ] && grep -qx 'tiny: [04] passed, 0 failed' "$T/log"; }
is_kept() { run "$@" && [ ! -s "$SEQD_RUNS" ] && grep -q '^tiny: 4 passed, 0 failed (kept from ' "$T/log" && [ "$(cat "$T/of")" -gt 0 ]; }
check "a script runs, and passes" runs
check "it is kept" is_kept
FRESH=1 check "FRESH=1 runs it" runs
ALONE=1 check "so does ALONE=1" runs
check "other arguments run it" runs all
check "and are kept" is_kept all
seqd 2 2
check "another revision of a program leaves it" is_kept
seqd 2 3
check "another program runs it" runs
check "and is kept" is_kept
echo changed >"$A/tests/golden/a"
check "a file that it needs runs it" runs
echo changed >"$A/tests/golden/b"
check "a file that it does not need leaves it" is_kept
echo '# More.' >>"$A/tests/lib/lib.sh"
check "another library of scripts runs it" runs
write "$script # more"
check "another text of it runs it" runs
touch -d '1 hour ago' "$T/bin/tool"
check "another program of the system runs it" runs
check "and is kept" is_kept
write "${script/golden\/a/}"
check "a file that is not declared is not read" eval 'run && grep -q "golden/a: Permission denied" "$T/log"'
sed -i 's/^cat tests.*/& || exit 1/' "$A/$tiny"
refuse "and fails it" run
check "and the line is named" grep -q 'could read no file of the tree' "$T/log"
for words in "left out: a part" "slurm: SKIPPED" "NOT RUN" "tiny: 0 passed, 0 failed"; do
    write "$script; echo '$words'"; run
    check "not kept: $words" runs
done
write "$script; echo 'ok   left out without blame'; echo 'tiny: 4 passed, 0 failed'"; run
check "kept: the name of a check" is_kept
write "$script; touch tests/golden/a"; run
check "not kept: a file that it needs is written meanwhile" runs
write "$script; exit 3"
refuse "a status that is not 0" run
refuse "is not kept" run
write "$(sed 's/needs .*/not kept: a reason/; /golden.b/d' <<<"$script")"
check "a script with the line \"tests: not kept: REASON\"" runs
check "is never kept" runs
write "$(sed '/golden.b/d' <<<"$script")"; run
check "one that needs a program is kept" is_kept
HOME=$T/bin check "but not where a program that it needs lies in the user's home" runs
[ "$failed" -eq 0 ] || tail -n 40 "$T/out"
end
