#!/usr/bin/env bash
# An agent that is stopped (SIGSTOP) sends no heartbeat: its node is down after three missing ones,
# long before gRPC's pings fail. After SIGCONT it is up again; when that takes too long, its gangs
# are lost. test_seqd_link has the agent whose loop hangs while gRPC's threads answer.
#   BUILD=build/release   KEEP=1 keeps the state
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start hang
export SEQD_NVML=none SEQD_HEARTBEAT_MS=200 # down after 0.7 s

seqw_run() { # NAME
    "$BIN/seqw" --connect "unix:$STATE/node.sock" --name "$1" --state "$T/$1" --slots 2 --root "$T/data" >>"$T/seqw.log" 2>&1 &
    eval "SEQW_$1=$!"
    until_ok 100 node_is "$1" up || bad "node $1 joins" "$SEQD_LOG"
}
node_is() { seqctl nodes 2>/dev/null | grep -qE "^ *$1 +$2"; }
state_is() { [ "$(field "$1" state)" = "$2" ]; }
gangs_of() { ls "$T/$1/gangs" 2>/dev/null; }
no_gang_of() { [ -z "$(gangs_of "$1")" ]; }
ran_on() { seqctl show "$1" -o json 2>/dev/null | tr -d ' \n' | grep -q "\"node\":\"$2\""; }
submit() { # NAME: long enough to run while its agent is stopped
    seqctl submit - -o name -q <<JSON
{"kind": "train", "name": "$1",
 "model": {"config": $LLAMA},
 "data": {"train": [{"path": "$T/data/text.txt", "format": "text"}], "seq_len": 256},
 "train": {"steps": 1000, "global_batch": 2}, "checkpoint": {"every_steps": 1000},
 "limits": {"restarts": 0}, "resources": {"ranks": 2, "threads": 1}, "seed": 3}
JSON
}
make_text 200000 >"$T/data/text.txt"

chmod 755 "$STATE"
mkdir -m 755 "$T/a" # exists, with a mode that is too wide

# ---- for a while: the gang is adopted again ------------------------------------------------------
seqd_run --node-lost 10m
seqw_run a
id=$(submit found) || bad "submit" "$SEQD_LOG"
wait_step "$id" 1 || bad "the job runs" "$SEQD_LOG"
kill -STOP "$SEQW_a"
check "a node whose agent is stopped is down" until_ok 100 node_is a down
says "seqd says why" 'node\.down node=a text="no heartbeat for' cat "$SEQD_LOG"
kill -CONT "$SEQW_a"
check "the agent resumes: its node is up" until_ok 100 node_is a up
check "the job ends" until_ok 600 state_is "$id" succeeded
same "as one attempt" "$(field "$id" attempts)" 1
check "no gang is left on node a" until_ok 100 no_gang_of a
check "seqd stops" seqd_stop

# ---- for too long: its gangs are lost, and stopped when it resumes -------------------------------
seqd_run --node-lost 2s
check "node a is back" until_ok 100 node_is a up
id=$(submit lost) || bad "submit" "$SEQD_LOG"
wait_step "$id" 1 || bad "the job runs" "$SEQD_LOG"
same "on node a" "$(field "$id" node)" a
kill -STOP "$SEQW_a"
seqw_run b
check "another node takes the job" until_ok 200 ran_on "$id" b
check "where it ends" until_ok 600 state_is "$id" succeeded
says "the first attempt was lost with its node" '"node_lost".*node a has not been seen for [0-9]+ s' seqctl events "$id" -o jsonl
kill -CONT "$SEQW_a"
check "the agent of a resumes: its node is up" until_ok 100 node_is a up
check "its lost gang is stopped" until_ok 100 no_gang_of a
same "and changed nothing" "$(field "$id" state)" succeeded
check "agent a stops" stops "$SEQW_a"
check "agent b stops" stops "$SEQW_b"
check "seqd stops" seqd_stop
same "all files are readable by their owner only" "$(find "$STATE" "$T/a" "$T/b" ! -type l -perm /077 | wc -l)" 0
check "nothing is left running" until_ok 50 nothing_left
lib_end
