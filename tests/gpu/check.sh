#!/usr/bin/env bash
# make gpu-check: everything that can be proved on a machine with a GPU, in GPU_SECONDS (default 540)
# at most. It needs make, a C compiler and the CUDA Toolkit; NCCL, PyTorch and compute-sanitizer are
# used where they are. A part that fails does not keep the next from running; one that was not run
# says why. Ends with a table, also in tests/gpu/RESULTS.md, and status 1 when anything failed.
#
#   GPU_DEVICE=emulated   the same script on CUDA's kernels run by the host: nothing it prints is a
#                         GPU's result, and the table goes to build/gpu-emulated/RESULTS.md
#   GPU_PARTS="a b"       these parts alone (of: build kernels engine sanitizer lost memory bench torch
#                         in_time)
#   GPU_SHORT=1           the smallest shapes and one check of the kernels: that the script works
#   GPU_ARCHS="90a"       for other architectures than this machine's GPU has
#   JOBS=n                compilers at a time (default: the cores)
# A tree without git tells its commit in tests/gpu/COMMIT.
set -u
cd "$(dirname "$0")/../.." || exit 2
device=${GPU_DEVICE:-cuda}
limit=${GPU_SECONDS:-540} slower=1 # times as long as a GPU takes
[ "$device" = cuda ] || limit=${GPU_SECONDS:-3600} slower=6
jobs=${JOBS:-$(nproc)}
beside=$((jobs < 8 ? jobs : 8)) # programs on the device at a time, while nothing is measured
short=${GPU_SHORT:-}
kept=0 # seconds of the limit that are not for the part at work: see part_sanitizer
out=build/gpu-$device
build=build/release
case $device in
    cuda | emulated) ;;
    *) echo "GPU_DEVICE=$device: want cuda or emulated"; exit 2 ;;
esac
mkdir -p "$out" && rm -f "$out"/* || exit 2
export SEQD_TEST_DEVICE=$device

# ---- rows of the table -------------------------------------------------------------------------

left() { echo $((limit - SECONDS - kept)); }
row() { printf '%s|%s|%s|%s\n' "$@" >>"$out/rows"; printf '%-34s %-8s %5s s  %s\n' "$@"; }
not_run() { row "$1" "not run" 0 "$2"; }

# A log's last count; and what went wrong first.
counted() { grep -oE '[0-9]+ passed, [0-9]+ failed' "$1" | tail -n 1; }
wrong() {
    grep -m 1 -E '^FAIL |^  tests/|ERROR SUMMARY: [1-9]|[Ee]rror|not run|device "' "$1" | tr '|' '/' | cut -c 1-160
}

# run NAME SECONDS COMMAND...: a row. Its log is NAME.log.
# start: the same beside others; settle waits for all of them.
run() {
    local name=$1 most=$2 log rc start=$SECONDS
    shift 2
    most=$((most * slower))
    log=$out/$(echo "$name" | tr -c 'a-zA-Z0-9\n' '_').log
    [ "$(left)" -ge "$most" ] || most=$(left)
    if [ "$most" -lt 5 ]; then not_run "$name" "out of time"; return 1; fi
    timeout -k 5 "$most" "$@" >"$log" 2>&1
    rc=$?
    if [ $rc -eq 0 ] && [ "$(counted "$log")" != "0 passed, 0 failed" ]; then
        row "$name" passed $((SECONDS - start)) "$(counted "$log")"
        return 0
    fi
    [ $rc -ne 124 ] || echo "  stopped after $most s" >>"$log"
    row "$name" FAILED $((SECONDS - start)) "status $rc; $(counted "$log") $(wrong "$log")"
    grep -vE '^ok ' "$log" | tail -n 12 | sed 's/^/    /'
    return 1
}

start() {
    while [ "$(jobs -rp | wc -l)" -ge "$beside" ]; do wait -n; done
    run "$@" &
}
settle() { wait; }

# ---- the machine -------------------------------------------------------------------------------

smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null; }

commit() {
    git -c safe.directory='*' describe --always --dirty 2>/dev/null && return
    cat tests/gpu/COMMIT 2>/dev/null || echo "unknown: no git, no tests/gpu/COMMIT"
}

# libnccl.so.2: the system's, or the folder of the one that PyTorch brought.
nccl() {
    ldconfig -p 2>/dev/null | grep -q 'libnccl\.so\.2' && echo "the system's" && return
    python3 -c 'import nvidia.nccl, os; print(os.path.join(list(nvidia.nccl.__path__)[0], "lib"))' 2>/dev/null
}

archs() {
    local cap
    cap=$(smi compute_cap | sort -u | tr -d '.')
    case $cap in 90) cap=90a ;; esac
    echo "${GPU_ARCHS:-${cap:-80 90a 100}}"
}

machine() {
    echo "| | |"
    echo "|---|---|"
    echo "| date | $(date -u '+%Y-%m-%d %H:%M UTC') |"
    echo "| commit | $(commit) |"
    if [ "$device" = emulated ]; then
        echo "| device | **emulated: CUDA's kernels run on the host; not a GPU's result** |"
        return
    fi
    echo "| device | $(smi name,memory.total | sort | uniq -c | sed 's/^ *//; s/ /x /' | tr '\n' ' ') |"
    echo "| driver | $(smi driver_version | sort -u | tr '\n' ' ') |"
    echo "| compiler | $("$(make -s print-nvcc)" --version 2>/dev/null | sed -n 's/.*release \([^,]*\).*/CUDA \1/p'), for $(archs) |"
    echo "| NCCL | ${nccl:-none} |"
    echo "| PyTorch | $(python3 -c 'import torch; print(torch.__version__)' 2>/dev/null || echo none) |"
}

