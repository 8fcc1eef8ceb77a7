#!/usr/bin/env bash
# Rehearses the calls of check.sh without a GPU: a pack whose programs are one stub, and a stub of
# nvidia-smi. What a call does with time, failures and files must be right before minutes are lent.
# Each case runs in a tree of its own, and all cases at a time: seconds, of which most are waited.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
SUITE=gpu-rehearsal PASSED=0 FAILED=0
T=$(mktemp -d) || exit 2
trap 'rm -rf "$T"' EXIT
unset GPU_DEVICE GPU_SHORT GPU_PACK GPU_PARTS GPU_SECONDS GPU_CALL GPU_OUT GPU_ARCHS SEQD_CUDA_ISA MAKEFLAGS

# ---- stubs -------------------------------------------------------------------------------------

mkdir -p "$T"/{bin,make,tools,pack/gpu,pack/tests}
# Notes each run in $CALLS. $FAULT says what is wrong.
cat >"$T/stub" <<'STUB'
#!/usr/bin/env bash
name=${0##*/}
echo "$name [${SEQD_TEST_ONLY:-}] isa ${SEQD_CUDA_ISA:-best} memory ${BENCH_MEMORY:-}" >>"$CALLS"
case ${FAULT:-}:$name:${SEQD_TEST_ONLY:-} in
    crash:check_kernels:attn_fwd*) echo "CUDA error: an illegal memory access was encountered"; kill -SEGV $$ ;;
    wrong:check_kernels:attn_fwd*) echo "FAIL attn_fwd: 3 is not 4"; echo "3 passed, 1 failed"; exit 1 ;;
    linear:check_kernels:_fold*) echo "FAIL linear: 3 is not 4"; echo "3 passed, 1 failed"; exit 1 ;;
    probe:probe:*) printf 'ok   copy\nFAIL ring: no end\n1 passed, 1 failed\n'; exit 1 ;;
    slow:test_device_lost:*) exec sleep 60 ;;
esac
case $name in
    libraries) printf 'cuBLASLt|found|12\nNCCL|found|2.28\n' ;;
    probe) printf 'ok   copy\nok   ring\n2 passed, 0 failed\n' ;;
    bench_*) echo '{"key":"train a","by":"cublasLt","rate":1,"beside_mib":700,"graphs":3}' >>"$1"; echo "1 passed, 0 failed" ;;
    *) echo "4 passed, 0 failed" ;;
esac
STUB
cat >"$T/bin/nvidia-smi" <<'STUB'
#!/usr/bin/env bash
case $* in
    *-lms*) echo $$ >>"$CALLS.sampler"; while echo "1980, 400, 2000"; do sleep 0.2; done ;;
    *name,memory.total*) echo "Stub, $MEMORY MiB" ;;
    *memory.free*) echo "$MEMORY MiB" ;;
    *memory.used*) echo 0 ;;
    *compute_cap*) echo 9.0 ;;
    *) echo stub ;;
esac
STUB
cat >"$T/bin/python3" <<'STUB'
#!/usr/bin/env bash
case $* in
    *torch_bench.py*) echo '{"key":"train a","rate":1}' >"${*: -1}"; echo "torch $*" >>"$CALLS"; echo "1 passed, 0 failed" ;;
    *ratios.py*) echo "| a |" >"${*: -1}"; echo "1 passed, 0 failed" ;;
esac
STUB
printf '#!/bin/sh\necho "sanitized" >>"$CALLS"; echo "1 passed, 0 failed"\n' >"$T/bin/compute-sanitizer"
cp "$T/bin/compute-sanitizer" "$T/bin/ncu"
printf '#!/bin/sh\necho "make $*" >>"$CALLS"; exit 1\n' >"$T/make/make"
chmod +x "$T/stub" "$T"/bin/* "$T"/make/*
find /usr/bin /bin -maxdepth 1 ! -type d ! -name make ! -name nvcc -exec ln -sf -t "$T/tools" {} +

programs="seqrank seqgang gpu/bench_gpu gpu/bench_steps gpu/libraries gpu/probe tests/check_kernels tests/test_device_lost tests/test_device_some"
for f in $programs; do cp "$T/stub" "$T/pack/$f"; done
printf '%s\n' $programs >"$T/pack/PROGRAMS"
echo 0123456 >"$T/pack/COMMIT"
echo "by rehearse.sh" >"$T/pack/BUILT"

# rehearse CASE [VARIABLE=VALUE ...]: a call from $T/pack in $T/CASE, with its status, its output, the runs of its
# programs and the files that it brought back. LACKS: a program that the pack has not. PATHS=tools: without make.
rehearse() {
    local at=$T/$1 v LACKS='' PATHS=make
    shift
    for v in "$@"; do case $v in LACKS=* | PATHS=*) local "${v?}" ;; esac; done
    mkdir -p "$at"/{tests/gpu,build/pack,back}
    cp tests/gpu/{check,results,travels}.sh "$at/tests/gpu"
    tar -C "$T/pack" ${LACKS:+--exclude="./$LACKS"} -czf "$at/build/pack/b.txz" .
    env CALLS="$at/calls" MEMORY=81559 GPU_OUT="$at/back" JOBS=4 PATH="$T/bin:$T/$PATHS:$T/tools" "$@" \
        timeout 45 "$at/tests/gpu/check.sh" >"$at/out" 2>&1 </dev/null
    echo $? >"$at/status"
}
rows() { cat "$T/$1"/back/*/rows; }
status() { cat "$T/$1/status"; }
files() { find "$T/$1/back" -type f | wc -l; }


# ---- all cases at a time -----------------------------------------------------------------------

