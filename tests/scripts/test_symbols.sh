#!/bin/sh
# check_symbols.sh finds cycles, and nothing else, in products of a few lines.
# Prints "symbols: N passed, N failed".
# tests: needs check_symbols.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
check=$(cd "$(dirname "$0")/.." && pwd)/check_symbols.sh
passed=0 failed=0
file() { # path, text: a source and its object
    mkdir -p "$dir/$(dirname "$1")" "$dir/obj/$(dirname "$1")"
    echo "$2" >"$dir/$1"
    ${CC:-cc} -w -c -o "$dir/obj/${1%.c}.o" "$dir/$1"
}
expect() { # name, what it must say, or "" for nothing
    said=$("$check" "$dir" obj 2>&1)
    rc=$?
    case $rc:$said in
    "0:") [ -z "$2" ] ;;
    1:*"$2"*) [ -n "$2" ] ;;
    *) false ;;
    esac && passed=$((passed + 1)) && echo "ok   $1" && return
    failed=$((failed + 1))
    echo "FAIL $1: $said"
}
file api/core/base.c 'void base(void) {}'
file daemon/jobs.c 'void base(void); void jobs(void) { base(); }'
file daemon/http/view.c 'void jobs(void); void view(void) { jobs(); }'
file daemon/main.c 'void view(void); void jobs(void); int main(void) { view(); jobs(); return 0; }'
expect "a main.c joins folders" ''
file daemon/node.c 'void follow(void); void node(void) { follow(); }'
file daemon/http/follow.c 'void follow(void) {}'
expect "a cycle of folders" 'daemon needs daemon/http:
      follow of daemon/http/follow.c, in daemon/node.c'
file daemon/node.c 'void jobs(void); void node(void) { jobs(); }'
expect "which is mended" ''
file daemon/jobs.c 'void base(void); void node(void); void jobs(void) { base(); node(); }'
expect "a cycle of files in daemon" 'daemon/jobs.c needs daemon/node.c:
      node of daemon/node.c, in daemon/jobs.c'
file daemon/jobs.c 'void base(void); void pass(void); void jobs(void) { base(); pass(); }'
file daemon/pass.c 'void node(void); void pass(void) { node(); }'
expect "a cycle of three" 'daemon/pass.c needs daemon/node.c:'
file daemon/pass.c 'static void node(void) {} void pass(void) { node(); }'
expect "a static function of the same name" ''
rm "$dir/obj/daemon/pass.o"
expect "an object that is missing" 'daemon/pass.c ... not built in obj: run make all'
echo "symbols: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
