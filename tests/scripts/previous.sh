#!/usr/bin/env bash
# The version before, which tests/previous names by its commit, lives with this one: its state under
# these programs and the other way round, with a finished, a running and a queued job; an agent of
# each with a coordinator of the other. Every training ends with the bits of an undisturbed one.
#   BUILD=build/release   PREVIOUS=DIR: its programs, built elsewhere   KEEP=1 keeps the state
# It is built from a `git archive` of that commit in build/previous, once. A clone without the commit
# prints "left out".
# tests: not kept: it builds another version
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
read -r COMMIT VERSION <tests/previous
programs='seqd seqw seqgang seqrank seqctl'
built=${PREVIOUS:-build/previous/$COMMIT/build/release}
have() { local p; for p in $programs; do [ -x "$built/$p" ] || return 1; done; }
if ! have; then
    if ! git cat-file -e "$COMMIT^{commit}" 2>/dev/null; then
        echo "left out: this clone lacks the commit of $VERSION, $COMMIT: git fetch --unshallow"
        echo "previous: 0 passed, 0 failed"
        exit 0
    fi
    rm -rf build/previous && mkdir -p "build/previous/$COMMIT"
    git archive "$COMMIT" | tar -x -C "build/previous/$COMMIT" &&
        env -u MAKEFLAGS -u MODE -u BUILD make -s -j"${JOBS:-2}" -C "build/previous/$COMMIT" \
            $(printf 'build/release/%s ' $programs) >build/previous/log 2>&1 ||
        { tail -n 20 build/previous/log; echo "FAIL $VERSION is built"; echo "previous: 0 passed, 1 failed"; exit 1; }
fi
lib_start previous
mkdir -p "$T/oldbin" "$T/newbin"
for p in $programs; do cp "$built/$p" "$T/oldbin"; cp "$BIN/$p" "$T/newbin"; done
STEPS=120 S='' D='' W='' CTL=new # the state, pids of seqd and of seqw, whose client

# ---- the programs -----------------------------------------------------------------------------
seqctl() { env -C "$T/data" SEQD_URL="$S/seqd" "$T/${CTL}bin/seqctl" "$@"; }
answers() { seqctl version -o json >/dev/null 2>&1; }
scene() { S=$T/$1; mkdir -p "$S"; } # a state of its own
coordinator() { # old|new [OPTION...]
    CTL=$1
    rm -f "$S/seqd/address" # of the one before
    "$T/$1bin/seqd" "${@:2}" --state "$S/seqd" --listen 127.0.0.1:0 --node-address "unix:$S/node.sock" >>"$S/seqd.log" 2>&1 &
    D=$!
    until_ok 200 answers || { bad "seqd ($1) starts" "$S/seqd.log"; return 1; }
}
agent() { # old|new
    "$T/$1bin/seqw" --connect "unix:$S/node.sock" --name n1 --state "$S/node" --slots 2 --root "$T/data" >>"$S/seqw.log" 2>&1 &
    W=$!
    until_ok 300 n_up 1 || { bad "seqw ($1) joins" "$S/seqw.log"; return 1; }
}
kill_both() { kill -9 "$D" "$W"; wait "$D" "$W" 2>/dev/null; }
replace_agent() { kill -9 "$W"; wait "$W" 2>/dev/null; agent "$1"; }
end_scene() {
    local p
    kill -INT "$W" "$D" 2>/dev/null; wait "$W" "$D" 2>/dev/null
    for p in $(procs seqgang) $(procs seqrank); do kill -9 "$p"; done
}

