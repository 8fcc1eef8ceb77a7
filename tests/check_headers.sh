#!/usr/bin/env bash
# Every header compiles alone: it includes what it needs and nothing it does not own the right to.
# Those of kernels/cuda are C++ and are read as the emulation has them.
set -u
cd "$(dirname "$0")/.."
strict='-Wall -Wextra -Wno-unused-function -Wno-unused-parameter -Werror -fsyntax-only'
bad=0
for h in $(find api daemon worker kernels client tests -name '*.h' | sort); do
    case $h in
    kernels/cuda/*) alone="${CXX:-c++} -std=c++17 -DSEQD_EMU -I. -Wno-missing-field-initializers -xc++" ;;
    *) alone="${CC:-cc} ${CFLAGS:--std=c11 -D_GNU_SOURCE -I.} -xc" ;;
    esac
    printf '#include "%s"\nextern int nothing;\n' "$h" | $alone $strict - ||
        { echo "check-headers: $h does not compile alone"; bad=1; }
done
exit $bad
