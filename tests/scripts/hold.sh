#!/usr/bin/env bash
# Jobs that are asked to save and stop: suspended and resumed, at their time limit, on a node that is
# drained. What is left of them ends with the bits of a run that was never stopped.
#   BUILD=build/release   KEEP=1 keeps the state directory
# tests: needs @curl
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start hold
RUN_MS=4000 # how long the training runs: enough to stop it in the middle, on any machine

spec() { # NAME STEPS
    cat <<JSON
{"kind": "train", "name": "$1", "labels": {"team": "hold"},
 "model": {"config": $LLAMA},
 "data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 512},
 "parallel": {"strategy": "rsa", "sp": 2, "layout": "zigzag"},
 "train": {"steps": $2}, "optim": {"lr": 0.002}, "checkpoint": {"every_steps": 0},
 "resources": {"ranks": 2, "threads": 1}, "determinism": "run", "seed": 3}
JSON
}
submit() { spec "$1" "${2:-$STEPS}" | seqctl submit - -o name -q "${@:3}"; }
is() { [ "$(field "$1" state)" = "$2" ]; }
n_events() { seqctl events "$1" -o jsonl 2>/dev/null | grep -c "\"type\": \"$2\""; }
losses() { seqctl metrics "$1" -o jsonl 2>/dev/null | sed -n 's/.*"step": \([0-9]*\),.*"loss": \([0-9][^,]*\),.*/\1 \2/p' | sort -n | uniq; }

make_text 200000 >"$T/data/text.txt"
seqd_start || { lib_end; exit 1; }

# ---- the undisturbed run -------------------------------------------------------------------------
first=$(submit probe 60) && succeeds "a short run" "$first"
STEPS=$(steps_for "$first" $RUN_MS 80 20000)
base=$(submit base) && succeeds "the undisturbed run" "$base"
WANT=$(field "$base" result.weights_sha256); losses "$base" >"$T/want"
same "a loss for every step" "$(wc -l <"$T/want")" "$STEPS"
[ -n "$WANT" ] && ok "the undisturbed run: $STEPS steps" || { bad "the undisturbed run"; lib_end; exit 1; }

ends_the_same() { # NAME ID
    succeeds "$1" "$2" || return
    same "$1: weights" "$(field "$2" result.weights_sha256)" "$WANT"
    losses "$2" >"$T/got"
    cmp -s "$T/want" "$T/got" && ok "$1: every loss" || bad "$1: losses differ"
}

# ---- suspend and resume --------------------------------------------------------------------------
id=$(submit held); wait_step "$id" $((STEPS / 4)) || bad "it steps"
check "suspend --wait" seqctl suspend "$id" --wait --timeout $((60 * PATIENCE))
same "state" "$(field "$id" state)" suspended
step=$(field "$id" checkpoint_step)
same "the checkpoint is of the last step" "$step" "$(field "$id" step)"
check "it is in the middle" test "$step" -ge $((STEPS / 4)) -a "$step" -lt "$STEPS"
check "it holds no process" until_ok 50 no_gang
check "suspend again changes nothing" seqctl suspend "$id"
same "one intent, one event" "$(n_events "$id" suspend)" 1
same "ls --state suspended" "$(seqctl ls --state suspended -o name)" "$id"
TOKEN="Authorization: Bearer $(cat "$STATE/token")"; URL=$(cat "$STATE/address")
metrics() { curl -sH "$TOKEN" "$URL/metrics"; }
says "/metrics counts it" 'seqd_jobs\{state="suspended"\} 1' metrics
# Held means held: through a kill -9 of everything.
crash; for p in $(procs '*'); do kill -9 "$p"; done
seqd_start || { lib_end; exit 1; }
same "after kill -9 of all" "$(field "$id" state)" suspended
check "resume by name" seqctl resume held
ends_the_same "resumed" "$id"
same "it began where it was saved" "$(field "$id" attempts)" 2
same "nothing was charged" "$(field "$id" restarts)" 0
refuse "suspend what has ended" 4 "job $id is succeeded: only a live job" seqctl suspend "$id"
refuse "resume what has ended" 4 "job $id is succeeded: only a live job" seqctl resume "$id"
refuse "resume no job" 3 "there is no job 99999" seqctl resume 99999

