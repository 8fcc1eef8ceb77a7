#!/usr/bin/env bash
# make gpu-check: everything that can be proved and measured on a machine with a GPU, in three calls
# that fit 900 s together:
#
#   right   270 s: correctness: each primitive of Hopper's kernels alone, the cheapest checks, a
#           minute of speed, memory beside the plan, then all checks, several at a time
#   fast    350 s: speed, beside PyTorch's
#   why     150 s: what the hot kernels wait for (ncu); a few checks under sanitizers
#
#   GPU_CALL=right        this call alone (default: all three)
#   GPU_SECONDS=n         the limit of each call
#   GPU_PARTS="a b"       only these parts of the call, the names of part_* below
#   GPU_DEVICE=emulated   run CUDA's kernels on the host, to test this script: no figure is a GPU's
#   GPU_SHORT=1           the smallest shapes and one check of the kernels, to test this script
#   GPU_PACK=FILE         run what `make gpu-pack` packed, without make, a compiler or a network
#                         (default: build/pack/b.txz where it is there, or where there is no make)
#   GPU_OUT=DIR           copy results to DIR as they are made: a call that is cut off keeps them.
#                         A single call has at most 7 files there, three calls have 7 together.
#   GPU_ARCHS="90a"       build for these architectures and not for this machine's GPU
#   JOBS=n                compilers, or programs on the device, at a time (default: the cores)
#
# The results of a call are in build/gpu-DEVICE/CALL-TIME/: rows of the table, figures as JSON,
# logs. No later call changes them. tests/gpu/results.sh appends the table of each call to
# tests/gpu/RESULTS.md (emulated: build/gpu-emulated/RESULTS.md). After a part that fails the next
# one runs; a part that is not run, or that the end of the call cuts short, has a row with the
# reason. Where a kernel for 9.0 fails, the rest runs by the kernels for 8.0. Status 1 when anything
# failed.
set -u
cd "$(dirname "$0")/../.." || exit 2
device=${GPU_DEVICE:-cuda}
jobs=${JOBS:-$(nproc)}
beside=$((jobs < 8 ? jobs : 8)) # programs on the device at a time, while nothing is measured
short=${GPU_SHORT:-}
slower=1 # times as long as a GPU takes
wrong_isa= # a kernel for 9.0 failed
crashed=() # checks that a sanitizer repeats
folders=${SEQD_LIBRARY_PATH:-} # the caller's
pack=${GPU_PACK:-}
if [ -z "$pack" ] && [ "$device" = cuda ]; then pack=$(ls -t build/pack/b.txz build/pack/b.tgz 2>/dev/null | head -n 1); fi
[ -n "$pack" ] || command -v make >/dev/null || pack=build/pack/b.txz
case $device in
    cuda) build_limit=600 ;;
    emulated) build_limit=3600 slower=6 ;;
    *) echo "GPU_DEVICE=$device: want cuda or emulated"; exit 2 ;;
esac
case ${GPU_CALL:=right fast why} in
    right | fast | why | "right fast why") ;;
    *) echo "GPU_CALL=$GPU_CALL: want right, fast or why"; exit 2 ;;
esac
if [ -n "$pack" ]; then build=build/packed; else build=build/release; fi
export SEQD_TEST_DEVICE=$device PYTHONUNBUFFERED=1

# ---- rows of the table -------------------------------------------------------------------------

left() { echo $((limit - (SECONDS - begun))); }
row() { printf '%s|%s|%s|%s\n' "$@" >>"$out/rows"; printf '%-38s %-8s %5s s  %s\n' "$@"; keep; }
not_run() { row "$1" "not run" 0 "$2"; }
log_of() { echo "$out/$(echo "$1" | tr -c 'a-zA-Z0-9\n' '_').log"; }

# The last count of a log, and its first error.
counted() { grep -aoE '[0-9]+ passed, [0-9]+ failed' "$1" | tail -n 1; }
wrong() {
    grep -a -m 1 -E '^FAIL |^  tests/|ERROR SUMMARY: [1-9]|[Ee]rror|not run|device "' "$1" | tr '|' '/' | cut -c 1-160
}

