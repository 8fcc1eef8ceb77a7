#!/usr/bin/env bash
# kill -9 of each program in the middle of training, at points chosen by what the job reports.
# Whatever dies, the job succeeds with the bits of the undisturbed run, and no process is left.
#   KILL_ROUNDS=5   rounds for each of seqrank, seqgang, seqw, seqd
#   BUILD=build/release
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start kill
ROUNDS=${KILL_ROUNDS:-5}
RUN_MS=1500 # how long the training runs: enough to kill it in the middle, on any machine

spec() { # NAME STEPS
    cat <<JSON
{"kind": "train", "name": "$1",
 "model": {"config": $LLAMA},
 "data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 512},
 "parallel": {"strategy": "rsa", "sp": 2, "layout": "zigzag"},
 "train": {"steps": $2}, "optim": {"lr": 0.002}, "checkpoint": {"every_steps": $((($2 + 9) / 10))},
 "resources": {"ranks": 2, "threads": 1}, "seed": 3}
JSON
}
submit() { spec "$1" "${2:-$STEPS}" | seqctl submit - -o name -q; }

# Every round ends so: succeeded, the same weights, no gang left.
check_end() { # NAME ID
    local name=$1 id=$2 sha
    succeeds "$name" "$id" || return
    sha=$(field "$id" result.weights_sha256)
    [ "$sha" = "$WANT" ] || { bad "$name: weights $sha, undisturbed $WANT"; return; }
    until_ok 100 no_gang || { bad "$name: still running: $(procs seqgang) $(procs seqrank)"; return; }
    ok "$name"
}

one_of() { # the Nth line, cyclically
    local lines; mapfile -t lines < <(cat)
    echo "${lines[$(($1 % ${#lines[@]}))]}"
}

# A rank or the gang dies: the job starts again from its last checkpoint, under a new epoch.
kill_gang() { # PROGRAM ROUND
    local program=$1 round=$2 id pid epoch name="kill -9 $1, round $2"
    id=$(submit "$program-$round") || { bad "$name: submit"; return; }
    # Different points: right after a checkpoint, before the first one, between two.
    if [ $((round % 2)) -eq 1 ]; then wait_event "$id" checkpoint $((1 + round / 2 % 5)) || { bad "$name: no checkpoint"; return; }
    else wait_step "$id" $((1 + STEPS * (round % 8 - 2) / 11)) || { bad "$name: no such step"; return; }; fi
    epoch=$(field "$id" epoch)
    pid=$(procs "$program" | one_of "$round")
    [ -n "$pid" ] && kill -9 "$pid" || { bad "$name: nothing to kill"; return; }
    wait_event "$id" rank_exit || { bad "$name: no rank_exit event"; return; }
    check_end "$name" "$id"
    [ "$(field "$id" epoch)" -gt "$epoch" ] || bad "$name: it was not started again"
}

# seqd or its agent dies: the ranks do not notice.
kill_control() { # PROGRAM ROUND
    local program=$1 round=$2 id pid epoch before after name="kill -9 $1, round $2"
    id=$(submit "$program-$round") || { bad "$name: submit"; return; }
    wait_step "$id" $((1 + STEPS * (round % 7) / 11)) || { bad "$name: no such step"; return; }
    epoch=$(field "$id" epoch); before=$(procs seqrank | tr '\n' ' ')
    pid=$(procs "$program")
    [ -n "$pid" ] && [ -n "$before" ] && kill -9 $pid || { bad "$name: nothing to kill"; return; }
    if [ "$program" = seqd ]; then wait "$SEQD_PID" 2>/dev/null; seqd_start || return; fi
    after=$(procs seqrank | tr '\n' ' ')
    # A job that has ended has no ranks; then its epoch and events tell. Some rounds must see ranks.
    [ "$before" = "$after" ] || [ -z "$after" ] || { bad "$name: ranks were $before, are $after"; return; }
    [ -z "$after" ] || ALIVE="$ALIVE $program"
    check_end "$name" "$id"
    [ "$(field "$id" epoch)" = "$epoch" ] || bad "$name: epoch $epoch became $(field "$id" epoch)"
    ! seqctl events "$id" -o jsonl | grep -q '"type": "rank_exit"' || bad "$name: a rank was lost"
}

