#!/usr/bin/env bash
# The man pages are made from the help texts, have every verb, and man finds nothing to warn of;
# make install puts them and the completions in their places; bash and fish complete by them.
# tests: not kept: it runs make
set -u
cd "$(dirname "$0")/../.." || exit 2
T=$(mktemp -d) passed=0 failed=0
trap 'rm -rf "$T"' EXIT
is() { # NAME COMMAND...
    local name=$1; shift
    if "$@" >"$T/out" 2>&1; then passed=$((passed + 1)); echo "ok   $name"
    else failed=$((failed + 1)); echo "FAIL $name"; head -n 5 "$T/out"; fi
}
B=${BUILD:-build/release}
is "make install" make -s install DESTDIR="$T/root" PREFIX=/usr
is "make install-bin" make -s install-bin DESTDIR="$T/bin-root" PREFIX=/opt/seqd
is "install-bin writes beneath PREFIX alone" [ "$(cd "$T/bin-root" && echo * && cd opt/seqd && echo *)" = "opt"$'\n'"bin share" ]
is "it has all programs" [ "$(ls "$T/bin-root/opt/seqd/bin" | xargs)" = "seqctl seqd seqgang seqrank seqw" ]
share=$T/root/usr/share
has_verbs() { # every verb of the list has its help in the page
    local v
    "$B/seqctl" help | sed -n '/^usage/,/^Options/s/^  \([a-z]*\) .*/\1/p' | while read -r v; do
        grep -qx "\.SS $v" "$share/man/man1/seqctl.1" || { echo "no $v"; exit 1; }
    done
}
is "seqctl.1 has every verb" has_verbs
for page in man1/seqctl.1 man8/seqd.8 man8/seqw.8; do
    is "$page is there" test -s "$share/man/$page"
    if command -v man >/dev/null; then
        lints() { man --warnings=w -E UTF-8 -l -Tutf8 "$share/man/$page" 2>"$T/warned" >/dev/null && cat "$T/warned" && [ ! -s "$T/warned" ]; }
        is "man warns of nothing in $page" lints
    else echo "left out: there is no man to lint $page"; fi
done
is "a page of roff that is wrong is found out" sh -c "printf '.TH X 1\n.nosuchmacro\n' >'$T/x.1'; ! command -v man >/dev/null || man --warnings=w -l -Tutf8 '$T/x.1' 2>&1 >/dev/null | grep -q nosuch"

# What a shell offers for a line; its last word is the one that is typed.
PATH=$PWD/$B:$PATH
in_bash() { # WORD...
    . "$share/bash-completion/completions/seqctl"
    COMP_WORDS=(seqctl "$@") COMP_CWORD=$#
    _seqctl
    echo "${COMPREPLY[*]}"
}
in_fish() { # descriptions, which fish adds itself, stand after a tab
    HOME=$T fish --no-config -c "source '$share/fish/vendor_completions.d/seqctl.fish'; complete -C 'seqctl $*'" | cut -f 1 | paste -sd ' '
}
offers() { # SHELL WANT WORD...
    local shell=$1 want=$2; shift 2
    "in_$shell" "$@" >"$T/offered"
    cat "$T/offered"
    [ "$(cat "$T/offered")" = "$want" ]
}
refuses() { ! "$B/seqctl" completion "$1" 2>"$T/refused" && grep -q 'bash, zsh or fish' "$T/refused"; }
export SEQD_URL=http://127.0.0.1:1
for shell in bash fish; do
    if ! command -v "$shell" >/dev/null; then
        echo "left out: there is no $shell, its completion was not tried"
        continue
    fi
    is "$shell: verbs" offers "$shell" "cancel" can
    is "$shell: options of a verb" offers "$shell" "--timeout" cancel --ti
    is "$shell: no other verb's options" offers "$shell" "" cancel --fie
    is "$shell: states" offers "$shell" "running" ls --state run
    is "$shell: formats" offers "$shell" "json jsonl" ls -o js
    is "$shell: kinds" offers "$shell" "train" init tr
    is "$shell: shells" offers "$shell" "fish" completion fi
    is "$shell: no ids without a server" offers "$shell" "" show ""
    is "$shell: files" offers "$shell" "deploy/man.sh" submit deploy/ma
done
is "another shell" refuses tcsh
echo "man: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
