#!/usr/bin/env bash
# Every header compiles alone: it includes what it needs and nothing it does not own the right to.
set -u
cd "$(dirname "$0")/.."
bad=0
for h in $(find api daemon worker kernels client tests -name '*.h' | sort); do
    printf '#include "%s"\nextern int nothing;\n' "$h" |
        ${CC:-cc} ${CFLAGS:--std=c11 -D_GNU_SOURCE -I.} -Wall -Wextra -Wno-unused-function -Wno-unused-parameter -Werror -fsyntax-only -xc - ||
        { echo "check-headers: $h does not compile alone"; bad=1; }
done
exit $bad