make_text 400000 >"$T/data/text.txt"
seqd_start || { lib_end; exit 1; }
# The number of steps follows the speed of this machine; the bits do not.
base=$(submit calibrate 20) || { bad "calibration: submit"; lib_end; exit 1; }
"$BIN/seqctl" watch "$base" -q --timeout $((120 * PATIENCE)) >"$T/watch.out" 2>&1
STEPS=$(steps_for "$base" $RUN_MS 40 1000)
base=$(submit undisturbed) || { bad "undisturbed run: submit"; lib_end; exit 1; }
"$BIN/seqctl" watch "$base" -q --timeout $((120 * PATIENCE)) >"$T/watch.out" 2>&1
WANT=$(field "$base" result.weights_sha256)
[ -n "$WANT" ] || { bad "undisturbed run" "$T/watch.out"; lib_end; exit 1; }
ok "undisturbed run of $STEPS steps: $WANT"

# A batch of requests: a rank dies between two of them. Each is answered exactly once, with the
# bytes of the undisturbed run.
N_REQUESTS=160
for ((i = 0; i < N_REQUESTS; i++)); do
    echo "{\"custom_id\": \"r$i\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"request $i\"}}"
done >"$T/data/batch.jsonl"
batch() { # submits it, always with one name: the answers give it as their model
    spec batch 1 | sed 's/"train", "name"/"generate", "name"/; /"data":/d; /"train":/d; s/^ "resources"/ "input": {"path": "batch.jsonl", "format": "openai_batch"}, "data": {"seq_len": 256}, "sampling": {"temperature": 0.7, "max_tokens": 100, "ignore_eos": true}, "infer": {"batch": 1}, "resources"/' |
        seqctl submit - -o name -q
}
digest() { seqctl artifacts "$1" -o jsonl | grep '"results.jsonl"' | grep -o '"sha256": "[0-9a-f]*' | tail -c 65; }
answered() { # ID LINES: its journal has this many
    local n; n=$(cat "$STATE"/node/jobs/"$1"/batch-*.jsonl 2>/dev/null | wc -l)
    [ "$n" -ge "$2" ]
}
kill_batch() { # ROUND
    local round=$1 id pid name="kill -9 seqrank in a batch, round $1"
    id=$(batch) || { bad "$name: submit"; return; }
    until_ok 200 answered "$id" $((3 + 20 * (round - 1))) || { bad "$name: no answers"; return; }
    pid=$(procs seqrank | one_of "$round")
    [ -n "$pid" ] && kill -9 "$pid" || { bad "$name: nothing to kill"; return; }
    "$BIN/seqctl" watch "$id" -q --timeout $((60 * PATIENCE)) >"$T/watch.out" 2>&1
    same "$name: state" "$(field "$id" state)" succeeded
    same "$name: results" "$(digest "$id")" "$WANT_BATCH"
    check "$name: some answers are of the first attempt" test "$(field "$id" result.resumed)" -ge 3
    seqctl artifacts "$id" results.jsonl --file "$T/results-$round" >/dev/null 2>&1
    same "$name: every request once" "$(grep -o '"custom_id":"r[0-9]*"' "$T/results-$round" | sort -u | wc -l) of $(wc -l <"$T/results-$round")" "$N_REQUESTS of $N_REQUESTS"
}
base=$(batch) || { bad "undisturbed batch: submit"; lib_end; exit 1; }
"$BIN/seqctl" watch "$base" -q --timeout $((120 * PATIENCE)) >"$T/watch.out" 2>&1
WANT_BATCH=$(digest "$base")
[ -n "$WANT_BATCH" ] && ok "undisturbed batch: $WANT_BATCH" || bad "undisturbed batch" "$T/watch.out"

ALIVE=
kill_batch 1
kill_batch 2
for ((round = 1; round <= ROUNDS; round++)); do
    kill_gang seqrank "$round"
    kill_gang seqgang "$round"
    kill_control seqw "$round"
    kill_control seqd "$round"
done
for program in seqw seqd; do
    case $ALIVE in *$program*) ok "ranks were seen to outlive $program" ;; *) bad "no rank outlived $program: RUN_MS is too short" ;; esac
done
check "seqd stops on Ctrl-C" seqd_stop
check "nothing is left running" until_ok 50 nothing_left
lib_end
