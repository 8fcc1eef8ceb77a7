#!/usr/bin/env bash
# deploy/slurm/oneshot.sbatch beneath a real Slurm: its controller and three of its daemons on this
# machine. Results as of a plain run, exit codes, requeue, cancel, and that nothing is left.
#   BUILD=build/release   KEEP=1 keeps the state
# Needs root, slurmctld, slurmd, srun and munged (deploy/deps --slurm). Where
# they are not available the script reports it and counts nothing as passed.
# tests: needs deploy/slurm/oneshot.sbatch @slurmctld @slurmd @srun @munged
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
for p in slurmctld slurmd srun sbatch munged; do
    command -v "$p" >/dev/null || nothing_tested slurm "there is no $p here (deploy/deps --slurm)"
done
[ "$(id -u)" -eq 0 ] || nothing_tested slurm "slurmd needs root"
lib_start slurm
unset ${!SLURM_*} SEQD_URL
export SLURM_CONF=$T/slurm.conf PATH=$BIN:$PATH TMPDIR=$T/tmp
mkdir "$TMPDIR" "$T/ctld"
DAEMONS=
slurm_end() {
    [ -f "$SLURM_CONF" ] && scancel -u root 2>/dev/null
    for p in $DAEMONS; do kill "$p" 2>/dev/null; done
    for p in $DAEMONS; do until_ok 50 gone "$p" || kill -9 "$p"; done
    lib_clean
}
trap slurm_end EXIT

# ---- Slurm ---------------------------------------------------------------------------------------
# A first port of eight that are free, of those that docs.sh does not take.
free_ports() {
    local p i
    for p in $(shuf -i 30001-32700 -n 50); do
        for ((i = 0; i < 8; i++)); do ! (: <"/dev/tcp/127.0.0.1/$((p + i))") 2>/dev/null || continue 2; done
        echo "$p"
        return
    done
    return 1
}
port=$(free_ports) || { bad "a free port"; lib_end; exit 1; }
host=$(hostname -s)
cat >"$SLURM_CONF" <<EOF
ClusterName=seqd
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$T/munge.sock,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$T/ctld
SlurmdSpoolDir=$T/spool.%n
SlurmctldPidFile=$T/slurmctld.pid
SlurmdPidFile=$T/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MinJobAge=300
SlurmctldDebug=info
SlurmdDebug=info
NodeName=n[1-3] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 3))] CPUs=2 RealMemory=2000 State=UNKNOWN
SchedulerParameters=sched_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=10
PartitionName=all Nodes=ALL Default=YES DefMemPerCPU=400 State=UP
PartitionName=low Nodes=ALL DefMemPerCPU=400 GraceTime=8 PriorityTier=1 State=UP
PartitionName=high Nodes=ALL DefMemPerCPU=400 PriorityTier=9 State=UP
EOF
daemon() { "$@" >>"$T/daemons.log" 2>&1 & DAEMONS="$DAEMONS $!"; }
dd if=/dev/urandom of="$T/munge.key" bs=128 count=1 2>/dev/null && chmod 600 "$T/munge.key"
daemon munged --foreground --force --key-file="$T/munge.key" --socket="$T/munge.sock" --pid-file="$T/munge.pid" --seed-file="$T/munge.seed" --log-file="$T/munge.log"
until_ok 100 test -S "$T/munge.sock" || bad "munged starts" "$T/daemons.log"
daemon slurmctld -D
for n in n1 n2 n3; do daemon slurmd -D -N "$n"; done
idle() { [ "$(sinfo -h -N -p all -o %T 2>/dev/null | grep -c '^idle')" -eq 3 ]; }
check "three nodes of Slurm" until_ok 300 idle || { tail -n 20 "$T/daemons.log"; lib_end; exit 1; }

# ---- what a step offers ----------------------------------------------------------------------------
cat >"$T/step.sh" <<EOF
#!/bin/sh
srun -n 1 timeout 2 seqw --auto --connect unix:$T/none --state $T/step
exit 0
EOF
# Slurm's record of a job; its exit code once it is over. sbatch --wait looks after 2, 10 and 20 seconds.
record() { scontrol -o show job "${1:-0}"; }
is_over() { record "$1" | grep -qE ' JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY) '; }
code_of() { until_ok 1200 is_over "$1" && record "$1" | sed -nE 's/.* ExitCode=([0-9]+):.*/\1/p'; }
code_of "$(sbatch --parsable -N 1 -n 1 -c 1 --mem=300 --output="$T/step.log" "$T/step.sh")" >/dev/null
says "a step's cores" 'cores=1 cores_from="SLURM_CPUS_(PER_TASK|ON_NODE)"' cat "$T/step.log"
says "a step's memory" 'memory_mib=300 memory_from="SLURM_MEM_PER_NODE"' cat "$T/step.log"
says "no GPU of others" 'gpus=0 gpus_from="a job of Slurm without GPUs" slots=1 slots_from="cores"' cat "$T/step.log"
says "a step's name" 'name=n[123]\.[0-9]+\.0 name_from="SLURMD_NODENAME"' cat "$T/step.log"

