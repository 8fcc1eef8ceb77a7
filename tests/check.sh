#!/usr/bin/env bash
# make check: builds, and runs every test that needs no GPU. Ends with "N passed, N failed".
#   JOBS=n        parallel compilation (default: the cores)
#   SKIP="e2e gpus kill store disk hang nodes asan mutants cuda"   leave parts out while working; CI leaves out nothing
set -u
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
passed=0 failed=0
start=$SECONDS
skip() { case " ${SKIP:-} " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }
note() { printf '\n== %s (%d s)\n' "$1" $((SECONDS - start)); }

# One check that is a command: passes or fails as a whole.
one() {
    local name=$1; shift
    if "$@"; then passed=$((passed + 1)); echo "ok   $name"
    else failed=$((failed + 1)); echo "FAIL $name"; fi
}
# A script or runner whose last "N passed, N failed" counts.
count() {
    local log line rc
    log=$(mktemp)
    "$@" 2>&1 | tee "$log"; rc=${PIPESTATUS[0]}
    line=$(grep -oE '[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    rm -f "$log"
    if [ -z "$line" ]; then failed=$((failed + 1)); echo "FAIL $* (printed no result, status $rc)"; return; fi
    passed=$((passed + ${line%% passed*}))
    line=${line#*, }; failed=$((failed + ${line%% failed*}))
    if [ "$rc" -ne 0 ] && [ "${line%% failed*}" -eq 0 ]; then failed=$((failed + 1)); echo "FAIL $* (status $rc)"; fi
}

note "build"
make -s -j"$jobs" all tests || { echo "FAIL build"; echo "0 passed, 1 failed"; exit 1; }
note "structure"
one check-layers make -s check-layers
one check-headers make -s check-headers
one nccl-header tests/nccl/check.sh
one fuzzers-link tests/fuzz/link.sh
no_libraries() { CC=false deploy/deps --headers 2>&1 | grep -q 'microhttpd.h.*Run: make deps'; }
one missing-libraries-say-what-to-do no_libraries
one benches-link make -s -j"$jobs" bench-build
note "unit tests"
count tests/run.sh release
note "the papers: every count against its formula"
one paper tests/paper/check.sh
packs=
if ! skip cuda; then
    note "CUDA: every kernel compiles for every architecture; no GPU is asked"
    if [ -n "$(make -s print-nvcc)" ]; then
        one cuda-compiles make -s -j"$jobs" cuda
        if command -v python3 >/dev/null
        then one cuda-hot-loops python3 tests/sass.py build/release/libkernels_cuda.so "$(make -s print-nvcc)"
        else echo "left out: cuda-hot-loops needs python3"; fi
        packs=1
    else echo "left out: there is no nvcc here"; fi
fi
note "gpu-check, on the emulated device: its scripts, not a GPU"
JOBS=$jobs PACK=$packs count tests/gpu/test_scripts.sh
if ! skip asan; then
    note "unit tests under ASan and UBSan"
    if make -s -j"$jobs" MODE=asan all tests; then
        SEQD_TEST_SMALL=1 count tests/run.sh asan
        if ! skip e2e; then note "end to end under ASan and UBSan"; BUILD=build/asan count tests/e2e.sh; fi
    else one asan-build false; fi
fi
if ! skip mutants; then
    note "mutants: every injected fault must be caught"
    JOBS=$jobs count tests/mutants.sh
fi
if ! skip e2e; then note "end to end"; count tests/e2e.sh; fi
if ! skip gpus; then note "jobs on GPUs, without a GPU"; count tests/gpus.sh; fi
if ! skip kill; then note "kill -9"; count tests/kill.sh; fi
note "a node that cannot start ranks"; count tests/badnode.sh
if ! skip store; then note "the disk of seqd: slow"; count tests/store.sh; fi
if ! skip disk; then note "disks: full, read-only, slow"; count tests/disk.sh; fi
if ! skip hang; then note "an agent that stands still"; count tests/hang.sh; fi
if ! skip nodes; then note "one gang over two nodes"; count tests/nodes.sh; fi
note "result"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
