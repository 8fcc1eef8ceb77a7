#!/usr/bin/env bash
# seqd run: one job with a coordinator and nodes of its own. Its exit codes, its results, a stop and
# continuing, several nodes by a stand-in for srun, and that nothing is ever left.
#   BUILD=build/release   KEEP=1 keeps the state
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start run
unset ${!SLURM_*} SEQD_URL
export TMPDIR=$T/tmp
mkdir "$TMPDIR"
make_text 60000 >"$T/data/text.txt"
spec() { # FILE [steps] [ranks]
    cat >"$T/data/$1" <<EOF
{"kind": "train", "model": {"config": $LLAMA}, "data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 256},
 "parallel": {"strategy": "rsa", "sp": ${3:-2}}, "train": {"steps": ${2:-20}, "global_batch": 2},
 "checkpoint": {"every_steps": 5}, "determinism": "ranks", "resources": {"ranks": ${3:-2}, "threads": 1}, "seed": 3}
EOF
}
run() { (cd "$T/data" && exec timeout 120 "$BIN/seqd" run "$@"); }
begin() { # the same in the background, of $AT where it is set: RUN is its pid
    rm -f "$T/run.out"
    (cd "$T/data" && exec "${AT:-$BIN}/seqd" run "$@") >"$T/run.out" 2>&1 &
    RUN=$!
}
ends() { # STATUS [tenths of a second]
    until_ok "${2:-300}" gone "$RUN" || { kill -9 "$RUN"; return 1; }
    wait "$RUN"; [ $? -eq "$1" ]
}
nothing() { nothing_left && [ -z "$(ls -A "$TMPDIR")" ]; }
clean() { if until_ok "${2:-1}" nothing; then ok "$1: nothing is left"; else procs '*' >"$T/left"; ls -A "$TMPDIR" >>"$T/left"; bad "$1: something is left" "$T/left"; fi; }
weights() { sha256sum <"$1/checkpoint/hf/model.safetensors"; }
in_run() { grep -qE -- "$1" "$T/run.out"; }

# ---- one machine ---------------------------------------------------------------------------------
spec job.json
says "a job succeeds" 'results are in' run job.json --slots 4 --output "$T/one"
clean "a job succeeds"
says "its document" '"state": "succeeded"' cat "$T/one/job.json"
same "its metrics" "$(wc -l <"$T/one/metrics.jsonl")" 20
says "a spec on stdin" 'job 1 succeeded' sh -c "cd '$T/data' && timeout 60 '$BIN/seqd' run - --slots 2 <job.json"
says "nothing is said that needs the service later" '^0$' sh -c "cd '$T/data' && timeout 60 '$BIN/seqd' run job.json --slots 2 2>&1 | grep -c 'next:\|$TMPDIR' || true"
echo '{"kind": "nonsense"}' >"$T/data/bad.json"
refuse "a spec that is wrong" 1 'kind "nonsense" is not one of' run bad.json
spec missing.json; sed -i 's/text\.txt/none.txt/' "$T/data/missing.json"
refuse "a path without a file" 1 'none\.txt matches no file' run missing.json --slots 4
spec broken.json; sed -i 's/text\.txt/gz.txt/' "$T/data/broken.json"; printf '\037\213\010' >"$T/data/gz.txt"
refuse "a job that fails" 10 'is a gzip file, which is not read' run broken.json --slots 4
spec large.json 20 8
refuse "a job too large for the nodes" 1 'can never start here: needs 8 slots' run large.json --slots 4
refuse "no spec" 2 'want a spec: seqd run SPEC' run --slots 4
refuse "a spec that is not there" 2 'nowhere.json: No such file' run nowhere.json
refuse "an option that is unknown" 2 'did you mean --slots' run job.json --slts 4
refuse "an address that is none" 2 'address gpu-1: want a numeric' run job.json --address gpu-1
for n in 1e30 -1 0 x 99999999999999999999; do
    refuse "SLURM_JOB_NUM_NODES=$n" 2 "SLURM_JOB_NUM_NODES=$n: want a number from 1" env SLURM_JOB_NUM_NODES=$n "$BIN/seqd" run "$T/data/job.json"
