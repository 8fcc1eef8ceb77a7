#!/usr/bin/env bash
# tests/digests has a line for each of four parts of check-all that take many minutes: the digest of
# the files that it reads, as they were when it last passed. It is run where they changed since.
#   tests/unchanged.sh PART            exit 0: PART has passed on these files. FRESH=1: never
#   tests/unchanged.sh --passed PART   writes the line of PART. Fails when it changes: commit it
set -u
cd "$(dirname "$0")/.."
# Sources, and the headers of ours that they include.
reads() { # COMPILER... FILE...
    "$@" -MM -MG -I. | tr -s ' \\' '\n\n' | grep -E '^(kernels|api|tests)/'
}
kernels() { find kernels -type f ! -name README.md "$@"; reads "${CC:-cc}" -std=c11 -D_GNU_SOURCE tests/engine/check_kernels.c tests/lib/test.c; }
# The files that a part depends on, and how its programs are built.
inputs() {
    case $1 in
    cuda) reads "${CXX:-c++}" -std=c++17 -x c++ kernels/cuda/*.cu ;;
    arm64) kernels ! -path 'kernels/cuda/*'; echo tests/arm64.sh ;;
    emulated) kernels ;;
    asan) find kernels worker api/core tests/engine tests/lib tests/golden -type f ! -name README.md ! -path 'kernels/cuda/*' ! -path 'worker/agent/*' ! -path 'worker/gang/*' ;;
    esac | LC_ALL=C sort -u
}
flags() { if [ "$1" = cuda ]; then make -s print-nvccflags; else grep -E '^ *(override )?(CFLAGS|EMU_FLAGS|ISA_|WARN|HARDEN)' Makefile; fi; }
digest() { { inputs "$1" | xargs sha256sum; flags "$1"; } | sha256sum | cut -d ' ' -f 1; }
kept() { sed -n "s/^$1 //p" tests/digests; }

part=${2:-${1:-}}
case $part in cuda | arm64 | emulated | asan) ;; *) echo "$part: want cuda, arm64, emulated or asan" >&2; exit 2 ;; esac
if [ "${1:-}" = --passed ]; then
    now=$(digest "$2")
    [ "$now" = "$(kept "$2")" ] && exit 0
    { grep -v "^$2 " tests/digests; echo "$2 $now"; } | LC_ALL=C sort >tests/digests.new && mv tests/digests.new tests/digests
    echo "the files of $2 have changed since tests/digests: its line is written again, commit it"
    exit 1
fi
[ -z "${FRESH:-}" ] && [ "$(digest "$1")" = "$(kept "$1")" ]
