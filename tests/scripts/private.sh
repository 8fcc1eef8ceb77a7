#!/usr/bin/env bash
# What seqd keeps for itself and its users is read by no job but theirs: uploads, checkpoints, the
# token, the database, named by plain paths, by links, by "..", by patterns; and job:ID.
#   BUILD=build/release   KEEP=1 keeps the state directory
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start private

RING='"resources": {"ranks": 1, "threads": 1}'
TRAIN="{\"kind\": \"train\", \"name\": \"base\", \"model\": {\"config\": $LLAMA}, \"data\": {\"train\": [{\"path\": \"text.txt\", \"format\": \"text\"}], \"seq_len\": 64}, $RING, \"train\": {\"steps\": 4}, \"checkpoint\": {\"every_steps\": 2}, \"seed\": 1}"
score_of() { printf '{"kind": "score", "model": {"path": "%s"}, "input": {"path": "text.txt", "format": "text"}, "data": {"seq_len": 64}, %s}' "$1" "$RING"; }
as() { local who=$1; shift; env -C "$T/data" SEQD_TOKEN_FILE="$T/$who.token" "$BIN/seqctl" "$@"; }

make_text 20000 >"$T/data/text.txt"
cp "$T/data/text.txt" "$T/data/mine.txt"
# Everything is beneath a root: the state directory too.
mkdir "$T/shared"
seqd_start --root "$T" --writable-root "$T/shared" || { lib_end; exit 1; }
for who in ann bob; do seqctl tokens create --user $who -q >"$T/$who.token" || bad "a token for $who"; done
up=$STATE/uploads/files

# ---- what ann has -------------------------------------------------------------------------------
check "ann pushes a file" as ann push mine.txt
first=$(printf '%s' "$TRAIN" | as ann submit - -q -o name --set data.train.0.path=upload:mine.txt/mine.txt --wait --timeout $((120 * PATIENCE)) 2>"$T/out") && ok "ann trains on it" || bad "ann trains on her upload" "$T/out"
hf=$(field "$first" result.hf)
step=${hf%/hf}
check "the model is there" test -s "$hf/model.safetensors"
score=$(score_of "$hf" | as ann submit - -q -o name --wait --timeout $((120 * PATIENCE)) 2>"$T/out") && ok "ann's model by its path" || bad "ann scores with her model by its path" "$T/out"
same "which becomes its reference" "$(field "$score" spec_effective.model.path)" "job:$first/step-4/hf"
again=$(printf '%s' "$TRAIN" | as ann submit - -q -o name --set "data.train.0.path=$up/mine.txt/mine.txt" --set train.steps=1 --wait --timeout $((120 * PATIENCE)) 2>"$T/out") && ok "ann's upload by its path" || bad "ann's upload by its path" "$T/out"

# ---- job:ID -------------------------------------------------------------------------------------
score=$(score_of "job:$first" | as ann submit - -q -o name --wait --timeout $((120 * PATIENCE)) 2>"$T/out") && ok "job:ID is the newest checkpoint's model" || bad "job:ID" "$T/out"
same "frozen" "$(field "$score" spec_effective.model.path)" "job:$first/step-4/hf"
printf '%s' "$TRAIN" | as ann submit - -q -o name --set "checkpoint.resume=job:$first/step-2" --set data.train.0.path=upload:mine.txt/mine.txt --wait --timeout $((120 * PATIENCE)) >"$T/id" 2>"$T/out" && ok "resume from job:ID/step-N" || bad "resume from job:ID/step-N" "$T/out"
same "it begins there" "$(seqctl metrics "$(cat "$T/id")" -o jsonl | head -n 1 | grep -o '"step": [0-9]*')" '"step": 3'
score=$(score_of "job:base" | as ann submit - -q -o name --wait --timeout $((120 * PATIENCE)) 2>"$T/out") && ok "job:NAME" || bad "job:NAME" "$T/out"
score_of "job:$first" | as ann submit - -q -o name --set "input.path=job:$score/artifacts/score.jsonl" --set input.format=text --wait --timeout $((120 * PATIENCE)) >"$T/id" 2>"$T/out" && ok "job:ID/artifacts/NAME is read" || bad "job:ID/artifacts/NAME" "$T/out"
as ann continue "$first" --set train.steps=6 -q -o name --wait --timeout $((120 * PATIENCE)) >"$T/id" 2>"$T/out" && ok "continue" || bad "continue" "$T/out"
same "by its reference" "$(field "$(cat "$T/id")" spec_effective.checkpoint.resume)" "job:$first/step-4"
refused() { # NAME PATTERN command...
    local name=$1 want=$2; shift 2
    if "$@" >"$T/out" 2>&1; then bad "$name: taken" "$T/out"; return; fi
    grep -qE -- "$want" "$T/out" && ok "$name" || bad "$name" "$T/out"
}
score_by() { score_of "$2" | as "$1" submit - "${@:3}"; }
refused "of no such step" "^seqctl: model.path: job $first has no checkpoint of step 3" score_by ann "job:$first/step-3"
refused "what is none" 'model.path: job:1/x: want job:ID' score_by ann "job:1/x"