# ---- jobs -------------------------------------------------------------------------------------
spec() { # NAME
    cat <<JSON
{"kind": "train", "name": "$1",
 "model": {"config": $LLAMA},
 "data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 256},
 "parallel": {"strategy": "rsa", "sp": 2, "layout": "zigzag"},
 "train": {"steps": $STEPS}, "optim": {"lr": 0.002}, "checkpoint": {"every_steps": 5},
 "resources": {"ranks": 2, "threads": 1}, "seed": 3}
JSON
}
submit() { spec "$1" | seqctl submit - -o name -q; }
is() { [ "$(field "$1" state)" = "$2" ]; }
losses() { seqctl metrics "$1" -o jsonl | sed -nE 's/.*"step": ([0-9]+).*"loss": ([-+.e0-9]+).*/\1 \2/p'; }
# Its ranks stand still from here on, in the middle.
hold() { # ID
    wait_step "$1" 3 || { bad "job $1 reaches step 3" "$S/seqd.log"; return 1; }
    RANKS=$(procs seqrank | tr '\n' ' ')
    kill -STOP $RANKS
}
release() { kill -CONT $RANKS; }
log_lines() { seqctl logs "$1" 2>/dev/null | wc -l; }
good() { # NAME ID: it ends as the undisturbed one
    until_ok 900 ended "$2"
    is "$2" succeeded || { seqctl events "$2" >"$T/out" 2>&1; bad "$1: it is $(field "$2" state)" "$T/out"; return; }
    [ "$(field "$2" result.weights_sha256)" = "$WANT" ] || { bad "$1: other weights"; return; }
    [ "$(losses "$2")" = "$LOSSES" ] || { bad "$1: other losses"; return; }
    [ "$(seqctl logs "$2" 2>/dev/null | wc -c)" -gt 0 ] || { bad "$1: no log"; return; }
    ok "$1"
}
ended() { is "$1" succeeded || is "$1" failed || is "$1" cancelled; }
says() { # NAME TEXT COMMAND...
    local name=$1 text=$2; shift 2
    if until_ok 100 holds "$text" "$@"; then ok "$name"; else bad "$name: no '$text'" "$T/out"; fi
}
holds() { local text=$1; shift; "$@" >"$T/out" 2>&1; grep -q -- "$text" "$T/out"; }
cancels() { # NAME
    local id
    id=$(submit cancelled) && hold "$id" || { bad "$1: no job"; return; }
    release
    seqctl cancel "$id" >/dev/null 2>&1
    until_ok 300 is "$id" cancelled && until_ok 100 no_gang && ok "$1" || bad "$1: it is $(field "$id" state)"
}

# A finished job, a running one that is held, and one that waits for its slots.
three() { # NAME
    DONE=$(submit "$1-done") && until_ok 600 is "$DONE" succeeded &&
        RUNS=$(submit "$1-runs") && hold "$RUNS" && WAITS=$(submit "$1-waits") || { bad "$1: the three jobs" "$S/seqd.log"; return 1; }
    EPOCH=$(field "$RUNS" epoch)
}
# Of the three, after both programs were replaced.
three_go_on() { # NAME
    local p alive=
    for p in $RANKS; do [ "$(cat "/proc/$p/comm" 2>/dev/null)" = seqrank ] && alive="$alive$p "; done
    [ "$alive" = "$RANKS" ] && ok "$1: its ranks run on" || bad "$1: of ranks $RANKS there are $alive"
    release
    good "$1: the finished job" "$DONE"
    good "$1: the running job" "$RUNS"
    [ "$(field "$RUNS" epoch)" = "$EPOCH" ] && ok "$1: at its epoch" || bad "$1: epoch $EPOCH became $(field "$RUNS" epoch)"
    [ "$(log_lines "$RUNS")" = "$(log_lines "$DONE")" ] && ok "$1: its log is whole" || bad "$1: $(log_lines "$RUNS") lines of log, want $(log_lines "$DONE")"
    good "$1: the queued job" "$WAITS"
}

seq 1 60000 >"$T/data/text.txt"

# ---- the list of its fields is true -------------------------------------------------------------
# test_api_fields holds the tables of fields against the list.
tests/previous_fields.sh >"$T/fields" && cmp "$T/fields" tests/previous.fields >"$T/out" 2>&1 && ok "tests/previous.fields is what $VERSION prints" ||
    bad "tests/previous.fields is not what $VERSION prints: tests/previous_fields.sh writes it" "$T/out"

# ---- its state under these programs, and back ---------------------------------------------------
scene upgrade
coordinator old && agent old || { lib_end; exit 1; }
base=$(submit base) && until_ok 900 is "$base" succeeded || { bad "undisturbed, by $VERSION" "$S/seqd.log"; lib_end; exit 1; }
WANT=$(field "$base" result.weights_sha256) LOSSES=$(losses "$base")
[ "$(wc -l <<<"$LOSSES")" -eq "$STEPS" ] && ok "undisturbed, by $VERSION" || bad "undisturbed: $(wc -l <<<"$LOSSES") losses"
if three upgrade; then
    kill_both; coordinator new && agent new && three_go_on "upgrade from $VERSION"
