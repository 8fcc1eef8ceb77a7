#!/usr/bin/env bash
# Checks that every header compiles alone. The build proves it for a header that some source includes
# first; this compiles the others. Headers of kernels/cuda are C++ and are compiled for the emulation.
set -u
cd "$(dirname "$0")/.."
alone() {
    local strict='-Wall -Wextra -Wno-unused-function -Wno-unused-parameter -Werror -fsyntax-only' how
    case $1 in
    kernels/cuda/*) how="${CXX:-c++} -std=c++17 -DSEQD_EMU -I. -Wno-missing-field-initializers -xc++" ;;
    *) how="${CC:-cc} ${CFLAGS:--std=c11 -D_GNU_SOURCE -I.} -xc" ;;
    esac
    printf '#include "%s"\nextern int nothing;\n' "$1" | $how $strict - ||
        { echo "check-headers: $1 does not compile alone"; return 1; }
}
export -f alone
proved() {
    find api daemon worker kernels client $(find tests -name 'test_*.c' -o -name 'check_*.c') -name '*.c' -o -name '*.cu' |
        xargs awk 'FNR == 1 { done = 0 }
                   !done && /^ *# *(include|define|if)/ { done = 1; if (/include *"/) { split($0, part, "\""); print part[2] } }'
}
comm -23 <(find api daemon worker kernels client tests -name '*.h' | sort) <(proved | sort -u) |
    xargs -P "${JOBS:-$(nproc)}" -n 1 bash -c 'alone "$0"'
