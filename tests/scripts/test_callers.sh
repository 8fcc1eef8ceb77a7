#!/bin/sh
# check_callers.sh finds functions without a caller, and nothing else, in products of a few lines.
# Prints "callers: N passed, N failed".
# tests: needs check_callers.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
check=$(cd "$(dirname "$0")/.." && pwd)/check_callers.sh
passed=0 failed=0
file() { # path, text: a source and its object
    mkdir -p "$dir/$(dirname "$1")" "$dir/obj/$(dirname "$1")"
    echo "$2" >"$dir/$1"
    ${CC:-cc} -w -O2 -c -o "$dir/obj/${1%.c}.o" "$dir/$1"
}
expect() { # name, what it must say, or "" for nothing
    said=$("$check" "$dir" obj list 2>&1)
    rc=$?
    case $rc:$said in
    "0:") [ -z "$2" ] ;;
    1:*"$2"*) [ -n "$2" ] ;;
    *) false ;;
    esac && passed=$((passed + 1)) && echo "ok   $1" && return
    failed=$((failed + 1))
    echo "FAIL $1: $said"
}
mkdir "$dir/tests"
: >"$dir/list"
file api/base.c 'void base(void) {}'
file client/main.c 'void base(void); int main(void) { base(); return 0; }'
expect "a function of another file" ''
file api/base.c 'void base(void) {} /* spare() */ void spare(void) {}'
expect "one without a caller" 'spare of api/base.c has no caller in the product'
echo 'void spare(void); int main(void) { spare(); return 0; }' >"$dir/tests/test_base.c"
expect "one of the tests" 'spare of api/base.c has no caller in the product'
echo 'spare  a test needs it' >"$dir/list"
expect "one that is listed" ''
echo 'spare' >"$dir/list"
expect "one without a reason" 'spare has no reason'
file api/base.c 'static void spare(void) {} void base(void) { spare(); }'
echo 'spare  a test needs it' >"$dir/list"
expect "a row that is not needed" 'spare is called by another file, or is gone'
: >"$dir/list"
file api/base.c 'void spare(void) {} void base(void) { spare(); }'
expect "one of its own file that a test calls" ''
rm "$dir/tests/test_base.c"
expect "one of its own file" 'spare of api/base.c is called by its own file alone'
echo "callers: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
