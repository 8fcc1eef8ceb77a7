#!/usr/bin/env bash
# Jobs on several stages of a pipeline (parallel.pp), through the public interface: the bits of one
# stage under determinism "ranks", evaluations, checkpoints that know no stage, kills of ranks, also
# of a product of all axes, whose stages offload.
#   BUILD=build/release
# tests: needs data/exam.txt
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start stages

MODEL='{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 176, "vocab_size": 258, "tie_word_embeddings": true}'
spec() { # NAME PARALLEL [MORE]
    cat <<JSON
{"kind": "train", "name": "$1", "model": {"config": $MODEL},
 "data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 256},
 "eval": {"data": [{"path": "held.txt", "format": "text"}], "every_steps": 12, "at_start": true},
 "parallel": {$2}, "train": {"steps": 24, "global_batch": 6}, "optim": {"lr": 0.002},
 "checkpoint": {"every_steps": 6${3:-}}, "resources": {"threads": 1},
 "determinism": "ranks", "seed": 3}
JSON
}
submit() { spec "$@" | seqctl submit - -o name -q; }

# The weights, loss and evaluation of the job are those of the first one.
check_end() { # NAME ID
    succeeds "$1" "$2" || return
    same_as "$1: weights" "$(field "$2" result.weights_sha256)" "$WEIGHTS"
    same_as "$1: loss" "$(field "$2" result.loss)" "$LOSS"
    same_as "$1: held-out loss" "$(field "$2" result.eval.loss)" "$EVAL"
    same_as "$1: ledger" "$(field "$2" result.ledger)" equal
    same_as "$1: memory" "$(field "$2" result.memory.high)" "$(field "$2" result.memory.planned)"
}
same_as() { if [ -n "$2" ] && [ "$2" = "$3" ]; then ok "$1"; else bad "$1 (is $2, want $3)"; fi; }
# A rank of the gang dies after a checkpoint.
kill_rank() { # ID N
    wait_event "$1" checkpoint || return
    local pids; mapfile -t pids < <(procs seqrank)
    [ "${#pids[@]}" -gt "$2" ] && kill -9 "${pids[$2]}"
}

make_text 100000 >"$T/data/text.txt"
head -c 3000 tests/data/exam.txt >"$T/data/held.txt"
mkdir "$T/spill"
seqd_start --slots 16 --writable-root "$T/spill" || { lib_end; exit 1; }

one=$(submit one '"sp": 1')
succeeds "one stage" "$one" || { lib_end; exit 1; }
WEIGHTS=$(field "$one" result.weights_sha256) LOSS=$(field "$one" result.loss) EVAL=$(field "$one" result.eval.loss)
two=$(submit two '"pp": 2')
check_end "two stages" "$two"
n=0
for parallel in '"pp": 4, "zero": 0' '"pp": 2, "sp": 2, "zero": 2' '"pp": 2, "sp": 2, "zero": 3'; do
    n=$((n + 1))
    check_end "{$parallel}" "$(submit "stages-$n" "$parallel")"
done
spec plan '"pp": 2' >"$T/plan.json"
says "the plan has stages" '"stages"' seqctl plan "$T/plan.json" -o json

# Killed in the middle, each rank once.
for n in 0 1 2 3; do
    id=$(submit "killed-$n" '"pp": 2, "sp": 2')
    check "rank $n of 4 is killed" kill_rank "$id" "$n"
    check_end "rank $n of 4 was killed" "$id"
done

# A checkpoint is resumed on other products.
step_18() { local path; path=$(field "$1" result.checkpoint); echo "${path%/*}/step-00000018"; }
check_end "from one stage to four" "$(submit up '"pp": 4' ", \"resume\": \"$(step_18 "$one")\"")"
check_end "from two stages to one" "$(submit down '"sp": 1' ", \"resume\": \"$(step_18 "$two")\"")"

# The stages compute what one rank does: a job of its own, and before the first step of a training.
spec proof '"pp": 2, "sp": 2' >"$T/proof.json"
seqctl verify "$T/proof.json" >"$T/proof.out" 2>&1
same_as "verify ends with 0" "$?" 0
check "verify prints what was compared" grep -q '^4 ranks == 1 rank over 768 tokens of 3 sequences, on 2 stages$' "$T/proof.out"
id=$(spec verify '"pp": 4, "dp": 2' | sed 's/"kind": "train"/"kind": "verify"/' | seqctl submit - -o name -q)
if succeeds "verify on four stages" "$id"; then
    same_as "verify: verdict" "$(field "$id" result.equal)" true
    same_as "verify: samples" "$(field "$id" result.samples)" 5
    same_as "verify: ledger" "$(field "$id" result.ledger)" equal
    same_as "verify: memory" "$(field "$id" result.memory.high)" "$(field "$id" result.memory.planned)"
