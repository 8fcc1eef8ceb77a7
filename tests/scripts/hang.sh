#!/usr/bin/env bash
# An agent that stands still (SIGSTOP) sends no heartbeat: it is down after three that are missing,
# long before gRPC's pings fail. It is up again after SIGCONT; its gangs are given up when that
# takes too long. One whose loop hangs while gRPC's threads answer is in test_seqd_link.
#   BUILD=build/release   KEEP=1 keeps the state
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start hang
export SEQD_NVML=none SEQD_HEARTBEAT_MS=200 # down after 0.7 s

seqd_run() { # LOST_MS
    SEQD_LOST_MS=$1 "$BIN/seqd" --state "$STATE" --listen 127.0.0.1:0 >>"$T/seqd.log" 2>&1 &
    SEQD_PID=$!
    until_ok 100 answers || bad "seqd starts" "$T/seqd.log"
}
answers() { seqctl version >/dev/null 2>&1; }
seqw_run() { # NAME
    "$BIN/seqw" --connect "unix:$STATE/node.sock" --name "$1" --state "$T/$1" --slots 2 --root "$T/data" >>"$T/seqw.log" 2>&1 &
    eval "SEQW_$1=$!"
    until_ok 100 node_is "$1" up || bad "node $1 joins" "$T/seqd.log"
}
node_is() { seqctl nodes 2>/dev/null | grep -qE "^ *$1 +$2"; }
state_is() { [ "$(field "$1" state)" = "$2" ]; }
gangs_of() { ls "$T/$1/gangs" 2>/dev/null; }
no_gang_of() { [ -z "$(gangs_of "$1")" ]; }
ran_on() { seqctl show "$1" -o json 2>/dev/null | tr -d ' \n' | grep -q "\"node\":\"$2\""; }
submit() { # NAME: runs on while its agent stands still
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
mkdir -m 755 "$T/a" # made by another, with a mode that is too wide

# ---- for a while: what runs there is found again -------------------------------------------------
seqd_run 600000
seqw_run a
id=$(submit found) || bad "submit" "$T/seqd.log"
wait_step "$id" 1 || bad "the job runs" "$T/seqd.log"
kill -STOP "$SEQW_a"
check "an agent that stands still is down" until_ok 100 node_is a down
says "seqd says why" 'node\.down node=a text="no heartbeat for' cat "$T/seqd.log"
kill -CONT "$SEQW_a"
check "it resumes: up again" until_ok 100 node_is a up
check "the job ends" until_ok 600 state_is "$id" succeeded
same "as one attempt" "$(field "$id" attempts)" 1
check "nothing of it is left there" until_ok 100 no_gang_of a
check "seqd stops" seqd_stop

# ---- for too long: its gangs are given up, and stopped when it resumes ---------------------------
seqd_run 1500
check "node a is back" until_ok 100 node_is a up
id=$(submit lost) || bad "submit" "$T/seqd.log"
wait_step "$id" 1 || bad "the job runs" "$T/seqd.log"
same "on node a" "$(field "$id" node)" a
kill -STOP "$SEQW_a"
seqw_run b
check "another node takes the job" until_ok 200 ran_on "$id" b
check "where it ends" until_ok 600 state_is "$id" succeeded
says "the first attempt was lost with its node" 'node a has not been seen for 2 s' seqctl events "$id" -o jsonl
kill -CONT "$SEQW_a"
check "node a resumes: up again" until_ok 100 node_is a up
check "what it still ran is gone" until_ok 100 no_gang_of a
same "and changed nothing" "$(field "$id" state)" succeeded
check "agent a stops" stops "$SEQW_a"
check "agent b stops" stops "$SEQW_b"
check "seqd stops" seqd_stop
same "what they wrote is their owner's alone" "$(find "$STATE" "$T/a" "$T/b" ! -type l -perm /077 | wc -l)" 0
check "nothing is left running" until_ok 50 nothing_left
lib_end
