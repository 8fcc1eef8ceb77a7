#!/usr/bin/env bash
# Jobs on GPUs through the public interface, where there is no GPU: seqw asks a library of the tests
# (tests/nvml/fake.c) instead of the driver's, and a job of the device "emulated" runs CUDA's
# kernels on the host.
#   BUILD=build/release   KEEP=1 keeps the state directory
# tests: needs libfake_nvml.so libkernels_emulated.so client/examples/train-gpu.json
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start gpus
cp "${BUILD:-build/release}"/lib{fake_nvml,kernels_emulated}.so "$BIN" || exit 1
export FAKE_NVML=$T/nvml
: >"$BIN/libkernels_cuda.so" # seqw looks for the file; a rank cannot load it

CONFIG='{"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 64, "vocab_size": 258}'
JOB="{\"kind\": \"train\", \"model\": {\"config\": $CONFIG}, \"data\": {\"train\": [{\"path\": \"text.txt\"}], \"seq_len\": 64}, \"train\": {\"steps\": 3}, \"seed\": 1}"
on() { # DEVICE, then words of submit
    local device=$1; shift
    printf '%s' "$JOB" | seqctl submit - --set "resources.device=$device" "$@"
}
plan_on() { local device=$1; shift; printf '%s' "$JOB" | seqctl plan - --set "resources.device=$device" "$@"; }
machine() { printf '%s\n' "$@" >"$FAKE_NVML.part" && mv "$FAKE_NVML.part" "$FAKE_NVML"; }
explains() { seqctl explain "$1" >"$T/why" && grep -q "$2" "$T/why" && cat "$T/why"; }
node_says() { seqctl nodes 2>/dev/null | grep -qE -- "$1"; }
make_text 20000 >"$T/data/text.txt"

# ---- a machine without a GPU --------------------------------------------------------------------
export SEQD_NVML=none
seqd_start || { lib_end; exit 1; }
refuse "no GPU: refused when it is submitted" 1 'resources\.device "cuda": no node has a GPU \(1 known: local\)' on cuda
says "but planned, with the memory of the host" 'and of the host' plan_on cuda
mkdir -p "$T/data/worker/rank" && make_text 20000 >"$T/data/worker/rank/main.c" # the files that it names
says "the example can be planned" "memory per rank" seqctl plan "$PWD/client/examples/train-gpu.json"
says "and planned for another machine" 'memory per rank' plan_on cuda --set 'hardware={"devices":2,"memory_gib":80}'
refuse "the device of tests is not offered" 1 'no node takes it' on emulated
refuse "no such device" 1 '"cpu", "cuda"' on tpu
check "seqd stops" seqd_stop

# ---- two GPUs, as the library reports them ------------------------------------------------------
export SEQD_NVML=$BIN/libfake_nvml.so SEQD_EMULATED=1
machine 'gpu GPU-aa H100 81559' 'gpu GPU-bb A30 24576 procs=1'
seqd_start || { lib_end; exit 1; }
says "nodes show them" 'local +GPU-aa +H100 +9\.0 +79\.6 GiB +79\.6 GiB +ok +-' seqctl nodes
says "and that others use one" "GPU-bb +A30 .* ok +others'" seqctl nodes
refuse "more ranks than GPUs" 1 'all nodes together have 2 \(local: 2\)' on cuda --set resources.ranks=3
refuse "a plan that no two GPUs hold" 1 'needs .*; the smallest of the 2 largest GPUs here, A30 on node local, has 24576 MiB' on cuda --set resources.ranks=2 --set model.config.hidden_size=8192 --set model.config.num_attention_heads=64 --set model.config.intermediate_size=28672 --set model.config.num_hidden_layers=32
says "nor may resources.memory_mib be more" '"memory_mib": 23552' plan_on cuda --set resources.ranks=2 --set resources.memory_mib=99999 -o json
id=$(on cuda -o name -q --set resources.ranks=2)
wait_event "$id" prepared
says "a job waits for the other" '1/2 GPUs free .* 1 is used by others' seqctl explain "$id"
machine 'gpu GPU-aa H100 81559' 'gpu GPU-bb A30 24576'
wait_event "$id" assign 2
same "it is given both" "$(field "$id" nodes.0.gpus.0)$(field "$id" nodes.0.gpus.1)" "GPU-aaGPU-bb"
says "and show lists both" 'gpus +rank 0: GPU-aa on local' seqctl show "$id"
refuse "the rank names what this machine lacks" 10 'cuda' seqctl watch "$id" --timeout $((60 * PATIENCE))
machine 'gpu GPU-aa H100 81559 ecc=2' 'gpu GPU-bb A30 24576' 'xid 1 GPU-bb 79'
check "nodes show what is wrong with a GPU" until_ok 100 node_says 'GPU-aa .* ecc .* 2 uncorrectable'
check "and with the other one" until_ok 100 node_says 'GPU-bb .* xid .* Xid 79'
id=$(on cuda -o name -q)
says "the job waits: the GPUs may recover" 'needs 1 GPU, the largest node up has 0 .*; of 2 GPUs 2 are unfit' until_ok 50 explains "$id" unfit