# try NAME SECONDS COMMAND...: its status; its output is in NAME.log. 125: the call had too little
# time for it, with a row.
try() {
    local name=$1 own=$(($2 * slower)) most rc start=$SECONDS
    shift 2
    most=$(left)
    [ "$most" -lt "$own" ] || most=$own
    if [ "$most" -lt 5 ]; then not_run "$name" "out of time"; return 125; fi
    { timeout -k 5 "$most" "$@" >"$(log_of "$name")" 2>&1; } 2>/dev/null # the shell's own "Aborted"
    rc=$?
    if [ $rc -ne 124 ] && { [ $rc -ne 137 ] || [ $((SECONDS - start)) -lt "$most" ]; }; then return $rc; fi
    echo "  stopped after $most s" >>"$(log_of "$name")"
    [ "$most" -lt "$own" ] || return $rc
    not_run "$name" "cut after $most of $own s"
    return 125
}
# run NAME SECONDS COMMAND...: the same, with a row; 2 where the call had too little time for it.
# start: in the background; settle waits for all.
run() {
    local name=$1 log rc start=$SECONDS
    log=$(log_of "$name")
    try "$@"; rc=$?
    [ $rc -ne 125 ] || return 2
    if [ $rc -eq 0 ] && [ "$(counted "$log")" != "0 passed, 0 failed" ]; then
        row "$name" passed $((SECONDS - start)) "$(counted "$log")"
        return 0
    fi
    row "$name" FAILED $((SECONDS - start)) "status $rc; $(counted "$log") $(wrong "$log")"
    grep -avE '^ok ' "$log" | tail -n 12 | sed 's/^/    /'
    return 1
}
start() {
    while [ "$(jobs -rp | wc -l)" -ge "$beside" ]; do wait -n; done
    run "$@" &
}
settle() { wait; }

# The results so far, into GPU_OUT: few files, since the copy back may be limited to 8. The archive
# has all of them.
keep() {
    local files="machine rows bench.jsonl torch.jsonl ratios.md"
    [ -n "$back" ] || return 0
    [ "${GPU_CALL#* }" = "$GPU_CALL" ] || files=rows
    (
        flock 9
        for f in $files; do
            [ ! -s "$out/$f" ] || { cp "$out/$f" "$back/new.$f" && mv "$back/new.$f" "$back/$f"; }
        done
        tar -C "$out" -czf "$back/new.tgz" --exclude=lock . 2>/dev/null
        mv "$back/new.tgz" "$back/logs.tgz"
    ) 9>"$out/lock"
}
# Keeps also while a part runs: its log may tell why the machine was lost.
keeper() {
    while sleep 5 && kill -0 $$ 2>/dev/null; do keep; done &
    keeps=$!
    disown
}

# ---- the machine -------------------------------------------------------------------------------

smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null; }
line() { smi "$1" | sort | uniq -c | sed 's/^ *//; s/ /x /' | tr '\n' ' '; }

commit() {
    if [ -n "$pack" ]; then cat "$build/COMMIT"; return; fi
    git -c safe.directory='*' describe --always --dirty 2>/dev/null && return
    cat tests/gpu/COMMIT 2>/dev/null || echo "unknown: no git, no tests/gpu/COMMIT"
}

archs() {
    local cap
    cap=$(smi compute_cap | sort -u | tr -d '.')
    case $cap in 90) cap=90a ;; esac
    echo "${GPU_ARCHS:-${cap:-80 90a 100}}"
}

compiler() {
    if [ -n "$pack" ]; then echo "none: packed, $(cat "$build/BUILT")"; return; fi
    echo "$("$(make -s print-nvcc)" --version 2>/dev/null | sed -n 's/.*release \([^,]*\).*/CUDA \1/p'), for $(archs)"
}

machine() {
    echo "date|$(date -u '+%Y-%m-%d %H:%M UTC')"
    echo "commit|$(commit)"
    if [ "$device" = emulated ]; then
        echo "device|**emulated: CUDA's kernels run on the host; not a GPU's result**"
        return
    fi
    echo "device|$(line name,memory.total)"
    echo "driver|$(smi driver_version | sort -u | tr '\n' ' ')"
    echo "clocks|SM and memory now, at most: $(line clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem)"
    echo "power|$(line power.draw,power.limit)"
    echo "host|$(nproc) cores, $(awk '/MemTotal/ { printf "%d GiB", $2 / 1048576 }' /proc/meminfo), $(uname -r)"
    echo "compiler|$(compiler)"
    echo "PyTorch|$(python3 -c 'import torch; print(torch.__version__)' 2>/dev/null || echo none)"
}

