#!/bin/sh
# check_names.sh finds names without a prefix of their file, and rows of prefixes without a name, in
# products of a few lines. Prints "names: N passed, N failed".
# tests: needs check_names.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
check=$(cd "$(dirname "$0")/.." && pwd)/check_names.sh
passed=0 failed=0
file() { # path, text: a source and its object
    mkdir -p "$dir/$(dirname "$1")" "$dir/obj/$(dirname "$1")"
    echo "$2" >"$dir/$1"
    ${CC:-cc} -w -c -o "$dir/obj/${1%.c}.o" "$dir/$1"
}
expect() { # name, rows of prefixes, what it must say, or "" for no fault
    printf '%b\n' "$2" >"$dir/prefixes"
    said=$("$check" "$dir" obj prefixes 2>&1)
    rc=$?
    case $rc:$said in
    0:*" names, 0 of them"*) [ -z "$3" ] ;;
    1:*"$3"*) [ -n "$3" ] ;;
    *) false ;;
    esac && passed=$((passed + 1)) && echo "ok   $1" && return
    failed=$((failed + 1))
    echo "FAIL $1: $said"
}
expect "no object" '' 'run make all'
file worker/sp/ring.c 'int ring_n; void ring(void) {} void rings_open(void) {} void sp_turn(void) {} static void negate(void) {}'
file daemon/http/views.c 'void view_job(void) {} void views(void) {}'
file daemon/main.c 'int main(void) { return 0; }'
expect "stems, plurals, a singular, a folder, a static function and main" '' ''
file worker/sp/ring.c 'void negate(void) {}'
expect "a bare word" '' 'negate of worker/sp/ring.c: begin it with ring_ or sp_'
file worker/sp/ring.c 'void ringing(void) {}'
expect "a word that only begins alike" '' 'ringing of worker/sp/ring.c'
file worker/sp/ring.c 'int worker_n;'
expect "data, by the folder above" '' 'worker_n of worker/sp/ring.c'
file worker/sp/ring.c 'void hop_begin(void) {}'
expect "a prefix of the file" 'hop : worker/sp/ring.c # a comment' ''
expect "a prefix of a pattern of files" 'hop : worker/sp/r*.c' ''
expect "a prefix of the folder" '# hops\n\nhop : worker/sp' ''
expect "a prefix of another folder" 'hop : worker' 'hop_begin of worker/sp/ring.c'
expect "a prefix of another file" 'hop : worker/sp/rings.c' 'hop_begin of worker/sp/ring.c'
expect "half of a word" 'ho : worker/sp' 'hop_begin of worker/sp/ring.c'
expect "a row that no name needs" 'hop : worker/sp\nview : daemon/http' 'view : daemon/http is a row that no name needs'
expect "a place that no name needs" 'hop : worker/sp daemon/http' 'hop : daemon/http is a row that no name needs'
expect "a row without a place" 'hop worker/sp' 'want PREFIX : PLACE...'
echo "names: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