# Asked while it starts, and resumed while it stops.
id=$(submit early); check "suspend at once" seqctl suspend "$id" --wait --timeout $((60 * PATIENCE))
seqctl resume "$id" -q >/dev/null; ends_the_same "suspended before a step" "$id"
id=$(submit both); wait_step "$id" $((STEPS / 3)); seqctl suspend "$id" -q >/dev/null
check "resume while it saves" seqctl resume "$id"
ends_the_same "resumed while it saved" "$id"

# Everything dies while it saves.
id=$(submit killed); wait_step "$id" $((STEPS / 2)); seqctl suspend "$id" -q >/dev/null
crash; for p in $(procs '*'); do kill -9 "$p"; done
seqd_start || { lib_end; exit 1; }
check "killed in between: it is suspended" until_ok 300 is "$id" suspended
seqctl resume "$id" -q >/dev/null; ends_the_same "killed in between" "$id"

# By filter, and cancelled while suspended.
one=$(submit one 100000 --set resources.ranks=4 --set parallel.sp=4); two=$(submit two 100000 --set resources.ranks=8 --set parallel.sp=8)
wait_step "$one" 2
refuse "a filter takes two, and there is no terminal" 2 '2 jobs match: add --yes' seqctl suspend -l team=hold --state queued,starting,running </dev/null
says "suspend by filter" 'suspended 2 of 2' seqctl suspend -l team=hold --yes
check "both" until_ok 300 is "$one" suspended; check "and the queued one" is "$two" suspended
says "resume by filter" 'resumed 2 of 2' seqctl resume --state suspended --yes
seqctl suspend "$one" "$two" -q --wait >/dev/null 2>&1
check "cancel suspended jobs" seqctl cancel "$one" "$two" --wait --timeout $((30 * PATIENCE))
same "cancelled" "$(field "$one" state) $(field "$two" state)" "cancelled cancelled"

# A batch finishes the request at hand, and continues after it. It takes longer than its progress waits
# to be told (a second), also where a request takes one millisecond.
for ((i = 0; i < 2000; i++)); do
    echo "{\"custom_id\": \"r$i\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"request $i\"}}"
done >"$T/data/requests.jsonl"
hf=$(field "$base" result.hf)
batch() { echo "{\"kind\": \"generate\", \"model\": {\"path\": \"$hf\"}, \"input\": {\"path\": \"requests.jsonl\", \"format\": \"openai_batch\"}, \"data\": {\"seq_len\": 256}, \"sampling\": {\"max_tokens\": 60, \"temperature\": 0.7}, \"parallel\": {\"strategy\": \"rsa\", \"sp\": 2}, \"resources\": {\"ranks\": 2, \"threads\": 1}}" | seqctl submit - -o name -q; }
digest() { seqctl artifacts "$1" results.jsonl --file "$T/results.$1" >/dev/null 2>&1; sed 's/"id":"[^"]*",//; s/"created":[0-9]*,//' "$T/results.$1" | sha256sum | cut -c1-16; }
all=$(batch) && succeeds "a batch" "$all"
part=$(batch)
answered() { field "$part" progress.done | awk '{ n = $1 } END { exit !(n >= 1) }'; }
wait_event "$part" ready && until_ok 600 answered || bad "the batch begins"
check "suspend a batch" seqctl suspend "$part" --wait --timeout $((60 * PATIENCE))
same "nothing failed" "$(n_events "$part" note)" "$(n_events "$all" note)"
seqctl resume "$part" -q >/dev/null; succeeds "the batch" "$part"
check "what was answered stays" test "$(field "$part" result.resumed)" -ge 1
same "every answer" "$(digest "$part")" "$(digest "$all")"