# cuBLASLt and NCCL as a rank finds them. Where it finds none, the folders of Python's wheels are
# searched after those that the caller named.
part_libraries() {
    local name found text wheels
    if "$build/gpu/libraries" | grep -q '|not found|'; then
        wheels=$(python3 -c 'import glob, nvidia
print(":".join(d for p in nvidia.__path__ for d in sorted(glob.glob(p + "/*/lib"))))' 2>/dev/null)
        export SEQD_LIBRARY_PATH="$folders${folders:+:}$wheels"
    fi
    "$build/gpu/libraries" >"$out/libraries.log" 2>&1 || {
        row libraries FAILED 0 "$build/gpu/libraries does not start: $(head -n 1 "$out/libraries.log" | tr '|' '/' | cut -c 1-120)"
        return
    }
    while IFS='|' read -r name found text; do row "$name" "$found" 0 "$text"; done <"$out/libraries.log"
    [ -s "$out/libraries.log" ] || row libraries FAILED 0 "$build/gpu/libraries does not start"
    if [ "$device" = cuda ]; then
        { nvidia-smi; free -g; type make nvcc cc ncu compute-sanitizer; ldd "$build/seqrank"; } >"$out/machine.log" 2>&1
    fi
}

# ---- is it right -------------------------------------------------------------------------------

checks() { # NAME SECONDS CHECKS: of the kernels, those whose whole name has CHECKS in it
    run "$1" "$2" env SEQD_TEST_ONLY="$3" "$build/tests/check_kernels"
}

# Tells why nothing of 9.0 is to be run, if so.
not_hopper() {
    local cap
    cap=$(smi compute_cap | sort -u)
    if [ -n "${SEQD_CUDA_ISA:-}" ]; then echo "SEQD_CUDA_ISA=$SEQD_CUDA_ISA"
    elif [ "$device" = cuda ] && [ -n "$cap" ] && [ "$cap" != 9.0 ]; then echo "the GPU is of $cap"; fi
}

# Each primitive of Hopper's kernels alone, with a row for each. Then a wrong attention has a cause.
part_probe() {
    local log why verdict name text rc
    log=$(log_of probe) why=$(not_hopper)
    if [ -n "$why" ]; then not_run probe "$why"; return; fi
    try probe 60 "$build/gpu/probe"; rc=$?
    [ $rc -ne 125 ] || return
    grep -aE '^(ok|FAIL) ' "$log" >"$out/probe.verdicts"
    while read -r verdict name text; do
        if [ "$verdict" = ok ]; then row "probe: $name" passed 0 "$text"; continue; fi
        wrong_isa=1
        row "probe: ${name%:}" FAILED 0 "$text"
    done <"$out/probe.verdicts"
    [ -n "$(counted "$log")" ] || row probe FAILED 0 "status $rc; $(tail -n 1 "$log" | tr '|' '/' | cut -c 1-120)"
}

# A broken launch fails here, within seconds. Each check has 20 s.
part_first() {
    local name
    if [ -n "$short" ]; then checks "norms" 60 rmsnorm; return; fi
    checks "additions" 20 add
    checks "norms" 20 'rmsnorm_fwd, _bwd, fp32'
    hopper "attention of 9.0" 'attn_fwd, _finish, _delta, _bwd, bf16, sm90'
    hopper "linear attention of 9.0" '_fold, bf16, sm90'
    without_hopper
    checks "products, bf16" 20 'gemm, bf16, sm80'
    checks "products in any order" 20 'gemm in any order'
    checks "transfers" 20 'share to'
    for name in "${crashed[@]}"; do sanitize memcheck "$name"; done
    settle
}

# hopper NAME CHECKS: a check of a kernel for 9.0, which says nothing of the other kernel.
hopper() {
    local why rc
    why=$(not_hopper)
    if [ -n "$why" ]; then not_run "$1" "$why"; return; fi
    checks "$1" 20 "$2"; rc=$?
    [ $rc -eq 1 ] || return
    wrong_isa=1
    ! grep -aqiE 'illegal|misaligned' "$(log_of "$1")" || crashed+=("$2")
}

# Where a kernel or a primitive of 9.0 failed, crashed or wrong, the rest runs by 8.0's.
without_hopper() {
    [ -n "$wrong_isa" ] || return
    export SEQD_CUDA_ISA=sm80
    row "kernels of 9.0" "left out" 0 "SEQD_CUDA_ISA=sm80 from here on"
}

part_glance() { bench "speed of operations, a minute" 60 bench_gpu; }

# What a process takes of a GPU beside its plan (CUDA, its modules, cuBLASLt, graphs) must fit in
# what seqd reserves for it: GPU_RESERVE of api/core/gpu.h, 1024 MiB.
part_beside() {
    local most
    bench "training, for its memory" 30 bench_steps llama
    most=$(grep -a '"by":"cublasLt"' "$out/bench.jsonl" 2>/dev/null | sed -n 's/.*"beside_mib":\([0-9]*\),"graphs":[1-9].*/\1/p' |
        sort -n | tail -n 1)
    if [ "$device" != cuda ]; then not_run "memory beside the plan" "there is no GPU in it"
    elif [ -z "$most" ]; then not_run "memory beside the plan" "no training by cuBLASLt and graphs, or nvidia-smi says nothing"
    else
        row "memory beside the plan" "$([ "$most" -le 1024 ] && echo passed || echo FAILED)" 0 \
            "$most MiB with cuBLASLt and graphs, 1024 left for it"
    fi
}

# A pack lists its programs, so that a missing one is no shorter table.
device_tests() {
    if [ -s "$build/PROGRAMS" ]; then sed -n 's#^tests/\(test_device_\)#\1#p' "$build/PROGRAMS"
    else (cd "$build/tests" && ls -d test_device_*); fi
}

# All kernels, and the programs whose cases run on SEQD_TEST_DEVICE: strategies, transports,
# families, whole jobs. Several at a time.
part_all() {
    local t
    if [ -n "$short" ]; then not_run "all kernels and jobs" "GPU_SHORT"; return; fi
    start "kernels against float64" 170 "$build/tests/check_kernels"
    for t in $(device_tests | grep -vE '\.|_lost$|_nccl$'); do
        start "$t" 170 "$build/tests/$t"
    done
    settle
}

# A rank is killed, another is stopped: the others leave. The free memory of the GPU is compared
# with that before, so nothing else runs.
part_lost() {
    if [ -n "$short" ]; then not_run "a rank is lost" "GPU_SHORT"
    else run "a rank is lost" 90 "$build/tests/test_device_lost"; fi
}

# All programs of this call have ended, some of them killed: their memory is free again.
part_memory() {
    if [ "$device" != cuda ]; then not_run "memory is given back" "there is no GPU in it"
    elif [ -z "$used" ]; then not_run "memory is given back" "nvidia-smi does not say what is used"
    else run "memory is given back" 20 bash -c "n=\$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits |
        awk '{ s += \$1 } END { print s }'); echo \"$used MiB before, \$n after\"; [ \$n -le $((used + 64)) ]"
    fi
}

