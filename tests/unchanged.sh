#!/usr/bin/env bash
# tests/digests has a line for each of four parts of check-all that take many minutes. The line has the
# digest of the files that the part reads, without comments, as they were when the part last passed.
# check-all runs the part only if they have changed since. Each test of the part asan, the engine under
# sanitizers, has a line, too: asan/test_NAME.
#   tests/unchanged.sh PART...            prints the PARTs that passed on these files (FRESH=1: none).
#                                         Exit 0: all of them did
#   tests/unchanged.sh --passed PART...   writes the line of each PART. Fails when a line changes: commit it
set -u
cd "$(dirname "$0")/.."
# Prints the sources, and the headers of ours that they include.
reads() { # COMPILER... FILE...
    "$@" -MM -MG -I. | tr -s ' \\' '\n\n' | grep -E '^(kernels|api|tests)/'
}
kernels() { find kernels -type f ! -name README.md "$@"; reads "${CC:-cc}" -std=c11 -D_GNU_SOURCE tests/engine/check_kernels.c tests/lib/test.c; }
# Prints the files that a part depends on.
inputs() {
    case $1 in
    cuda) reads "${CXX:-c++}" -std=c++17 -x c++ kernels/cuda/*.cu ;;
    arm64) kernels ! -path 'kernels/cuda/*'; echo tests/arm64.sh ;;
    emulated) kernels ;;
    asan) find kernels worker api/core tests/lib/*.c tests/golden tests/fuzz/seeds/fuzz_config -type f ! -name README.md \
        ! -path 'tests/golden/clients/*' ! -path 'kernels/cuda/*' ! -path 'worker/agent/[!d]*' ! -path 'worker/agent/d[!e]*' ! -path 'worker/gang/*' ;; # of agent/, describe.c is tested
    asan/*) reads "${CC:-cc}" -std=c11 -D_GNU_SOURCE "tests/engine/${1#asan/}.c" | grep '^tests/' ;;
    esac | LC_ALL=C sort -u
}
flags() { if [ "$1" = cuda ]; then make -s print-nvccflags; else grep -E '^ *(override )?(CFLAGS|EMU_FLAGS|ISA_|WARN|HARDEN)' Makefile; fi; }
# Prints the digest of the files of a part and of its build flags. Comments do not count.
digest() {
    local files sources='\.(c|cc|h|inc|cu|cuh)$'
    files=$(inputs "$1")
    { grep -E "$sources" <<<"$files" | xargs awk -v want=code -f tests/scripts/comments.awk
      grep -vE "$sources" <<<"$files" | xargs -r sha256sum; flags "$1"; } | sha256sum | cut -d ' ' -f 1
}
kept() { awk -v part="$1" '$1 == part { print $2 }' tests/digests; }

write=
if [ "${1:-}" = --passed ]; then write=1; shift; fi
rc=0
for part; do
    case $part in cuda | arm64 | emulated | asan | asan/*) ;; *) echo "$part: want cuda, arm64, emulated, asan or asan/test_NAME" >&2; exit 2 ;; esac
    now=$(digest "$part")
    if [ -z "$write" ]; then
        if [ -z "${FRESH:-}" ] && [ "$now" = "$(kept "$part")" ]; then echo "$part"; else rc=1; fi
    elif [ "$now" != "$(kept "$part")" ]; then
        { grep -v "^$part " tests/digests; echo "$part $now"; } | LC_ALL=C sort >tests/digests.new && mv tests/digests.new tests/digests
        echo "the files of $part have changed since tests/digests: its line is written again, commit it"
        rc=1
    fi
done
exit $rc
