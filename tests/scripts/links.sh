#!/usr/bin/env bash
# Every relative link of the documents leads to a file, and to a heading where it has one; every
# path that they name in `backticks` exists: with a slash from the root or from the document's
# folder, a bare source or script anywhere. The folders of README.md's map exist.
# tests: not kept: it reads the whole tree
set -u
cd "$(dirname "$0")/../.." || exit 2
bad=0 n=0
say() { echo "links: $*"; bad=$((bad + 1)); }
files=$(tests/scripts/tree.sh)
# The anchors of a document, as GitHub makes them of its headings.
anchors() { awk '/^```/ { code = !code } !code && sub(/^#+ /, "")' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'; }
outside() { awk '/^```/ { code = !code; next } !code' "$1"; } # of code blocks

for doc in $(printf '%s\n' "$files" | grep '\.md$'); do
    folder=$(dirname "$doc")
    while read -r link; do
        n=$((n + 1))
        path=${link%%#*} anchor=
        case $link in *'#'*) anchor=${link#*#} ;; esac
        target=$doc
        [ -z "$path" ] || target=$folder/$path
        [ -e "$target" ] || { say "$doc: $link leads nowhere"; continue; }
        [ -z "$anchor" ] || anchors "$target" | grep -qxF "$anchor" || say "$doc: $link: $target has no such heading"
    done < <(outside "$doc" | grep -oE '\]\([^)]+\)' | sed -E 's/^\]\((.*)\)$/\1/' | grep -vE '^[a-z]+://')
    while read -r path; do
        n=$((n + 1))
        case $path in
            build/* | */build/*) continue ;; # made, not kept
            api/* | daemon/* | worker/* | kernels/* | client/* | tests/* | deploy/* | .github/* | .ci/*)
                compgen -G "$path" >/dev/null || compgen -G "$folder/$path" >/dev/null || say "$doc: \`$path\` does not exist" ;;
            */*) compgen -G "$folder/$path" >/dev/null || printf '%s\n' "$files" | grep -qF "/$path" || say "$doc: \`$path\` does not exist" ;;
            *) printf '%s\n' "$files" | grep -qE "(^|/)${path//./\\.}$" || say "$doc: no file is called \`$path\`" ;;
        esac
    done < <(outside "$doc" | grep -oE '`[^` ]+`' | tr -d '`' | grep -E '^[A-Za-z_.][A-Za-z0-9_.*/-]*(\.(c|h|cu|cc|inc|sh|sql|proto|md|py|yaml|service|txt)|/)$' |
        grep -vE '^(hf|hf_ema|lib/seqd|site-packages.*|[A-Z].*)/$|RESULTS\.md|REPORT\.md|\*\.inc$|^test_x|emu\*')
done

# `make TARGET`, in the text and in code.
while read -r target; do
    n=$((n + 1))
    grep -qE "^$target:" Makefile || say "make $target is no target of the Makefile"
done < <(printf '%s\n' "$files" | grep '\.md$' | xargs grep -ohE '(`|^)make [a-z][a-z-]*' | sed 's/.*make //' | sort -u)

base=
while read -r word; do
    n=$((n + 1))
    case $word in '|'*) base=${word#|}; [ -d "$base" ] || say "README.md: the map has $base, which is no folder" ;;
    *) [ -d "$base$word" ] || say "README.md: the map has $base$word, which is no folder" ;; esac
done < <(awk '/^## / { map = $0 == "## The map" } /^```/ { code = !code; next }
    map && code { first = /^[a-z]/; for (i = 1; i <= NF; i++) if ($i ~ /^[a-z_]+\/:?$/) { sub(/:$/, "", $i); print (i == 1 && first ? "|" : "") $i } }' README.md)
echo "links: $n looked at, $bad lead nowhere"
[ "$bad" -eq 0 ]