done
refuse "SLURM_CPUS_ON_NODE=1e30" 1 'SLURM_CPUS_ON_NODE=1e30: want a whole number' env SLURM_CPUS_ON_NODE=1e30 "$BIN/seqd" run "$T/data/job.json"
clean "all of these"

# ---- results that cannot be listed: seqctl is a script, which fails at one verb -------------------
stub() { # stdin: sh that comes before the real seqctl, beside seqd in $T/stub-bin
    mkdir -p "$T/stub-bin"
    cp "$BIN"/seq{d,w,gang,rank} "$T/stub-bin" &&
        { echo '#!/bin/sh'; cat; echo "exec '$BIN/seqctl' \"\$@\""; } >"$T/stub-bin/seqctl" &&
        chmod +x "$T/stub-bin/seqctl"
}
stubbed() { (cd "$T/data" && exec timeout 120 "$T/stub-bin/seqd" run "$@"); }
spec short.json 2
for verb in checkpoints artifacts ls; do
    rm -f "$T/submitted"
    stub <<EOF
case " \$* " in
*" submit "*) : >'$T/submitted' ;;
*" $verb "*) [ ! -e '$T/submitted' ] || exit 1 ;;
esac
EOF
    refuse "seqctl $verb fails" 1 'seqd run: kept /' stubbed short.json --slots 2 --output "$T/lost-$verb"
    check "seqctl $verb fails: the state is there" test -d "$TMPDIR"/seqd-run.*/state/seqd
    rm -rf "$TMPDIR"/seqd-run.*
done

# ---- a list of nodes that is larger than any buffer: 3 MB come before the row of this one ----------
stub <<'EOF'
case " $* " in
*" nodes "*) head -c 3000000 /dev/zero | tr '\0' ' '; echo ;;
esac
EOF
says "a long list of nodes" 'job 1 succeeded' stubbed short.json --slots 2 --wait 20

# ---- stop, and continue ---------------------------------------------------------------------------
spec endless.json 1000000
spec long.json 1600; sed -i 's/"every_steps": 5}/"every_steps": 250}/' "$T/data/long.json"
check "1600 steps without a stop" run long.json --slots 2 --output "$T/whole"
begin endless.json --slots 2
check "a job runs" until_ok 300 in_run 'job 1 running'
kill -TERM $RUN
check "SIGTERM without a state" ends 143
clean "SIGTERM without a state"
begin long.json --slots 2 --state "$T/state-1"
check "a job with a state runs" until_ok 300 in_run 'running +[1-9]'
refuse "a second one on its state" 1 'does not start|in use|lock' run long.json --slots 2 --state "$T/state-1"
kill -USR1 $RUN
check "SIGUSR1 with a state" ends 75
clean "SIGUSR1 with a state"
refuse "another job on this state" 2 'is of another job than job.json' run job.json --slots 2 --state "$T/state-1"
says "it continues" 'job 1 of .* continues' run long.json --slots 2 --state "$T/state-1" --output "$T/both"
same "it has the weights of a run without a stop" "$(weights "$T/both")" "$(weights "$T/whole")"
says "it is one job" '"id": 1,' cat "$T/both/job.json"
says "a job that has ended is reported again" 'job 1 succeeded' run long.json --slots 2 --state "$T/state-1"
clean "all of these"

# ---- a job that ends between the signal and the order to save --------------------------------------
for first in 'cancel 1 --wait' 'watch 1'; do
    stub <<EOF
case " \$* " in
*" suspend "*) '$BIN/seqctl' "\$1" "\$2" $first ;;
esac
EOF
    if [ "$first" = 'watch 1' ]; then code=0 state=succeeded; else code=11 state=cancelled; fi
    AT=$T/stub-bin begin long.json --slots 2 --state "$T/state-$state" --output "$T/$state"
    check "a job runs" until_ok 300 in_run 'running +[1-9]'
    kill -USR1 $RUN
    check "it has $state: its own exit code" ends $code 600
    check "it has $state: that is said" in_run "job 1 $state before it was saved"
    says "it has $state: its results are there" "\"state\": \"$state\"" cat "$T/$state/job.json"
    clean "it has $state"
done

# ---- what dies -----------------------------------------------------------------------------------
for what in seqd seqw; do
    begin endless.json --slots 2
    check "a job runs" until_ok 300 in_run 'job 1 running'
    for p in $(procs "$what"); do [ "$p" = "$RUN" ] || kill -9 "$p"; done
    check "$what is killed" ends 1
    check "it is said" in_run 'has ended before the job'
    clean "$what is killed" 100
