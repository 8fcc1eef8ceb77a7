#!/usr/bin/env bash
# The kernels for arm64, cross-compiled, and their test against float64 on every row of instruction
# sets and its short shapes, by an emulator: it tells what they compute, not how fast.
#   tests/arm64.sh [JOBS]
set -u
cd "$(dirname "$0")/.."
cc=aarch64-linux-gnu-gcc test=build/arm64/tests/kernels_alone
emulator="qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu"
for program in "$cc" "${emulator%% *}"; do
    command -v "$program" >/dev/null && continue
    echo "left out: the kernels for arm64: there is no $program (deploy/deps --arm64)"
    echo "0 passed, 0 failed"
    exit 0
done
make -s -j"${1:-$(nproc)}" UNAME_M=aarch64 CC=$cc B=build/arm64 TLS=0 PCRE2=0 $test ||
    { echo "FAIL the kernels for arm64 do not compile"; echo "0 passed, 1 failed"; exit 1; }
# The portable row has been tested where it is fast.
rows="neon neonbf16" logs=$(mktemp -d) passed=0 failed=0
trap 'rm -rf "$logs"' EXIT
for row in $rows; do
    SEQD_TEST_SMALL=1 SEQD_TEST_SHAPES=small SEQD_TEST_ONLY=", $row," $emulator $test >"$logs/$row" 2>&1 &
done
wait
for row in $rows; do
    cat "$logs/$row"
    if grep -q "^ok .*, $row," "$logs/$row" && tail -n 1 "$logs/$row" | grep -q ' passed, 0 failed$'
    then passed=$((passed + 1)); echo "ok   $row"
    else failed=$((failed + 1)); echo "FAIL $row"; fi
done
echo "$passed passed, $failed failed"