# ---- parts -------------------------------------------------------------------------------------

# What an earlier build left is not tested in the place of what does not build now.
part_build() {
    local t
    for t in $(make -s print-gpu-tests); do rm -f "$build/tests/$t"; done
    rm -f "$build"/gpu/bench_* "$build/libkernels_$device.so"
    run build 300 make -s -k -j"$jobs" GPU_DEVICE="$device" CUDA_ARCHS="$(archs)" gpu-build
}

part_kernels() {
    if [ -n "$short" ]; then
        start "kernels against float64" 60 env SEQD_TEST_ONLY=rmsnorm "$build/tests/check_kernels"
        return
    fi
    start "kernels against float64" 200 "$build/tests/check_kernels"
}

# Programs whose cases run on SEQD_TEST_DEVICE: strategies, transports, families, whole jobs.
part_engine() {
    local t
    for t in $(make -s print-gpu-tests); do
        if [ "$t" = check_kernels ] || [ "$t" = test_device_lost ]; then continue
        elif [ -n "$short" ]; then not_run "$t" "GPU_SHORT"
        else start "$t" 150 "$build/tests/$t"; fi
    done
}

# A rank killed, and one that stands still: the others leave. It holds the GPU's memory against what it
# was, so nothing runs beside it.
part_lost() {
    settle
    if [ -n "$short" ]; then not_run "a rank is lost" "GPU_SHORT"
    else run "a rank is lost" 90 "$build/tests/test_device_lost"; fi
}

# What the proofs' programs had, killed ones among them, the device has again.
part_memory() {
    settle
    if [ "$device" != cuda ]; then not_run "memory is given back" "there is no GPU in it"
    elif [ -z "$used" ]; then not_run "memory is given back" "nvidia-smi does not say what is used"
    else run "memory is given back" 20 bash -c "n=\$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits |
        awk '{ s += \$1 } END { print s }'); echo \"$used MiB before, \$n after\"; [ \$n -le $((used + 64)) ]"
    fi
}

# sanitize TOOL CHECKS: of the kernels, those whose name has CHECKS in it; small shapes. What the API
# refuses is the checks' own doing: they ask for a launch that no device takes.
sanitize() {
    local name="$1${2:+, $2}" which
    which=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
    if [ "$device" != cuda ]; then not_run "$name" "there is no GPU in it"
    elif [ -z "$which" ]; then not_run "$name" "there is no compute-sanitizer"
    else
        start "$name" 110 env SEQD_TEST_SHAPES=small SEQD_TEST_ONLY="$2" "$which" --tool "$1" \
            --report-api-errors no --error-exitcode 9 "$build/tests/check_kernels"
    fi
}

# The longest part that proves least beyond the others: what comes behind it keeps its time.
part_sanitizer() {
    local checks kept=$((20 * slower + (limit > 400 ? 280 : 0)))
    sanitize memcheck ""
    for checks in gemm attn linear; do sanitize racecheck "$checks"; done
}

