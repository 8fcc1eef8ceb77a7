#!/usr/bin/env bash
# seqd run --node-rank and --auto on three machines, which are network namespaces at one bridge, with
# the variables of each engine; rank 0 begins last. Every rank ends with the job's exit code, the
# weights are those of one machine, and nothing is left.
#   BUILD=build/release   KEEP=1 keeps the state
# Needs unprivileged user and network namespaces, ip and nsenter (tests/scripts/nets.sh).
# tests: needs net @ip
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
. tests/scripts/nets.sh
own_network ranks "$@"
lib_start ranks
trap 'kill $HOLDERS 2>/dev/null; lib_clean' EXIT
unset ${!SLURM_*} SEQD_URL
export TMPDIR=$T/tmp
mkdir "$TMPDIR"

# ---- three machines ------------------------------------------------------------------------------
network() {
    local n ns
    ip link set lo up && ip link add br0 type bridge && ip link set br0 up || return 1
    for n in 0 1 2; do
        namespace "M$n" || return 1
        eval "ns=\$NS_M$n"
        ip link add "c$n" type veth peer name eth0 netns "$ns" && ip link set "c$n" master br0 up || return 1
        nsenter -t "$ns" -n sh -c "ip link set lo up; ip addr add 10.9.0.1$n/24 dev eth0; ip link set eth0 up"
        # A machine's own name, as a pod has it.
        echo "10.9.0.1$n ring-w-0-$n.ring.lab.svc ring-w-0-$n" >>"$T/hosts"
    done
}
check "three machines" network
# Names need a mount over /etc/hosts. Where none is allowed the machines have addresses alone, and what
# needs a name is left out.
NAMES=
if unshare --mount --uts sh -c 'mount --bind "$1" /etc/hosts' sh "$T/hosts" 2>/dev/null; then
    NAMES=1 MASTER=ring-w-0-0 LIST='ring-w-0-[0-2]' LONG=ring-w-0-0.ring.lab.svc
else MASTER=10.9.0.10 LIST='10.9.0.1[0-2]' LONG=10.9.0.10; fi
# Runs a command on machine N, with the machine's name and names of all where there are names.
on() {
    local ns
    eval "ns=\$NS_M$1"
    if [ -z "$NAMES" ]; then nsenter -t "$ns" -n "${@:2}"; return; fi
    nsenter -t "$ns" -n unshare --mount --uts sh -c 'hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"' sh "ring-w-0-$1" "$T/hosts" "${@:2}"
}

# ---- the job -------------------------------------------------------------------------------------
make_text 60000 >"$T/data/text.txt"
cat >"$T/data/job.json" <<EOF
{"kind": "train", "model": {"config": $LLAMA}, "data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 256},
 "parallel": {"strategy": "rsa", "sp": 3}, "train": {"steps": 10, "global_batch": 2}, "checkpoint": {"every_steps": 5},
 "resources": {"ranks": 3, "threads": 1}, "seed": 3}
EOF
(umask 077; head -c 32 /dev/urandom >"$T/data/key")
nothing() { nothing_left && [ -z "$(ls -A "$TMPDIR")" ]; }
weights() { sha256sum <"$1/checkpoint/hf/model.safetensors"; }
rank() { # MACHINE, variables with %R in place of the rank, options
    local options=("${@:3}")
    on "$1" env -C "$T/data" ${2//%R/$1} timeout 120 "$BIN/seqd" run job.json --slots 1 --join-key key --output "$T/$NAME-$1" "${options[@]//%R/$1}" >"$T/$NAME-$1.out" 2>&1
}
ring() { # NAME, variables, options: rank 0 begins last
    local p rc=0 PIDS=()
    NAME=$1
    rank 1 "${@:2}" & PIDS+=($!)
    rank 2 "${@:2}" & PIDS+=($!)
    rank 0 "${@:2}" & PIDS+=($!)
    for p in "${PIDS[@]}"; do wait "$p" || rc=$?; done
    if [ $rc -eq 0 ]; then ok "$1: every rank ends with 0"; else bad "$1: a rank ended with $rc: $(tail -n 1 "$T/$1-0.out")" "$T/$1-0.out"; tail -n 5 "$T/$1"-[12].out; return; fi
    same "$1: the weights" "$(weights "$T/$1-0")" "$WANT"
    same "$1: on three machines" "$(grep -oE '"node": "rank-[0-2]"' "$T/$1-0/job.json" | sort -u | wc -l)" 3
    if until_ok 50 nothing; then ok "$1: nothing is left"; else procs '*' >"$T/left"; bad "$1: something is left" "$T/left"; fi
}
NAME=one
check "one machine" env -C "$T/data" "$BIN/seqd" run job.json --slots 3 --output "$T/one"
WANT=$(weights "$T/one")

ring options A=b --nodes 3 --node-rank %R --master $MASTER
ring interface A=b --nodes 3 --node-rank %R --master 10.9.0.10 --interface eth0 --sandbox off
ring slurm "SLURM_JOB_ID=1 SLURM_STEP_NUM_NODES=3 SLURM_NODEID=%R SLURM_STEP_NODELIST=$LIST" --auto
if [ -n "$NAMES" ]; then ring kubernetes "JOB_COMPLETION_INDEX=%R" --auto --nodes 3
else echo "left out: kubernetes, whose rank 0 is found by its name: this machine allows no mounts here"; fi
ring kubeflow "JOB_COMPLETION_INDEX=%R PET_NNODES=3 PET_NODE_RANK=%R PET_MASTER_ADDR=$LONG PET_MASTER_PORT=29500" --auto
ring lws "LWS_LEADER_ADDRESS=$MASTER LWS_GROUP_SIZE=3 LWS_WORKER_INDEX=%R" --auto
ring skypilot "SKYPILOT_NUM_NODES=3 SKYPILOT_NODE_RANK=%R SKYPILOT_NODE_IPS=10.9.0.10,10.9.0.11,10.9.0.12" --auto
ring dstack "DSTACK_NODES_NUM=3 DSTACK_NODE_RANK=%R DSTACK_MASTER_NODE_IP=10.9.0.10" --auto
ring flux "FLUX_JOB_ID=f1 FLUX_JOB_NNODES=3 FLUX_TASK_RANK=%R" --auto --master 10.9.0.10

# Ranks that were started with different specs find each other not at all.
sed 's/"seed": 3/"seed": 4/' "$T/data/job.json" >"$T/data/other.json"
two() { on "$1" env -C "$T/data" timeout 60 "$BIN/seqd" run "$2" --slots 3 --join-key key --nodes 2 --node-rank "$1" --master 10.9.0.10 --wait 3 >"$T/two-$1.out" 2>&1; }
apart() { two 1 other.json & local pid=$!; two 0 job.json; [ $? -eq 1 ] || return 1; wait $pid; [ $? -eq 1 ]; }
if apart; then ok "another spec: no rank begins"; else bad "another spec: no rank begins" "$T/two-0.out"; fi
check "which is said" grep -q 'has another SPEC, --nodes or --join-key' "$T/two-1.out"
check "by the agent, too" grep -q 'does not have this --join-key' "$T/two-1.out"
if until_ok 50 nothing; then ok "nothing is left"; else procs '*' >"$T/left"; bad "nothing is left" "$T/left"; fi
lib_end