done
begin endless.json --slots 2 --state "$T/state-2"
check "a job runs" until_ok 300 in_run 'job 1 running'
kill -9 $RUN; wait $RUN 2>/dev/null
check "seqd run is killed: no process is left" until_ok 300 nothing_left
rm -rf "$TMPDIR"/seqd-run.*

# ---- several nodes: srun's stand-in starts them all here ------------------------------------------
mkdir "$T/slurm"
cat >"$T/slurm/srun" <<'EOF'
#!/bin/bash
# Starts what follows the options as many times as --nodes says, each with all of stdin.
while [[ $1 = --* ]]; do case $1 in --nodes=*) n=${1#*=} ;; esac; shift; done
pipes=$(mktemp -d) pids=
trap 'kill -KILL $pids' TERM
for ((i = 0; i < n; i++)); do
    mkfifo "$pipes/$i"
    SLURM_NODEID=$i SLURM_LAUNCH_NODE_IPADDR=127.0.0.1 "$@" <"$pipes/$i" &
    pids="$pids $!" names="${names:-} $pipes/$i"
done
tee $names >/dev/null
for p in $pids; do while kill -0 "$p" 2>/dev/null; do wait "$p"; done; done
rm -rf "$pipes"
EOF
chmod +x "$T/slurm/srun"
slurm() { (cd "$T/data" && PATH=$T/slurm:$PATH SLURM_JOB_NUM_NODES=4 exec timeout 120 "$BIN/seqd" run "$@"); }
spec four.json 20 4
check "four slots of one node" run four.json --slots 4 --output "$T/of-one"
check "one slot of four nodes" slurm four.json --slots 1 --output "$T/of-four"
same "the weights are the same" "$(weights "$T/of-four")" "$(weights "$T/of-one")"
same "it was on four nodes" "$(grep -oE '"node": "node[0-3]"' "$T/of-four/job.json" | sort -u | wc -l)" 4
clean "four nodes"
says "a state of four nodes" 'succeeded' slurm four.json --slots 1 --state "$T/state-3"
same "node directories" "$(ls "$T/state-3/nodes" | xargs)" "node0 node1 node2 node3"
printf '#!/bin/sh\necho "srun: error: Unable to allocate" >&2; exit 1\n' >"$T/slurm/srun"
refuse "srun fails" 1 '0 of 4 nodes are up, and agents have ended' slurm four.json
refuse "there is no srun" 1 'srun: No such file' env PATH="$T/nothing" SLURM_JOB_NUM_NODES=2 "$BIN/seqd" run "$T/data/four.json"
clean "all of these"
# ---- a process for each node: any engine starts the same command on each -------------------------
head -c 32 /dev/urandom >"$T/data/key"; chmod 600 "$T/data/key"
free_port() { # a port without a listener
    local p
    while p=$((20000 + RANDOM % 12000)); (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null; do :; done
    echo $p
}
PORT=$(free_port)
ranks() { # N, rank that begins last, variables of the engine with %R in place of the rank, options of seqd run
    local n=$1 last=$2 vars=$3 r
    shift 3
    PIDS=()
    rank() { (cd "$T/data" && exec env ${vars//%R/$1} timeout 120 "$BIN/seqd" run "${@:2}") >"$T/rank-$1.out" 2>&1 & PIDS[$1]=$!; }
    for ((r = 0; r < n; r++)); do [ $r -eq "$last" ] || rank $r "${@//%R/$r}"; done
    rank "$last" "${@//%R/$last}"
}
ended() { # STATUS: every rank ends with it
    local p
    for p in "${PIDS[@]}"; do until_ok 600 gone "$p" || { kill -9 "${PIDS[@]}"; return 1; }; done
    for p in "${PIDS[@]}"; do wait "$p"; [ $? -eq "$1" ] || return 1; done
}
spec three.json 20 2; sed -i 's/"seed": 3/"seed": 4/' "$T/data/three.json"
check "two slots of one node" run three.json --slots 2 --output "$T/of-one-2"
keyed=(three.json --nodes 2 --slots 1 --master "localhost:$PORT" --join-key key --wait 60)
ranks 2 0 A=b "${keyed[@]}" --node-rank %R --output "$T/ranks-%R"
check "two ranks, 0 is last: the job's exit code from both" ended 0
same "the weights are the same" "$(weights "$T/ranks-0")" "$(weights "$T/of-one-2")"
same "it was on both" "$(grep -oE '"node": "rank-[01]"' "$T/ranks-0/job.json" | sort -u | wc -l)" 2
clean "two ranks"
ranks 2 1 "PET_NNODES=2 PET_NODE_RANK=%R PET_MASTER_ADDR=127.0.0.1 PET_MASTER_PORT=$PORT" broken.json --auto --slots 1 --join-key key --wait 60
check "variables of an engine, a job that fails: 10 from both" ended 10
clean "a job that fails"
ranks 2 1 A=b "${keyed[@]/three.json/endless.json}" --node-rank %R --state "$T/ranked"
check "a job of two ranks runs" until_ok 600 grep -q 'job 1 running' "$T/rank-0.out"
kill -TERM "${PIDS[@]}"
check "SIGTERM: 75 from both" ended 75
clean "SIGTERM"
ranks 2 0 A=b "${keyed[@]/three.json/endless.json}" --node-rank %R --state "$T/ranked"
check "it continues" until_ok 600 grep -q 'job 1 of .* continues' "$T/rank-0.out"
kill -TERM "${PIDS[0]}"
check "SIGTERM to rank 0 alone: 75 from both" ended 75
clean "SIGTERM to rank 0"
ranks 2 0 SEQD_GONE_MS=3000 "${keyed[@]/three.json/endless.json}" --node-rank %R --state "$T/ranked-%R"
check "a job runs" until_ok 600 grep -q 'job 1 running' "$T/rank-0.out"
kill -TERM "${PIDS[1]}"
check "SIGTERM to rank 1 alone: 75 from both, when it has gone for a while" ended 75
check "it is said" grep -q 'a node has gone for 3 s' "$T/rank-0.out"
clean "SIGTERM to rank 1"
head -c 32 /dev/urandom >"$T/data/other"; chmod 600 "$T/data/other"
(cd "$T/data" && exec timeout 60 "$BIN/seqd" run three.json --nodes 2 --node-rank 1 --slots 1 --master "127.0.0.1:$PORT" --join-key other --wait 4) >"$T/other.out" 2>&1 &
OTHER=$!
refuse "a rank with another key" 1 '1 of 2 nodes are up after --wait' run three.json --nodes 2 --node-rank 0 --slots 1 --master "127.0.0.1:$PORT" --join-key key --wait 2
wait $OTHER
same "it says why" "$? $(grep -c 'does not have this --join-key' "$T/other.out")" "1 1"
clean "another key"
refuse "no rank 0" 1 "master 127.0.0.1:$PORT: no rank 0 within --wait 1 s" run three.json --nodes 2 --node-rank 1 --master "127.0.0.1:$PORT" --join-key key --wait 1
refuse "a name that does not resolve" 1 'nowhere.invalid does not resolve' run three.json --nodes 2 --node-rank 1 --master nowhere.invalid --join-key key --wait 1
printf x >"$T/data/small"; chmod 600 "$T/data/small"
cp "$T/data/key" "$T/data/open"; chmod 644 "$T/data/open"
while IFS='|' read -r what options; do
    refuse "$what" 2 "$what" run three.json $options
done <<'EOF'
give --nodes N|--node-rank 1 --master h --join-key key
ranks of --nodes 2 are 0 to 1|--nodes 2 --node-rank 2 --master h --join-key key
give --master HOST|--nodes 2 --node-rank 1 --join-key key
give --join-key FILE|--nodes 2 --node-rank 1 --master h
want HOST, HOST:PORT or|--nodes 2 --node-rank 1 --master h:0 --join-key key
want HOST, HOST:PORT or|--nodes 2 --node-rank 1 --master [::1]x --join-key key
is for a run with --node-rank|--nodes 2 --join-key key
finds no engine|--auto --join-key key
has 1 bytes: want at least 32|--nodes 2 --node-rank 1 --master h --join-key small
make it 0600|--nodes 2 --node-rank 0 --master h --join-key open
EOF
clean "what is refused"
lib_end