# ---- how fast ----------------------------------------------------------------------------------

# bench NAME SECONDS PROGRAM [WHAT]: its figures are appended to bench.jsonl.
bench() {
    local memory small=
    memory=$(smi memory.free | head -n 1 | tr -dc 0-9)
    [ "$device" = cuda ] && [ -z "$short" ] || small=1
    run "$1" $(($2 + 20)) env BENCH_SECONDS="$2" BENCH_SMALL=$small \
        BENCH_MEMORY=$((${memory:-0} * 1048576 * 95 / 100)) "$build/gpu/$3" "$out/bench.jsonl" ${4:+"$4"}
}

part_operations() { bench "speed of operations" 55 bench_gpu; }
part_training() { bench "speed of training" 75 bench_steps llama; }
part_graphs() { bench "speed of steps by graphs" 35 bench_steps graphs; }
part_in_time() { bench "speed of training in time" 110 bench_steps in_time; }

# In the time that is left; at most 140 s, for the parts after it.
part_torch() {
    local s=$(($(left) - 45))
    [ $s -le 140 ] || s=140
    if [ "$device" != cuda ]; then not_run PyTorch "there is no GPU in it"
    elif ! python3 -c 'import torch' 2>/dev/null; then not_run PyTorch "there is no PyTorch"
    elif [ $s -lt 20 ]; then not_run PyTorch "out of time"
    else
        run PyTorch $((s + 30)) python3 tests/gpu/torch_bench.py --seconds "$s" "$out/torch.jsonl"
        [ -s "$out/bench.jsonl" ] && [ -s "$out/torch.jsonl" ] &&
            run "ratios to PyTorch" 15 python3 tests/gpu/ratios.py "$out/bench.jsonl" "$out/torch.jsonl" \
                "$out/ratios.md"
    fi
}