fi
# And back: programs of that version find the state of these.
if three rollback; then
    kill_both; coordinator old && agent old && three_go_on "rollback to $VERSION"
    good "rollback: a job of before the upgrade" "$base"
fi
last=$(submit again) && until_ok 600 is "$last" succeeded
kill_both; coordinator new && agent new && good "upgraded again: a job that $VERSION took meanwhile" "$last"
# What 0.2.0 would misread it refuses, until the job has ended.
kill_both; coordinator new
odd=$(spec odd | sed 's#"every_steps": 5#&, "resume": "/nowhere/step", "changes": true#' | seqctl submit - -o name -q) || bad "a job with a new field is taken"
kill -9 "$D"; wait "$D" 2>/dev/null
says "$VERSION refuses the state while a live job has a new field" 'schema version 2' timeout 20 "$T/oldbin/seqd" --state "$S/seqd" --listen 127.0.0.1:0
coordinator new && seqctl cancel "$odd" >/dev/null 2>&1
until_ok 300 is "$odd" cancelled || bad "the job with a new field: it is $(field "$odd" state)"
kill -9 "$D"; wait "$D" 2>/dev/null; coordinator new; kill -TERM "$D"; wait "$D" 2>/dev/null
coordinator old && ok "and opens it again after a start without such a job"
end_scene

# ---- a state with events that it skips -------------------------------------------------------------
scene away
if coordinator new --node-lost 1s && agent new; then
    id=$(submit away) && hold "$id"
    kill -9 "$W"; wait "$W" 2>/dev/null
    says "a job whose node is silent is away" '"type": "away"' seqctl events "$id" -o jsonl
    is "$id" running && ok "and is not stopped" || bad "and is not stopped: it is $(field "$id" state)"
    kill -9 "$D"; wait "$D" 2>/dev/null
    coordinator old && ok "$VERSION opens that state" && agent new
    says "and skips what it does not know" 'replay.event' cat "$S/seqd.log"
    release
    good "there the job runs on" "$id"
fi
end_scene

# ---- an agent of that version with this coordinator ---------------------------------------------
scene old-agent
if coordinator new && agent old; then
    id=$(submit mixed); good "seqw $VERSION at this seqd: a training" "$id"
    kept=$(submit kept); good "and a second one" "$kept"
    cancels "seqw $VERSION at this seqd: a cancel"
    seqctl rm "$id" --yes >/dev/null 2>&1
    says "a removal there waits, and says for what" 'protocol 6' seqctl removals
    # A field that 0.2.0 has not: the job waits for a node that has it.
    cp -r "$S/node/jobs/$kept/checkpoints/"step-*$STEPS "$T/data/step" &&
        more=$(spec more | sed 's/"every_steps": 5/&, "resume": "step", "changes": true/; s/"steps": '"$STEPS/\"steps\": $((STEPS + 5))/" | seqctl submit - -o name -q) ||
        bad "a job with a new field is taken"
    says "a job with a field that $VERSION has not waits, and says for what" 'without checkpoint.changes' seqctl show "$more"
    byid=$(spec byid | sed "s#\"every_steps\": 5#&, \"resume\": \"job:$kept/step-$STEPS\"#" | seqctl submit - -o name -q) &&
        says "so does a job with a path by job:ID" 'without paths by job:ID' seqctl show "$byid"
    says "the node says what it speaks" '"protocol": 6' seqctl nodes -o json
    says "its checkpoints are not fetched, and seqd says why" 'upgrade seqw' seqctl pull "$kept" "$T/pulled"
    replace_agent new
    until_ok 600 is "$more" succeeded && ok "with this seqw the job runs" || bad "the waiting job: $(field "$more" state)" "$S/seqd.log"
    says "with this seqw it is done" '"state": "done"' seqctl removals -o json
fi
end_scene

# ---- this agent with a coordinator of that version ------------------------------------------------
scene new-agent
if coordinator old && agent new; then
    id=$(submit mixed); good "this seqw at seqd $VERSION: a training" "$id"
    cancels "this seqw at seqd $VERSION: a cancel"
    run=$(submit runs) && hold "$run"
    kill -9 "$D"; wait "$D" 2>/dev/null; coordinator new && until_ok 300 n_up 1
    release
    good "seqd is upgraded first, under this seqw" "$run"
    seqctl rm "$id" --yes >/dev/null 2>&1
    says "which speaks the newer protocol with it" '"state": "done"' seqctl removals -o json
fi
end_scene
lib_end