# ---- jobs ------------------------------------------------------------------------------------------
make_text 60000 >"$T/data/text.txt"
script=$PWD/deploy/slurm/oneshot.sbatch
spec() { # FILE [steps]
    cat >"$T/data/$1" <<EOF
{"kind": "train", "model": {"config": $LLAMA}, "data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 256},
 "parallel": {"strategy": "rsa", "sp": 2}, "train": {"steps": ${2:-20}, "global_batch": 2},
 "checkpoint": {"every_steps": 5}, "determinism": "ranks", "resources": {"ranks": 2, "threads": 1}, "seed": 3}
EOF
}
sbatch_run() { (cd "$T/data" && exec timeout 120 sbatch --parsable --cpus-per-task=1 "$@"); } # options, script, words
plain() { (cd "$T/data" && exec timeout 300 "$BIN/seqd" run "$@"); }
weights() { sha256sum <"$1/checkpoint/hf/model.safetensors"; }
log() { cat "$T/data/seqd-$1.log"; }
over() { [ -z "$(squeue -h -t PD,R,CG)" ]; }
nothing() { over && nothing_left && [ -z "$(ls -A "$TMPDIR")" ]; }
clean() { if until_ok 900 nothing; then ok "$1: nothing is left"; else { squeue; procs '*'; ls -A "$TMPDIR"; } >"$T/left"; bad "$1: something is left" "$T/left"; fi; }
ended() { # NAME STATUS options, script, words: it ends so, and its id is ID
    local name=$1 want=$2 rc; shift 2
    ID=$(sbatch_run "$@"); rc=$(code_of "$ID")
    if [ "$rc" = "$want" ]; then ok "$name"; else log "$ID" >"$T/out" 2>&1; bad "$name: status $rc, want $want" "$T/out"; fi
}
spec job.json
check "a plain run" plain job.json --slots 2 --output "$T/plain"
ended "two nodes" 0 --nodes=2 "$script" job.json
same "the weights are those of a plain run" "$(weights "$T/data/seqd-$ID")" "$(weights "$T/plain")"
same "it was on two nodes" "$(grep -oE '"node": "node[01]"' "$T/data/seqd-$ID/job.json" | sort -u | wc -l)" 2
says "the log" 'job 1 succeeded' log "$ID"
check "its state is removed" test ! -e "$T/data/seqd-$ID.state"
clean "two nodes"
(umask 077; head -c 32 /dev/urandom >"$T/data/key")
cat >"$T/ranks.sh" <<EOF
#!/bin/sh
srun sh -c 'exec seqd run job.json --auto --master 127.0.0.1:$((port + 6)) --join-key key --slots 1 --output $T/ranks-\$SLURM_NODEID'
EOF
ended "srun starts a process on each of two nodes" 0 --nodes=2 --ntasks-per-node=1 --output=seqd-%j.log "$T/ranks.sh"
same "the weights of both are those of a plain run" "$(weights "$T/ranks-0")" "$(weights "$T/plain")"
same "both had ranks" "$(grep -oE '"node": "rank-[01]"' "$T/ranks-0/job.json" | sort -u | wc -l)" 2
clean "a process on each node"
ended "three nodes, two of which are enough" 0 --nodes=3 "$script" job.json
ended "one node" 0 --nodes=1 --cpus-per-task=2 "$script" job.json
same "the weights are those of a plain run, too" "$(weights "$T/data/seqd-$ID")" "$(weights "$T/plain")"
printf '\037\213\010' >"$T/data/gz.txt"
sed 's/text\.txt/gz.txt/' "$T/data/job.json" >"$T/data/broken.json"
ended "a job that fails" 10 --nodes=2 "$script" broken.json
says "its nodes offered what they were given" 'cores=1 .* memory_mib=400 .* name=node1' cat "$T/data/seqd-$ID.state/nodes.log"
ended "a node that is too small" 1 --nodes=1 "$script" job.json
says "it is said" 'can never start here: needs 2 slots' log "$ID"
interactive() { (cd "$T/data" && timeout 300 salloc -Q --nodes=2 --cpus-per-task=1 "$BIN/seqd" run job.json --output "$T/interactive"); }
says "an interactive allocation" 'job 1 succeeded' interactive
same "the weights are those of a plain run here, too" "$(weights "$T/interactive")" "$(weights "$T/plain")"
is_alone() { (cd "$T/data" && ! SLURM_JOB_ID=0 timeout 60 "$BIN/seqd" run job.json --nodes 1 --slots 1); }
says "without --cpus-per-task a way is named" 'asks for no more: --cpus-per-task=N' is_alone