fi
id=$(spec first '"pp": 2, "sp": 2, "zero": 3' | sed 's/"seed": 3/"seed": 3, "verify": {"first_step": true}/' | seqctl submit - -o name -q)
check_end "a first step that is verified" "$id"
check "it was" wait_event "$id" verified 1

# Rings, stages and ranks that share layers at once: the same bits as undisturbed, whichever rank is
# killed. Of the four every axis has both of its places.
SPILL="\"memory\": {\"offload\": \"activations\", \"offload_dir\": \"$T/spill\"}"
product() { # NAME PARALLEL [MORE]
    spec "$@" | sed "s|\"determinism\": \"ranks\"|$SPILL|; s|\"num_hidden_layers\": 4|\"num_hidden_layers\": 8|" |
        seqctl submit - -o name -q
}
ALL='"dp": 2, "pp": 2, "sp": 2, "tp": 2, "zero": 3'
all=$(product all "$ALL")
if succeeds "all axes" "$all"; then
    WEIGHTS=$(field "$all" result.weights_sha256) LOSS=$(field "$all" result.loss) EVAL=$(field "$all" result.eval.loss)
    check_end "all axes" "$all"
    for n in 0 6 9 15; do
        id=$(product "all-killed-$n" "$ALL")
        check "rank $n of 16 is killed" kill_rank "$id" "$n"
        check_end "rank $n of 16 was killed" "$id"
    done
fi
near() { awk -v a="$2" -v b="$3" 'BEGIN { d = a - b; exit !(b > 0 && d * d <= 1e-10 * b * b) }' && ok "$1" || bad "$1: $2, want $3"; }
from=$(product from '"dp": 2, "pp": 2, "sp": 2')
succeeds "dp 2, pp 2, sp 2" "$from"
to=$(product to '"sp": 4, "tp": 2' ", \"resume\": \"$(step_18 "$from")\"")
if succeeds "from dp 2, pp 2, sp 2 to sp 4, tp 2" "$to"; then
    near "from dp 2, pp 2, sp 2 to sp 4, tp 2: loss" "$(field "$to" result.loss)" "$(field "$from" result.loss)"
    near "from dp 2, pp 2, sp 2 to sp 4, tp 2: held-out loss" "$(field "$to" result.eval.loss)" "$(field "$from" result.eval.loss)"
    same_as "from dp 2, pp 2, sp 2 to sp 4, tp 2: ledger" "$(field "$to" result.ledger)" equal
fi
check "nothing is left of what was offloaded" test -z "$(ls -A "$T/spill")"

# Sequences that grow during the run; half floats, whose loss scale all stages agree on.
pairs() { # NAME SED: one stage and three
    local a b
    a=$(spec "$1-1" '"sp": 1' | sed "$2" | seqctl submit - -o name -q)
    b=$(spec "$1-3" '"pp": 3, "sp": 2, "zero": 3' | sed "$2" | seqctl submit - -o name -q)
    succeeds "$1 on one stage" "$a" && succeeds "$1 on three stages" "$b" || return
    same_as "$1: weights" "$(field "$b" result.weights_sha256)" "$(field "$a" result.weights_sha256)"
    same_as "$1: ledger" "$(field "$b" result.ledger)" equal
    same_as "$1: memory" "$(field "$b" result.memory.high)" "$(field "$b" result.memory.planned)"
}
pairs "longer sequences" 's/"seed": 3/"seed": 3, "stages": [{"from_step": 12, "seq_len": 512}]/'
pairs "fp16" 's/"seed": 3/"seed": 3, "precision": {"params": "fp16"}/'

# What does not run on stages is refused with its field.
refuses() { # NAME REGEX SED
    spec refused '"pp": 2' | sed "$3" >"$T/refused.json"
    refuse "$1" 1 "$2" seqctl submit "$T/refused.json"
}
refuses "more stages than layers" 'parallel.pp 5: the model has 4 layers' 's/"pp": 2/"pp": 5/'
refuses "a wrong product" 'parallel.dp 1 times parallel.pp 2 is not resources.ranks 3' 's/"threads": 1/"threads": 1, "ranks": 3/; s/"pp": 2/"pp": 2, "sp": 1, "dp": 1/'
refuses "windows in time" 'memory.time_chunk' 's/"seed": 3/"seed": 3, "memory": {"time_chunk": 64}/'
printf '{"kind": "score", "model": {"path": "m"}, "input": {"path": "text.txt", "format": "text"}, "data": {"seq_len": 64}, "parallel": {"pp": 2}}' >"$T/score.json"
refuse "a job that neither trains nor verifies" 1 'parallel.pp 2: a score job' seqctl submit "$T/score.json"

check "seqd stops" seqd_stop
check "nothing is left running" until_ok 50 nothing_left
lib_end
