#!/usr/bin/env bash
# Reads calls from the symbols of the built objects. Fails on a cycle of calls between folders of the
# product, or between files of daemon/ and its folders. check_layers.sh reads includes and misses a
# function that is declared without one; this finds it.
#
# The main.c of a program counts as a folder of its own: it joins folders that must not call each other.
#   tests/check_symbols.sh [ROOT [OBJECTS]]      (., build/release/obj): run it after `make all`
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2
objects=${2:-build/release/obj}
list=$(mktemp)
trap 'rm -f "$list"' EXIT
missing=
for c in $(find api daemon worker kernels client -name '*.c' 2>/dev/null | sort); do
    o=$objects/${c%.c}.o
    if [ -e "$o" ]; then echo "$o"
    else case $c in *_avx2.c | *_avx512.c | *_avx512bf16.c | *_amx.c | *_neon.c | *_neonbf16.c) ;; *) missing+=" $c" ;; esac
    fi
done >"$list"
[ -z "$missing" ] || { echo "check-symbols:$(echo "$missing" | cut -d ' ' -f 1-4) ... not built in $objects: run make all"; exit 1; }
xargs nm -A -P <"$list" | awk -v objects="$objects/" '
function folder(file) {
    if (file ~ /(^|\/)main$/) return file ".c"
    sub(/\/[^\/]*$/, "", file)
    return file
}
function edge(graph, a, b, how) {
    if (a == b) return
    if (!((graph, a, b) in why)) { n_out[graph, a]++; out[graph, a, n_out[graph, a]] = b }
    if (n_why[graph, a, b]++ < 3) why[graph, a, b] = why[graph, a, b] "\n      " how
    node[graph, a] = a; node[graph, b] = b
}
# Returns a report of the shortest path from a back to a; "": there is none.
function cycle(graph, a,    queue, head, tail, from, at, i, b, text) {
    queue[1] = a; tail = 1
    for (head = 1; head <= tail && !(a in from); head++) {
        at = queue[head]
        for (i = 1; i <= n_out[graph, at]; i++) {
            b = out[graph, at, i]
            if (b in from) continue
            from[b] = at
            queue[++tail] = b
        }
    }
    if (!(a in from)) return ""
    b = a
    do {
        at = from[b]
        text = "\n  " at " needs " b ":" why[graph, at, b] text
        b = at
    } while (b != a)
    return text
}
function check(graph, what,    key, a, text, best) {
    for (key in node) {
        split(key, part, SUBSEP)
        if (part[1] != graph) continue
        text = cycle(graph, part[2])
        if (text && (!best || length(text) < length(best))) best = text
    }
    if (!best) return
    print "check-symbols: a cycle between " what ":" best
    bad = 1
}
{
    file = $1; sub(/:$/, "", file); sub(/\.o$/, "", file); file = substr(file, length(objects) + 1)
    if ($3 == "U") used[file, $2] = 1
    else if ($3 ~ /^[TDBRVWC]$/) defined_in[$2] = file
}
END {
    for (key in used) {
        split(key, part, SUBSEP)
        if (!(part[2] in defined_in)) continue
        from = part[1]; to = defined_in[part[2]]
        how = part[2] " of " to ".c, in " from ".c"
        edge("folders", folder(from), folder(to), how)
        if (from ~ /^daemon\// && to ~ /^daemon\//) edge("files", from ".c", to ".c", how)
    }
    check("folders", "folders")
    check("files", "files of daemon")
    exit bad
}'