# ---- a job on CUDA's kernels --------------------------------------------------------------------
id=$(on emulated -o name -q)
check "a job of the device emulated" seqctl watch "$id" -q --timeout $((300 * PATIENCE))
same "device memory == plan" "$(field "$id" last_metrics.memory.high)" "$(field "$id" plan.memory.total_bytes)"
two=$(on emulated -o name -q --set resources.ranks=2)
check "the same on two ranks" seqctl watch "$two" -q --timeout $((300 * PATIENCE))
same "bytes == formula" "$(field "$two" last_metrics.ledger_ok)" true
cpu=$(on cpu -o name -q)
seqctl watch "$cpu" -q --timeout $((60 * PATIENCE)) >/dev/null 2>&1
close() { awk -v a="$(field "$1" last_metrics.loss)" -v b="$(field "$2" last_metrics.loss)" 'BEGIN { d = a - b; exit !(b > 0 && d * d <= b * b * 1e-10) }'; }
check "the loss is that of the CPU to 1e-5" close "$id" "$cpu"
check "on two ranks too" close "$two" "$cpu"
check "seqd stops" seqd_stop

# ---- what an engine gave of them ----------------------------------------------------------------
machine 'gpu GPU-aa H100 81559' 'gpu GPU-bb A30 24576'
given() { # VARIABLE=VALUE RANKS: a job on what seqw --auto offers
    printf '%s' "$JOB" | sed 's/"seed": 1/"seed": 1, "resources": {"device": "cuda", "ranks": '"$2"'}/' |
        (cd "$T/data" && env "$1" timeout 60 "$BIN/seqd" run -)
}
refuse "one of two, by its UUID" 1 'all nodes together have 1 \(node0: 1\)' given CUDA_VISIBLE_DEVICES=GPU-b 2
refuse "one of two, by its index" 1 'all nodes together have 1 \(node0: 1\)' given CUDA_VISIBLE_DEVICES=1 2
refuse "one of two, by the step of Slurm" 1 'all nodes together have 1 \(node0: 1\)' given SLURM_STEP_GPUS=0 2
refuse "the A30, and not the H100" 10 'no CUDA|cuda' given CUDA_VISIBLE_DEVICES=1 1
refuse "none" 1 'no node has a GPU' given CUDA_VISIBLE_DEVICES= 1
refuse "none in a job of Slurm without GPUs" 1 'no node has a GPU' given SLURM_JOB_ID=7 1
refuse "one that the driver does not show" 1 'CUDA_VISIBLE_DEVICES: "7" is none of the 2 GPUs' given CUDA_VISIBLE_DEVICES=7 1
check "nothing is left running" until_ok 50 nothing_left
lib_end