rehearse right GPU_CALL=right &
rehearse fast GPU_CALL=fast MEMORY=143771 &
rehearse both "GPU_CALL=right fast why" PATHS=tools &
rehearse cut GPU_CALL=right GPU_PARTS=lost GPU_SECONDS=9 FAULT=slow &
rehearse crash GPU_CALL=right "GPU_PARTS=first beside" FAULT=crash &
rehearse wrong GPU_CALL=right "GPU_PARTS=first beside" FAULT=wrong &
rehearse linear GPU_CALL=right "GPU_PARTS=first beside" FAULT=linear &
rehearse probe GPU_CALL=right "GPU_PARTS=probe first" FAULT=probe &
rehearse caller GPU_CALL=right "GPU_PARTS=probe first" SEQD_CUDA_ISA=sm80 &
rehearse no_libraries GPU_CALL=right GPU_PARTS=libraries LACKS=gpu/libraries &
rehearse no_program GPU_CALL=right GPU_PARTS=all LACKS=tests/test_device_some &
rehearse no_probe GPU_CALL=right GPU_PARTS=probe LACKS=gpu/probe &
rehearse unclocked GPU_CALL=fast "GPU_PARTS=libraries training" &
mkdir -p "$T/large" && truncate -s 61M "$T/large/data" && rehearse large GPU_CALL=right GPU_PARTS=libraries &
wait

same "all well, right: status 0" "$(status right)" 0
same "all well, fast: status 0" "$(status fast)" 0
same "all well, three calls in a command, without make: status 0" "$(status both)" 0
says "right has 270 s" '^== right, at most 270 s' cat "$T/right/out"
says "fast has 350 s" '^== fast, at most 350 s' cat "$T/fast/out"
same "nothing failed" "$(cat "$T"/{right,fast,both}/back/*/rows | grep -c FAILED)" 0
says "a GPU of 80 GB is measured by its memory" "^bench_gpu .* memory $((81559 * 1048576 * 95 / 100))$" cat "$T/right/calls"
says "so is one of 141 GB" "^bench_steps .* memory $((143771 * 1048576 * 95 / 100))$" cat "$T/fast/calls"
for call in right fast both unclocked; do check "$call: at most 8 files come back" test "$(files $call)" -le 8; done
says "their rows are the table of a call" 'rows, in tests/gpu/RESULTS.md' sh -c "cp tests/gpu/results.sh $T/both/tests/gpu && rm -f $T/both/tests/gpu/RESULTS.md && $T/both/tests/gpu/results.sh $T/both/back"
same "the pack is used although there is make" "$(grep -c '^make' "$T/right/calls")" 0
says "and named" '^commit\|0123456' cat "$T"/right/back/*/machine
says "sizes are said before the start" '^files of the tree .* MB, pack .* of 60 MB' head -n 1 "$T/right/out"
same "too much stops it" "$(status large) $(grep -c '^libraries' "$T/large/calls" 2>/dev/null)" "1 "
says "and says why" 'they are too much for a machine that is lent' cat "$T/large/out"

says "a part that the end of the call cuts" '^a rank is lost\|not run\|0\|cut after [5-9] of 90 s' rows cut
same "is no failure" "$(status cut)" 0

says "attention crashes" '^attention of 9.0\|FAILED' rows crash
says "linear attention is still checked" '^linear attention of 9.0\|passed' rows crash
says "the crash is repeated under memcheck" '^sanitized' cat "$T/crash/calls"
for case in crash wrong linear; do
    same "$case: status 1" "$(status $case)" 1
    says "$case: the rest runs by 8.0's way" '^check_kernels \[gemm, bf16, sm80\] isa sm80' cat "$T/$case/calls"
    says "$case: the next part, too" '^bench_steps .* isa sm80' cat "$T/$case/calls"
    says "$case: both kernels of 9.0 ran as 9.0's" '^check_kernels \[_fold, bf16, sm90\] isa best' cat "$T/$case/calls"
done
says "a primitive alone has a row" '^probe: copy\|passed' rows probe
says "a wrong one fails" '^probe: ring\|FAILED\|0\|no end' rows probe
says "and leaves the rest to 8.0's" '^check_kernels \[gemm, bf16, sm80\] isa sm80' cat "$T/probe/calls"
same "the probe runs first" "$(head -n 1 "$T/right/calls" | cut -d ' ' -f 1)" probe
says "8.0's by the caller: nothing of 9.0 runs" '^attention of 9.0\|not run\|0\|SEQD_CUDA_ISA=sm80' rows caller
same "which is no failure" "$(status caller)" 0

for case in no_libraries no_program no_probe; do
    same "$case: a missing program is a failure" "$(status $case) $(rows $case | grep -c '|FAILED|')" "1 1"
done
same "fast without clocks ends" "$(status unclocked)" 0
gone() { ! kill -0 "$(cat "$T/unclocked/calls.sampler")" 2>/dev/null; }
check "and its sampler with it" until_ok 20 gone

# PyTorch's rows that jobs are judged by are the first, whatever time is left.
if command -v python3 >/dev/null; then
    mkdir -p "$T/modules/torch/nn"
    printf 'bfloat16 = None\nfrom torch import nn\n' >"$T/modules/torch/__init__.py"
    echo 'class Module: pass' >"$T/modules/torch/nn/__init__.py"
    : >"$T/modules/torch/nn/functional.py"
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$T/modules" python3 tests/gpu/torch_bench.py --seconds 0 "$T/torch.jsonl" >/dev/null 2>&1
    same "PyTorch's first rows" "$(head -n 2 "$T/torch.jsonl" | sed 's/.*"key": "\([^"]*\)".*/\1/' | tr '\n' ';')" \
        "train llama 124M S 16384;train llama 1.2B S 16384;"
fi
lib_end