# ---- limits.wall_s -------------------------------------------------------------------------------
id=$(submit limited 100000 --set limits.wall_s=2 --set schedule.warmup_steps=2)
check "over its time it ends" until_ok 300 is "$id" failed
same "with a code of its own" "$(field "$id" error.code) $(field "$id" error.field) $(field "$id" error.class)" "wall_limit limits.wall_s final"
step=$(field "$id" checkpoint_step)
same "the step it was in is saved" "$step" "$(field "$id" step)"
says "it says which, and how to continue" "step $step is saved: .seqctl continue $id --set limits.wall_s" seqctl explain "$id"
same "warned once, before" "$(n_events "$id" wall_warning)" 1
next=$(seqctl continue "$id" --set train.steps=$((step + 5)) --set limits.wall_s=3600 -q -o name) && succeeds "continued" "$next"
same "from that step" "$(seqctl metrics "$next" -o jsonl | grep -o '"step": [0-9]*' | head -n 1)" "\"step\": $((step + 1))"
refuse "no such limit" 1 'limits.wall_s is -1' submit bad 10 --set limits.wall_s=-1

# ---- nodes that are drained ----------------------------------------------------------------------
# The node of --dev has 8 slots: one more node joins over the same socket.
second() { # [OPTIONS]
    "$BIN/seqw" --connect "unix:$STATE/node.sock" --name second --state "$T/second" --slots 2 --root "$T/data" "$@" >>"$T/seqw.log" 2>&1 &
    SECOND=$!
    until_ok 100 n_up 2 || bad "a second node joins" "$T/seqw.log"
}
first=$(seqctl nodes -o name | head -n 1)
state_of_node() { seqctl nodes 2>/dev/null | awk -v n="$1" '$1 == n { print $2; exit }'; }
node_is() { [ "$(state_of_node "$1")" = "$2" ]; }
second
check "cordon the first node" seqctl nodes cordon "$first" --reason "a new kernel"
id=$(submit moved); wait_step "$id" $((STEPS / 4))
same "a job starts on the other" "$(field "$id" node)" second
check "drain that, too" seqctl nodes drain second --reason "disk swap"
check "it is drained once its job is gone" until_ok 300 node_is second drained
same "the job is queued" "$(field "$id" state) $(field "$id" restarts)" "queued 0"
same "with the step it was in" "$(field "$id" checkpoint_step)" "$(field "$id" step)"
says "it waits for the node of its checkpoint" 'holds its checkpoint of step [0-9]*, is drained: disk swap' seqctl explain "$id"
crash; seqd_start || { lib_end; exit 1; }
until_ok 100 n_up 2
same "orders outlive seqd" "$(state_of_node "$first") $(state_of_node second)" "cordoned drained"
says "GET /v1/nodes has them" '"reason": "disk swap"' seqctl nodes -o json
check "undrain" seqctl nodes undrain second
ends_the_same "drained and moved on" "$id"
same "there" "$(field "$id" node)" second
refuse "drain no node" 3 "there is no node nowhere" seqctl nodes drain nowhere
refuse "drain it in vain" 2 "reason belongs to" seqctl nodes uncordon second --reason x
refuse "a reason that no JSON has" 2 "reason is not UTF-8" seqctl nodes cordon second --reason "$(printf '\377')"
check "two at once" seqctl nodes uncordon second "$first"
stops "$SECOND"

# A node that ends: its jobs save its margin before.
check "the first node takes no work" seqctl nodes cordon "$first"
end=$(($(date +%s) + 60))
second --end-time "$end" --leave-margin 54s
id=$(submit leaving 100000)
long=$(submit long 60 --set limits.wall_s=3600)
check "a job is drained before its node ends" wait_event "$id" drain
check "it has saved" until_ok 300 is "$id" queued
check "before it ends" test "$(date +%s)" -lt "$end"
same "what it saved" "$(field "$id" checkpoint_step)" "$(field "$id" step)"
says "it says why it waits" 'is drained: the node ends in' seqctl explain "$id"
same "no job that would outlast it began there" "$(field "$long" attempts)" 0
stops "$SECOND"
seqctl cancel "$id" "$long" -q --wait >/dev/null 2>&1

# The same, where Slurm says when.
SLURM_JOB_END_TIME=1900000000 second --auto
says "the end of an allocation" '"ends_at": "2030-03-17T17:46:40' seqctl nodes -o json
stops "$SECOND"

check "seqd stops on Ctrl-C" seqd_stop
check "nothing is left running" until_ok 50 nothing_left
lib_end
