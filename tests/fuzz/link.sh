#!/bin/sh
# Every fuzzer compiles and links with what its first line names: no clang needed, nothing is run. Run
# after `make`, which generates what fuzz_wire reads.
cd "$(dirname "$0")/../.." || exit 2
failed=0
for f in tests/fuzz/fuzz_*.c; do
    sources=$(sed -n '1s|^/\* sources: ||p' "$f")
    # shellcheck disable=SC2086
    "${CC:-cc}" -std=c11 -D_GNU_SOURCE -I. -O0 -w -fPIC -shared -Wl,-z,defs -o /dev/null "$f" $sources -lm ||
        { echo "fuzz: $f does not link: mend its first line"; failed=1; }
done
exit $failed