# The clocks that the figures were measured at.
sample() { exec nvidia-smi --query-gpu=clocks.sm,power.draw,memory.used --format=csv,noheader,nounits -lms 500 >"$out/clocks.log" 2>/dev/null; }
part_clocks() {
    local seen
    [ -z "$sampler" ] || kill "$sampler" 2>/dev/null
    seen=$(cat "$out"/clocks.log 2>/dev/null | tr -d ' ' | awk -F, '$1 + 0 > 0 && $2 + 0 > 0 { n++; s += $1; p = $2 > p ? $2 : p;
        m = $3 > m ? $3 : m; low = !low || $1 < low ? $1 : low; high = $1 > high ? $1 : high }
        END { if (n) printf "SM %d to %d MHz, mean %d; at most %d W, %d MiB; %d samples", low, high, s / n, p, m, n }')
    if [ -n "$seen" ]; then row "clocks while measured" measured 0 "$seen"
    else not_run "clocks while measured" "nvidia-smi says nothing"; fi
}

# ---- why ---------------------------------------------------------------------------------------

tool() { command -v "$1" || ls -d /usr/local/cuda/bin/"$1" /opt/nvidia/nsight-compute/*/"$1" 2>/dev/null | tail -n 1; }

# kernel NAME WORDS [PROGRAM WHAT]: what the third launch of a kernel waits for, in the figures of
# bench_gpu whose key has WORDS in it.
kernel() {
    local ncu sections=() s
    ncu=$(tool ncu)
    if [ "$device" != cuda ]; then not_run "ncu $1" "there is no GPU in it"; return; fi
    if [ -z "$ncu" ]; then not_run "ncu $1" "there is no ncu"; return; fi
    for s in SpeedOfLight WarpStateStats MemoryWorkloadAnalysis_Tables ComputeWorkloadAnalysis Occupancy; do
        sections+=(--section "$s")
    done
    run "ncu $1" 40 env BENCH_SECONDS=20 BENCH_ONLY="$2" "$ncu" --clock-control none --kernel-name "regex:^$1" \
        --launch-skip 2 --launch-count 1 --kill yes "${sections[@]}" "$build/gpu/${3:-bench_gpu}" /dev/null ${4:+"$4"}
    grep -aE 'Duration|Throughput|Registers|Theoretical Occ|Achieved Occ|No Eligible|Local' "$(log_of "ncu $1")" 2>/dev/null |
        sed 's/^/    /' | head -n 14
}

part_kernels() {
    kernel hopper_attn_kernel "attn_fwd bf16"
    kernel hopper_dkv "attn_fwd bf16" # its figure is the pair's
    kernel hopper_dq "attn_fwd bf16"
    kernel hopper_linear_kernel linear_
    kernel gemm_half gemm
    kernel norm_fwd_kernel rmsnorm_fwd
    kernel norm_dx_kernel rmsnorm_bwd
    kernel sum_pieces rmsnorm_bwd
    kernel xent_kernel xent
    kernel rope_kernel "train llama 124M S 1024" bench_steps llama
}

# sanitize TOOL CHECKS: the checks of the kernels whose name has CHECKS in it, on small shapes.
# Errors of the API are not reported: some checks ask for a launch that no device takes. A run that
# does not end in time proves nothing.
sanitize() {
    local name="$1, $2" which
    which=$(tool compute-sanitizer)
    if [ "$device" != cuda ]; then not_run "$name" "there is no GPU in it"
    elif [ -z "$which" ]; then not_run "$name" "there is no compute-sanitizer"
    else sanitized "$name" "$which" "$1" "$2" & fi
}
sanitized() {
    local log rc start=$SECONDS
    log=$(log_of "$1")
    try "$1" 70 env -u SEQD_CUDA_ISA SEQD_TEST_SHAPES=small SEQD_TEST_ONLY="$4" "$2" --tool "$3" --report-api-errors no \
        --error-exitcode 9 "$build/tests/check_kernels"
    rc=$?
    case $rc in
        0) row "$1" passed $((SECONDS - start)) "$(counted "$log")" ;;
        124 | 137) not_run "$1" "stopped after $((SECONDS - start)) s" ;;
        125) ;;
        *) row "$1" FAILED $((SECONDS - start)) "status $rc; $(counted "$log") $(wrong "$log")" ;;
    esac
}

part_sanitizers() {
    sanitize memcheck 'bf16, sm90'
    sanitize racecheck '_fold, bf16, sm90'
    sanitize synccheck 'attn_fwd, _finish, _delta, _bwd, bf16, sm90'
    settle
}

# For tests: the machine is lost.
part_cut() { kill -KILL $$; }

# ---- the programs ------------------------------------------------------------------------------

# Programs of an earlier build are removed, so that none is tested when its build fails now.
build_all() {
    local t
    for t in $(make -s print-gpu-tests); do rm -f "$build/tests/$t"; done
    rm -f "$build"/gpu/* "$build/libkernels_$device.so"
    timeout -k 5 $build_limit make -s -k -j"$jobs" GPU_DEVICE="$device" CUDA_ARCHS="$(archs)" gpu-build
}

# Without the program xz, Python may have its library.
unpack() {
    tar -C "$build" -xf "$pack" 2>/dev/null ||
        python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$pack" "$build" 2>/dev/null
}

programs() {
    if [ -n "$pack" ]; then
        tests/gpu/travels.sh "$pack" || { echo "0 passed, 1 failed"; exit 1; }
        rm -rf "$build" && mkdir -p "$build" && unpack && return
        echo "$pack does not unpack: run \`make gpu-pack\` and bring it along"
    elif build_all >"build/gpu-$device/build.log" 2>&1; then return
    else
        echo "the build failed:"
        tail -n 20 "build/gpu-$device/build.log"
    fi
    echo "0 passed, 1 failed"
    exit 1
}

# ---- all of it ---------------------------------------------------------------------------------

parts_of() {
    case $1 in
        right) echo probe libraries first glance beside all lost memory ;;
        fast) echo libraries training in_time torch graphs operations clocks ;;
        why) echo libraries kernels sanitizers ;;
    esac
}
seconds_of() {
    if [ "$device" = emulated ]; then echo 3600; return; fi
    case $1 in right) echo 270 ;; fast) echo 350 ;; why) echo 150 ;; esac
}

call() {
    local part name n=1
    begun=$SECONDS limit=${GPU_SECONDS:-$(seconds_of "$1")}
    name=build/gpu-$device/$1-$(date -u +%Y%m%dT%H%M%S)
    out=$name
    mkdir -p "${name%/*}" || exit 2
    until mkdir "$out" 2>/dev/null; do # two calls within a second are two
        [ $((n += 1)) -le 9 ] || exit 2
        out=$name-$n
    done
    back=${GPU_OUT:+$GPU_OUT/${out##*/}}
    [ -z "$back" ] || mkdir -p "$back" || exit 2
    echo "== $1, at most $limit s"
    machine >"$out/machine"
    : >"$out/rows"
    sampler= keeps=
    [ -z "$back" ] || keeper
    if [ "$device" = cuda ] && [ "$1" = fast ]; then sample & sampler=$!; disown; fi
    for part in ${GPU_PARTS:-$(parts_of "$1")}; do
        if declare -F "part_$part" >/dev/null; then "part_$part"
        else row "$part" FAILED 0 "there is no such part"; fi
    done
    settle
    [ -z "$sampler$keeps" ] || kill $sampler $keeps 2>/dev/null
    keep
    tests/gpu/results.sh "$out"
    echo "$1: $(grep -c '|passed|' "$out/rows") passed, $(grep -c '|FAILED|' "$out/rows") failed," \
        "$(grep -c '|not run|' "$out/rows") not run; $((SECONDS - begun)) s"
    passed=$((passed + $(grep -c '|passed|' "$out/rows"))) failed=$((failed + $(grep -c '|FAILED|' "$out/rows")))
}

mkdir -p "build/gpu-$device" || exit 2
passed=0 failed=0
if [ -n "$pack" ] || [ -z "${GPU_PARTS:-}" ] || [ ! -x "$build/gpu/libraries" ]; then programs; fi
used=$(smi memory.used | awk '{ s += $1 } END { print s }') # MiB, of all GPUs
for c in $GPU_CALL; do call "$c"; done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