# ---- bob wants it -------------------------------------------------------------------------------
none='bob has no such job, or it left nothing'
refused "ann's job" "^seqctl: model.path: job:$first: $none" score_by bob "job:$first"
refused "ann's step" "$none" score_by bob "job:$first/step-4/hf"
refused "no job: the same words" "$none" score_by bob "job:999"
refused "ann's name" "$none" score_by bob "job:base"
refused "ann's model by path" "$none" score_by bob "$hf"
refused "to plan" "$none" sh -c "printf '%s' '$(score_of "$hf")' | SEQD_TOKEN_FILE=$T/bob.token $BIN/seqctl plan -"
train_by() { printf '%s' "$TRAIN" | as "$1" submit - "${@:2}"; }
refused "ann's checkpoint" "checkpoint.resume.*$none" train_by bob --set "checkpoint.resume=$step"
refused "ann's upload" 'data.train.0.path: .* among the uploads, and is none of bob' train_by bob --set "data.train.0.path=$up/mine.txt/mine.txt"
refused "a pattern over uploads" 'among the uploads, and is none of bob' train_by bob --set "data.train.0.path=$up/*/mine.txt"
refused "with dots" 'among the uploads, and is none of bob' train_by bob --set "data.train.0.path=$T/data/../state/./uploads//files/mine.txt/mine.txt"
refused "an upload that is not there: the same" 'among the uploads, and is none of bob' train_by bob --set "data.train.0.path=$up/other/mine.txt"
for f in token secret seqd.db node/instance node/gangs/x; do
    refused "state: $f" "input.path: .* lies in seqd's state, which no job reads" \
        sh -c "printf '%s' '{\"kind\": \"generate\", \"model\": {\"config\": $LLAMA}, \"input\": {\"path\": \"$STATE/$f\", \"format\": \"text\"}, $RING}' | SEQD_TOKEN_FILE=$T/bob.token $BIN/seqctl submit -"