# bench NAME SECONDS PROGRAM [WHAT]: its figures are appended to bench.jsonl.
bench() {
    local memory small=
    memory=$(smi memory.free | head -n 1 | tr -dc 0-9)
    [ "$device" = cuda ] || small=1
    run "$1" $(($2 + 30)) env BENCH_SECONDS="$2" BENCH_SMALL=$small \
        BENCH_MEMORY=$((${memory:-0} * 1048576 * 95 / 100)) "$build/gpu/$3" "$out/bench.jsonl" ${4:+"$4"}
}

# What a process has of a GPU beside its plan (CUDA, its modules, cuBLASLt) must fit what seqd leaves
# for it: GPU_RESERVE of api/core/gpu.h, 1024 MiB.
sample() { while sleep 0.3; do smi memory.used | awk '{ s += $1 } END { print s }'; done >"$out/sampled"; }
beside_plan() {
    local most planned n
    most=$(sort -n "$out/sampled" | tail -n 1)
    planned=$(sed -n 's/.*"memory":\([0-9]*\).*/\1/p' "$out/bench.jsonl" | sort -n | tail -n 1)
    if [ -z "$most" ] || [ -z "$planned" ]; then not_run "memory beside the plan" "no sample, or no plan"; return; fi
    n=$((most - used - planned / 1048576))
    row "memory beside the plan" "$([ $n -le 1024 ] && echo passed || echo FAILED)" 0 "$n MiB, 1024 left for it"
}

part_bench() {
    local sampler
    settle
    bench "speed of operations" 50 bench_gpu
    sample & sampler=$!
    bench "speed of training" 70 bench_steps llama
    kill $sampler && wait $sampler 2>/dev/null
    beside_plan
    bench "speed of steps by graphs" 40 bench_steps graphs
}

# With what time is left.
part_in_time() {
    settle
    bench "speed of training in time" $(($(left) > 60 ? $(left) - 35 : 25)) bench_steps in_time
}

part_torch() {
    settle
    if [ "$device" != cuda ]; then not_run PyTorch "there is no GPU in it"
    elif ! python3 -c 'import torch' 2>/dev/null; then not_run PyTorch "there is no PyTorch"
    else
        run PyTorch 150 python3 tests/gpu/torch_bench.py --seconds $(($(left) < 150 ? $(left) - 40 : 110)) \
            "$out/torch.jsonl"
        [ -s "$out/bench.jsonl" ] && [ -s "$out/torch.jsonl" ] &&
            run "ratios to PyTorch" 20 python3 tests/gpu/ratios.py "$out/bench.jsonl" "$out/torch.jsonl" \
                "$out/ratios.md"
    fi
}

# ---- all of it ---------------------------------------------------------------------------------

report() {
    local log
    echo "# What \`make gpu-check\` found"
    echo
    machine
    echo
    echo "| part | result | seconds | |"
    echo "|---|---|---|---|"
    sed 's/|/ | /g; s/^/| /; s/$/ |/' "$out/rows"
    if [ -s "$out/ratios.md" ]; then printf '\n## Beside PyTorch, in the same run\n\n'; cat "$out/ratios.md"; fi
    [ "$device" = cuda ] || return 0 # how fast an emulation is says nothing
    for log in "$out"/speed_of_*.log; do
        [ -s "$log" ] || continue
        printf '\n## %s\n\n```\n' "$(basename "$log" .log | tr _ ' ')"
        grep -v '^{' "$log"
        echo '```'
    done
}

used=$(smi memory.used | awk '{ s += $1 } END { print s }') # MiB, of all GPUs
nccl=$([ "$device" != cuda ] || nccl)
case $nccl in /*) export LD_LIBRARY_PATH=$nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} ;; esac
: >"$out/rows"
for part in ${GPU_PARTS:-build kernels engine sanitizer lost memory bench torch in_time}; do
    if declare -F "part_$part" >/dev/null; then "part_$part"
    else row "$part" FAILED 0 "there is no such part"; fi
done
settle
failed=$(grep -c '|FAILED|' "$out/rows")
results=tests/gpu/RESULTS.md
[ "$device" = cuda ] || results=$out/RESULTS.md
report >"$out/report" && cp "$out/report" "$results"
echo
column -t -s '|' "$out/rows" 2>/dev/null || cat "$out/rows"
echo "$(grep -c '|passed|' "$out/rows") passed, $failed failed, $(grep -c '|not run|' "$out/rows") not run; $SECONDS s; $results"
[ "$failed" -eq 0 ]
