#!/bin/sh
# Every fuzzer links with the sources that its first line names. Uses the release's objects, needs
# no clang and runs nothing. Run after `make`.
cd "$(dirname "$0")/../.." || exit 2
failed=0
for f in tests/fuzz/fuzz_*.c; do
    objects=
    for s in $(sed -n '1s|^/\* sources: ||p' "$f"); do
        case $s in
        build/release/gen/*) s=gen/${s##*/} ;;
        -*) objects="$objects $s"; continue ;;
        esac
        objects="$objects build/release/obj/${s%.c}.o"
    done
    # shellcheck disable=SC2086
    echo 'int main(void) { return 0; }' |
        ${CC:-cc} -std=c11 -D_GNU_SOURCE -I. -O0 -w -fPIE -pie -o /dev/null -xc - "$f" -xnone $objects -lm ||
        { echo "fuzz: $f does not link: mend its first line"; failed=1; }
done
exit $failed