done
# What words do not show, the rank does: relative paths, links, patterns.
ln -s "$STATE" "$T/data/way"
ln -s "$up/mine.txt/mine.txt" "$T/data/link.txt"
ln -s "$hf" "$T/data/model"
tried() { # NAME SETTING...
    local name=$1; shift
    train_by bob -q -o name --wait --timeout $((120 * PATIENCE)) "$@" >"$T/id" 2>"$T/out" && { bad "$name: read" "$T/out"; return; }
    seqctl show "$(cat "$T/id")" -o json >"$T/said" 2>&1; cat "$T/out" >>"$T/said"
    grep -qE 'that seqd keeps for itself and its users|matches no file' "$T/said" && ok "$name" || bad "$name" "$T/said"
}
tried "a link to the state" --set "data.train.0.path=$T/data/way/uploads/files/mine.txt/mine.txt"
tried "a link to a file" --set "data.train.0.path=$T/data/link.txt"
tried "a pattern above it" --set "data.train.0.path=$T/sta*/uploads/files/*/mine.txt"
tried "a pattern" --set "data.train.0.path=$T/data/way/*/files/*/*.txt"
tried "what is not there" --set "data.train.0.path=$T/data/way/uploads/files/none/mine.txt"
tried "the token" --set "data.train.0.path=$T/data/way/token"
refused "a link to a model" 'that seqd keeps for itself and its users' score_by bob "$T/data/model"
same "the models of others are not listed" "$(as bob model ls -o json 2>/dev/null | grep -c "$STATE")" 0
check "ann pushes her model" as ann push "$hf" annas
says_as() { as "$1" model ls -o json 2>/dev/null | grep -c 'uploads/files/annas'; }
same "which is listed for her" "$(says_as ann)" 1
same "and for no other user" "$(says_as bob)" 0
id=$(ls "$STATE/node/prepared" | grep -v '\.' | head -n 1)
tried "prepared data of others" --set "data.train.0.path=$T/data/way/node/prepared/$id/*"
check "operators may" test -n "$(score_of "job:$first" | seqctl submit - -q -o name --wait --timeout $((120 * PATIENCE)))"

# ---- output.path --------------------------------------------------------------------------------
id=$(printf '%s' "$TRAIN" | as ann submit - -q -o name --set "output.path=$T/shared/ann/model" --wait --timeout $((120 * PATIENCE)) 2>"$T/out") && ok "a training that publishes" || bad "a training that publishes" "$T/out"
check "its model is there" diff -r "$(field "$id" result.hf)" "$T/shared/ann/model/hf"
id=$(score_of "job:base" | as ann submit - -q -o name --set "output.path=$T/shared/ann/score" --set score.token_logprobs=true --wait --timeout $((120 * PATIENCE)) 2>"$T/out") && ok "a score that publishes" || bad "a score that publishes" "$T/out"
check "its artifacts are there" test -n "$(ls "$T/shared/ann/score")"
same "as the node has them" "$(cd "$T/shared/ann/score" && sha256sum -- *)" "$(cd "$STATE/node/jobs/$id/artifacts" && sha256sum -- *)"
published() { # NAME PATTERN PATH
    train_by bob -q -o name --wait --timeout $((120 * PATIENCE)) --set "output.path=$3" >"$T/id" 2>"$T/said" && { bad "$1: taken"; return; }
    seqctl show "$(cat "$T/id")" -o json >>"$T/said" 2>&1
    grep -qE -- "$2" "$T/said" && ok "$1" || bad "$1" "$T/said"
}
published "ann's directory" "is not this job's" "$T/shared/ann/model"
published "one above it" "is not this job's" "$T/shared/ann"
published "beneath no writable root" 'none of this node.s 1 writable roots' "$T/data/out"
ln -s "$T/data" "$T/shared/way"
published "through a link" 'symbolic link' "$T/shared/way/x"
published "into the state" "lies in seqd's state" "$STATE/out"
published "with dots" 'without . and .. among its parts' "$T/shared/../data/x"
check "nothing went elsewhere" test ! -e "$T/data/x" -a ! -e "$T/data/out"

# ---- in use -------------------------------------------------------------------------------------
long=$(printf '%s' "$TRAIN" | as ann submit - -q -o name --set "checkpoint.resume=job:$first/step-2" --set checkpoint.changes=true --set train.steps=1000000 --set checkpoint.every_steps=100000)
refused "what a live job names is not removed" "job $long" as ann rm "$first" --yes
up_job=$(printf '%s' "$TRAIN" | as ann submit - -q -o name --set data.train.0.path=upload:mine.txt/mine.txt --set train.steps=1000000)
refused "nor an upload" "in use: job $up_job" as ann uploads rm mine.txt
as ann cancel "$up_job" --wait --timeout $((60 * PATIENCE)) >/dev/null 2>&1
check "afterwards it is" as ann uploads rm mine.txt
as ann cancel "$long" --wait --timeout $((60 * PATIENCE)) >/dev/null 2>&1

seqd_stop; same "seqd ends well" $? 0
check "no program is left" until_ok 100 nothing_left
lib_end