# Each job of an array has a spec, a state and results of its own.
spec spec-1.json
spec spec-2.json && sed -i 's/"seed": 3/"seed": 4/' "$T/data/spec-2.json"
ARRAY=$(sbatch_run --array=1-2 --nodes=1 --cpus-per-task=2 "$script" spec-%a.json)
ended_all() { [ "$(record "$ARRAY" | grep -c ' JobState=COMPLETED ')" -eq 2 ]; }
check "an array of two" until_ok 1200 ended_all
same "the weights of the first" "$(weights "$T/data/seqd-${ARRAY}_1")" "$(weights "$T/plain")"
check "those of the second are others" test "$(weights "$T/data/seqd-${ARRAY}_2")" != "$(weights "$T/plain")"
echo '{"kind": "nonsense"}' >"$T/data/bad.json"
ended "a spec that is wrong" 1 --nodes=2 "$script" bad.json
says "it is said" 'kind "nonsense" is not one of' log "$ID"
ended "no spec" 1 --nodes=1 "$script"
clean "all of these"

# ---- stop ------------------------------------------------------------------------------------------
STEPS=300
spec long.json $STEPS
check "a plain run of $STEPS steps" plain long.json --slots 2 --output "$T/whole"
# Its ranks stand still from its first steps until it is told to stop, so that it does not end before.
at_work() { until_ok 600 in_log "$T/data/seqd-$1.log" 'running +[0-9]+% +[1-9]' && RANKS=$(procs seqrank) && kill -STOP $RANKS; }
saves() { until_ok 600 in_log "$T/data/seqd-$1.log" 'saves its state'; kill -CONT $RANKS 2>/dev/null; }
ID=$(sbatch_run --nodes=2 "$script" long.json)
check "it runs" at_work "$ID"
check "the warning of its time limit" scancel --signal=USR1 --batch "$ID"
saves "$ID"
check "it is queued again and ends" until_ok 900 in_log "$T/data/seqd-$ID.log" 'results are in'
says "it is the same job" 'job 1 of .* continues' log "$ID"
same "it has the weights of a run without a stop" "$(weights "$T/data/seqd-$ID")" "$(weights "$T/whole")"
clean "a requeue"
# Preempted with a grace: SIGTERM reaches every process, the job saves, and Slurm requeues what it had
# to kill.
for nodes in 1 2; do
    rm -rf "$T/data"/seqd-*
    ID=$(sbatch_run --partition=low --nodes=$nodes --cpus-per-task=$((3 - nodes)) "$script" long.json)
    check "on $nodes nodes of a low priority it runs" at_work "$ID"
    (cd "$T" && sbatch -Q --partition=high --nodes=3 --ntasks-per-node=2 --output=/dev/null --wrap true)
    saves "$ID"
    check "it is preempted, queued again and ends" until_ok 1200 in_log "$T/data/seqd-$ID.log" 'results are in'
    says "it saved" 'job 1 (is suspended: run this again|waits .* for Slurm)' log "$ID"
    says "it is the same job" 'job 1 of .* continues' log "$ID"
    says "Slurm requeued it" 'Restarts=1' record "$ID"
    says "each step is in its metrics" "^$STEPS$" sh -c "sed -n 's/.*\"step\": *\([0-9]*\),.*/\1/p' '$T/data/seqd-$ID/metrics.jsonl' | sort -nu | wc -l"
    same "it has the weights of a run without a stop" "$(weights "$T/data/seqd-$ID")" "$(weights "$T/whole")"
    clean "a preemption on $nodes nodes"
done
spec endless.json 1000000
ID=$(sbatch_run --nodes=2 "$script" endless.json)
check "an endless one runs" until_ok 600 in_log "$T/data/seqd-$ID.log" 'job 1 running'
check "scancel" scancel "$ID"
clean "scancel"
lib_end
