#!/usr/bin/env bash
# Nodes that share a directory (seqw --shared): a job continues at its last checkpoint when the node of
# rank 0 is gone for good, without an order. An attempt that lost seqd alone publishes nothing more.
#   BUILD=build/release   KEEP=1 keeps the state
# tests: needs lib
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start shared
SHARED=$T/shared
mkdir "$SHARED"

spec() { # NAME STEPS [more]
    cat <<JSON
{"kind": "train", "name": "$1", "model": {"config": $LLAMA},
 "data": {"train": [{"path": "$T/data/text.txt", "format": "text"}], "seq_len": 128},
 "train": {"steps": $2, "global_batch": 2}, "checkpoint": {"every_steps": 10}${3:-},
 "limits": {"restarts": 0}, "resources": {"ranks": 2, "threads": 1}, "seed": 3}
JSON
}
submit() { spec "$@" | seqctl submit - -o name -q; }
open_seqd() { seqd_run --node-address "unix:$T/nodes.sock" --node-lost 2s; }
node() { # NAME [options]: its pid in PID
    local name=$1; shift
    "$BIN/seqw" --connect "unix:$T/nodes.sock" --name "$name" --state "$T/$name" --slots 2 --root "$T/data" "$@" >>"$T/seqw-$name.log" 2>&1 &
    PID=$!
}
events() { seqctl events "$1" -o jsonl 2>/dev/null; }
is_on() { [ "$(field "$1" node)" = "$2" ]; }
waits_for() { seqctl explain "$1" 2>/dev/null | grep -qE -- "$2"; } # ID REGEX
gangs_of() { local p; for p in $(procs seqgang); do tr '\0' ' ' <"/proc/$p/cmdline" | grep -q "$T/$1/" && echo "$p"; done; }
none_of() { [ -z "$(gangs_of "$1")" ]; }
newest() { ls -d "$SHARED/jobs/$1/checkpoints"/step-*[0-9] | tail -n 1; }

make_text 20000 >"$T/data/text.txt"
open_seqd
node a --shared "$SHARED"; A=$PID
until_ok 200 n_up 1 || { bad "node a joins" "$T/seqw-a.log"; lib_end; exit 1; }
quick=$(submit quick 40)
succeeds quick "$quick" || { lib_end; exit 1; }
check "its checkpoints lie in the shared directory" test -d "$(newest "$quick")"
check "and nothing in the state directory" sh -c "! ls '$T/a/jobs' | grep -q ."
says "the node names the directory" "\"shared\": \"$(cat "$SHARED/.seqd-shared")\"" seqctl nodes -o json
STEPS=$(steps_for "$quick" 6000 60 20000)
want=$(submit want "$STEPS")
succeeds want "$want"
WANT=$(field "$want" result.weights_sha256)

# The agent stands still, so that seqd gives the attempt up, and its ranks run on.
id=$(submit moves "$STEPS")
wait_event "$id" checkpoint || bad "no checkpoint"
node b --shared "$SHARED"; B=$PID
node c; C=$PID
until_ok 200 n_up 3 || bad "the other nodes join" "$T/seqw-b.log"
kill -STOP "$A"
until_ok 150 is_on "$id" b && ok "the job continues at another node that shares the directory" || bad "it continues" "$SEQD_LOG"
check "the first attempt ends by itself" until_ok 300 none_of a
says "because another has taken over" 'the attempt of epoch [0-9]+ has taken over' cat "$T"/a/gangs/"$id"-e*/rank-0.log
succeeds moves "$id" && same "the same weights" "$(field "$id" result.weights_sha256)" "$WANT"
says "it resumed" '"type": "assign".*"node": "b"' events "$id"
says "at a checkpoint" 'from step [0-9]*0|step=[0-9]*0' seqctl logs "$id"
same "data are prepared once" "$(ls -d "$SHARED"/prepared/*/ | wc -l) $(events "$id" | grep -c '"type": "prepared"')" "1 1"

# The node is gone for good.
kill -9 "$A" $(gangs_of a) 2>/dev/null; wait "$A" 2>/dev/null
says "its checkpoints are pulled from another node" ' [1-9][0-9]* files fetched' seqctl pull "$want" "$T/pulled"
check "they are whole" cmp "$T/pulled/hf/model.safetensors" "$(newest "$want")/hf/model.safetensors"
check "seqw c stops" stops "$C"
id=$(submit waits "$STEPS")
wait_event "$id" checkpoint || bad "no checkpoint"
node c; C=$PID
until_ok 200 n_up 2 || bad "node c joins again"
kill -9 "$B" $(gangs_of b) 2>/dev/null; wait "$B" 2>/dev/null
check "it waits for a node with that directory" until_ok 200 waits_for "$id" 'no node with the shared directory that holds its checkpoint of step [0-9]+'
crash
open_seqd
until_ok 200 n_up 1 || bad "node c comes back"
check "after a restart of seqd, too" until_ok 200 waits_for "$id" 'no node with the shared directory'
node d --shared "$SHARED"; D=$PID
until_ok 200 n_up 2 || bad "node d joins" "$T/seqw-d.log"
succeeds waits "$id" && same "a new node ends it with the same weights" "$(field "$id" result.weights_sha256)" "$WANT"
same "on that node" "$(field "$id" node)" d

# The directory vanishes.
mv "$SHARED" "$T/hidden"; mkdir "$SHARED"
check "a node without its directory begins nothing" until_ok 200 sh -c "'$BIN/seqctl' nodes -o json | grep -q '\"shared_away\": true'"
kill -TERM "$C"; wait "$C"
until_ok 200 n_up 1
id=$(submit vanished 20)
check "a job waits, and says why" until_ok 100 waits_for "$id" 'without its shared directory'
check "nothing is written in its place" sh -c "! ls '$SHARED' | grep -q ."
rmdir "$SHARED" && mv "$T/hidden" "$SHARED"
succeeds vanished "$id" && ok "it runs when the directory is back"

check "seqw d stops" stops "$D"
check "seqd stops" stops "$SEQD_PID"
SEQD_PID=
check "nothing is left running" until_ok 50 nothing_left
lib_end
