#!/usr/bin/env bash
# Preferences through all programs: an adapter learns which of two answers is better, on every axis, is
# stopped, killed and resumed, and its references stay those of its first step; bad records are refused.
#   BUILD=build/release   KEEP=1 keeps the state directory
# tests: needs data/train client/examples @curl
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
EXAMPLES=$PWD/client/examples
lib_start preference

pairs() { # N: pairs of answers as text, one a line
    awk -v n="$1" 'BEGIN { for (i = 1; i <= n; i++)
        printf "{\"prompt\": \"What is %d and %d? \", \"chosen\": \"It is %d.\", \"rejected\": \"I do not know.\"}\n", i, i + 3, 2 * i + 3 }'
}
pairs 40 >"$T/data/pairs.jsonl"
pairs 1500 >"$T/data/many.jsonl"
seqd_start || { lib_end; exit 1; }

spec() { # STEPS EVERY MORE: a training of pairs with a checkpoint after every EVERY steps
    printf '{"kind": "train", "model": {"config": %s}, "adapter": {"type": "lora", "rank": 4}, "objective": {"type": "dpo"},
        "data": {"train": [{"path": "pairs.jsonl"}], "seq_len": 256}, "optim": {"lr": 1e-2},
        "train": {"steps": %d, "global_batch": 4}, "schedule": {"warmup_steps": 1}, "seed": 1,
        "checkpoint": {"every_steps": %d, "keep": 100}, %s}' "$LLAMA" "$1" "$2" "${3:-"\"resources\": {\"ranks\": 2}"}"
}
losses() { seqctl metrics "$1" -o jsonl | grep -oE '"loss": [-0-9.e]+' | cut -c 9-; }
first() { losses "$1" | head -n 1; }
last_of() { seqctl metrics "$1" --last 1 -o jsonl | grep -o "\"$2\": [-0-9.e]*" | cut -d ' ' -f 2; } # JOB VALUE
near() { # NAME GOT WANT: each line of the one is that of the other
    paste <(echo "$2") <(echo "$3") | awk 'NF < 2 { bad = 1 } { d = $1 - $2; if (d * d > 1e-10) bad = 1 } END { exit bad || !NR }' &&
        ok "$1" || bad "$1: got" <(paste <(echo "$2") <(echo "$3"))
}
exact() { # NAME JOB: it has counted and held what the plan says
    same "$1: bytes == formula" "$(field "$2" result.ledger)" equal
    same "$1: memory == plan" "$(field "$2" result.memory.high)" "$(field "$2" result.memory.planned)"
}

# ---- every axis ----------------------------------------------------------------------------------
spec 6 0 >"$T/data/dpo.json"
id=$(seqctl submit dpo.json -o name -q)
succeeds "an adapter of pairs" "$id" || { lib_end; exit 1; }
near "without a step both answers have their references" "$(first "$id")" 0.6931471805599453
check "the loss falls" awk -v a="$(field "$id" result.loss)" 'BEGIN { exit !(a > 0 && a < 0.6) }'
check "the margin is above 0" awk -v a="$(last_of "$id" margin)" 'BEGIN { exit !(a > 0.1) }'
same "every pair is right" "$(last_of "$id" accuracy)" 1
says "a stream has them" '"preferences": *\{"pairs": *[0-9]+, *"reward_chosen"' \
    curl -sS -H "Authorization: Bearer $(cat "$STATE/token")" "$(seqctl page 2>/dev/null | grep -o 'http://[^/]*')/v1/jobs/$id/metrics"
documents() { # STEP: the documents of a step's samples, in order
    curl -sS -H "Authorization: Bearer $(cat "$STATE/token")" \
        "$(seqctl page 2>/dev/null | grep -o 'http://[^/]*')/v1/jobs/$id/steps/$1/data" | grep -oE '"document": *[0-9]+' | grep -oE '[0-9]+$'
}
learnt=$(seqctl metrics "$id" -o jsonl | head -n 1 | grep -oE '"pairs": [0-9]+' | cut -d ' ' -f 2)
check "a step's data are whole pairs" awk -v pairs="$learnt" '{ bad += NR % 2 ? $1 % 2 : $1 != last + 1; last = $1 }
    END { exit bad || !NR || NR != 2 * pairs }' <<<"$(documents 1)"
says "watch says them" 'margin .*accuracy 1' seqctl watch "$id"
check "pull of the curves" seqctl pull "$id" "$T/curves" --artifacts
check "which have them" grep -qa train/rewards/margins "$T"/curves/events.out.tfevents.*
check "pull of the result" seqctl pull "$id" "$T/lora" --part adapter
check "it is as peft saves one" test -f "$T/lora/adapter_config.json" -a -f "$T/lora/adapter_model.safetensors"
exact "sp 2" "$id"
WANT=$(losses "$id")
for product in '"sp": 1' '"dp": 2' '"pp": 2' '"tp": 2' '"dp": 2, "zero": 3' '"sp": 2, "tp": 2, "zero": 2' '"sp": 2, "dp": 2, "zero": 3'; do
    ranks=$(grep -oE '(p)": [0-9]' <<<"$product" | awk '{ n = n ? n * $2 : $2 } END { print n }')
    other=$(spec 6 0 "\"parallel\": {$product}, \"resources\": {\"ranks\": $ranks}" | seqctl submit - -o name -q)
    if succeeds "$product" "$other"; then
        near "$product: the same losses" "$(losses "$other")" "$WANT"
        exact "$product" "$other"
    fi
done
for way in '"type": "dpo", "label_smoothing": 0.1, "sft_weight": 0.5' '"type": "dpo", "loss": "ipo", "beta": 0.2'; do
    one=$(spec 3 0 | sed "s/\"type\": \"dpo\"/$way/" | seqctl submit - --set resources.ranks=1 -o name -q)
    two=$(spec 3 0 | sed "s/\"type\": \"dpo\"/$way/" | seqctl submit - --set parallel.dp=2 -o name -q)
    succeeds "$way" "$one" && succeeds "$way, dp 2" "$two" && near "$way: the same losses" "$(losses "$two")" "$(losses "$one")"
done
full=$(seqctl submit dpo.json --unset adapter --set optim.lr=1e-3 -o name -q)
succeeds "all weights" "$full"
near "the reference is the first weights" "$(first "$full")" 0.6931471805599453

# ---- stopped, killed, resumed ----------------------------------------------------------------------
trial=$(spec 20 0 | seqctl submit - -o name -q)
succeeds "a trial of the speed" "$trial"
STEPS=$(steps_for "$trial" 1500 40 1000)
spec "$STEPS" $(((STEPS + 9) / 10)) >"$T/data/long.json"
whole=$(seqctl submit long.json -o name -q)
succeeds "a training that nothing disturbs" "$whole"
SHA=$(field "$whole" result.weights_sha256)
checkpoint=$(field "$whole" result.checkpoint)
check "the checkpoint has the references" test -f "$checkpoint/references.bin"

stopped=$(seqctl submit long.json -o name -q)
wait_step "$stopped" $((STEPS / 3)) || bad "it steps"
check "seqd stops on SIGTERM" seqd_stop TERM
seqd_start
succeeds "a training that was stopped" "$stopped"
same "has the weights of the whole one" "$(field "$stopped" result.weights_sha256)" "$SHA"

kill_rank() { # ID: kills the last rank of the only gang, and waits until the job knows
    local pid; pid=$(procs seqrank | tail -n 1)
    [ -n "$pid" ] && kill -9 "$pid" && wait_event "$1" rank_exit
}
killed=$(seqctl submit long.json -o name -q)
wait_event "$killed" checkpoint 2
check "a rank is killed after a checkpoint" kill_rank "$killed"
succeeds "and the training ends" "$killed"
same "with the weights of the whole one" "$(field "$killed" result.weights_sha256)" "$SHA"

many=("--set" "data.train.0.path=many.jsonl" "--set" "data.packing=none" "--set" "data.seq_len=128"
    "--set" "train.global_batch=375" "--set" "train.steps=4")
calm=$(seqctl submit dpo.json "${many[@]}" -o name -q)
succeeds "many references" "$calm"
killed=$(seqctl submit dpo.json "${many[@]}" -o name -q)
begun() { grep -qs rank.references "$STATE/jobs/$killed"/logs/*-rank0.log; }
until_ok 200 begun || bad "it computes references"
procs seqrank | xargs -r kill -STOP
check "no step has begun" test ! -e "$STATE/node/jobs/$killed/references.bin"
check "a rank is killed while references are computed" kill_rank "$killed"
succeeds "and the training ends" "$killed"
same "with the same weights" "$(field "$killed" result.weights_sha256)" "$(field "$calm" result.weights_sha256)"

half=$(printf '%s/step-%08d' "${checkpoint%/*}" $((5 * ((STEPS + 9) / 10))))
for product in parallel.tp=2 parallel.dp=2 parallel.pp=2 resources.ranks=1; do
    more=$(seqctl submit long.json --set checkpoint.resume="$half" --set "$product" -o name -q)
    # of ten steps: rounding grows over the rest, whose number depends on the machine
    succeeds "resumed with $product" "$more" && near "with the losses of the whole one" \
        "$(losses "$more" | head -n 10)" "$(losses "$whole" | tail -n +$((5 * ((STEPS + 9) / 10) + 1)) | head -n 10)"
    check "and its references" cmp "$(field "$more" result.checkpoint)/references.bin" "$checkpoint/references.bin"
done

fails() { # NAME REGEX options: the job fails, and its events name the reason
    local name=$1 re=$2 job; shift 2
    job=$(seqctl submit "$@" -o name -q)
    seqctl watch "$job" -q --timeout $((60 * PATIENCE)) >"$T/watch.out" 2>&1
    says "$name" "$re" seqctl events "$job"
}
short=$(seqctl submit dpo.json --set train.steps=2 --set train.global_batch=1 -o name -q)
succeeds "two steps of one sample" "$short"
fails "more samples than have references" 'train.steps' dpo.json --set train.global_batch=1 --set train.steps=3 \
    --set checkpoint.resume="job:$short" --set checkpoint.changes=true
more=$(seqctl submit long.json --set train.steps=$((STEPS + 2)) --set checkpoint.resume="job:$whole" --set checkpoint.changes=true -o name -q)
succeeds "more steps with the same samples" "$more"
same "all of them" "$(field "$more" result.steps)" $((STEPS + 2))
fails "other pairs" 'has no references of these data.*begin from its adapter: model.adapter .*/adapter' dpo.json --set train.steps=4 --set train.global_batch=1 \
    --set data.train.0.path=many.jsonl --set checkpoint.resume="job:$short" --set checkpoint.changes=true

# ---- messages ------------------------------------------------------------------------------------
mkdir "$T/data/client" && cp -r "$EXAMPLES" "$T/data/client"
example=$(seqctl submit "$EXAMPLES/train-dpo.json" -o name -q)
succeeds "the example as it stands" "$example"
near "begins at log 2" "$(first "$example")" 0.6931471805599453
check "its margin rises" awk -v a="$(last_of "$example" margin)" 'BEGIN { exit !(a > 1) }'
same "its pairs are right" "$(last_of "$example" accuracy)" 1
exact "the example" "$example"

# ---- bad records ---------------------------------------------------------------------------------
record() { # NAME REGEX LINE options: the second record of a file is refused, with file and line
    local name=$1 re=$2 line=$3; shift 3
    { head -n 1 "$T/data/pairs.jsonl"; echo "$line"; } >"$T/data/bad.jsonl"
    fails "$name" "bad.jsonl line 2: .*$re" dpo.json --set data.train.0.path=bad.jsonl --set train.steps=1 "$@"
}
record "no chosen answer" '"chosen" is missing' '{"prompt": "a", "rejected": "b"}'
record "no prompt" '"prompt" is missing' '{"chosen": "a", "rejected": "b"}'
record "an answer without text" '"rejected" .*is empty|no token to learn' '{"prompt": "", "chosen": "a", "rejected": ""}'
record "a list beside strings" 'as strings, or all as lists' '{"prompt": "a", "chosen": [{"role": "assistant", "content": "b"}], "rejected": "c"}'
record "a number" 'neither a string nor a list' '{"prompt": "a", "chosen": 1, "rejected": "c"}'
record "a member that would be lost" '"system" is not read' '{"system": "s", "prompt": "a", "chosen": "b", "rejected": "c"}'
record "no object" 'want an object' '["a", "b", "c"]'
LONG=$(printf '%0300d' 0)
record "a pair that is too long" 'data.seq_len|data.overlong' "{\"prompt\": \"a\", \"chosen\": \"$LONG\", \"rejected\": \"b\"}"
drops=$(seqctl submit dpo.json --set data.train.0.path=bad.jsonl --set train.steps=1 --set data.overlong=drop -o name -q)
succeeds "which is dropped" "$drops"
says "and counted" 'dropped_documents. *[:=]* *2' seqctl events "$drops" -o jsonl
says_of() { # ROLE TEXT: an answer of a conversation
    printf '[{"role": "user", "content": "a"}, {"role": "%s", "content": "%s"}]' "$1" "$2"
}
turns() { # NAME REGEX CHOSEN REJECTED: the same of a file of messages
    local name=$1 re=$2 example
    example=$(sed "s|client/examples/pairs.jsonl|$T/data/bad.jsonl|" "$EXAMPLES/train-dpo.json")
    { head -n 1 "$EXAMPLES/pairs.jsonl"; printf '{"chosen": %s, "rejected": %s}\n' "$3" "$4"; } >"$T/data/bad.jsonl"
    fails "$name" "bad.jsonl line 2: .*$re" - <<<"$example"
}
{ pairs 4; printf '{"prompt": "a", "chosen": "b", "rejected": "b"}\n'; } >"$T/data/same.jsonl"
equal=$(seqctl submit dpo.json --set data.train.0.path=same.jsonl --set train.steps=1 -o name -q)
succeeds "two equal answers as text" "$equal"
says "are told of" 'in 1 of 5 pairs both answers are equal' seqctl events "$equal" -o jsonl
turns "a role without answers" '"chosen": .*a turn of the role "assistant"' "$(says_of oracle b)" "$(says_of assistant c)"
turns "two equal answers" '"chosen" has no message after those of the prompt' "$(says_of assistant b)" "$(says_of assistant b)"
turns "no message" 'is no message' '["b"]' "$(says_of assistant c)"

# ---- refused -------------------------------------------------------------------------------------
refuse "answers are not cut" 1 'data.packing "concat" cuts answers' seqctl submit dpo.json --set data.packing=concat
refuse "nor truncated" 1 'data.overlong cuts answers' seqctl submit dpo.json --set data.overlong=truncate
refuse "no smoothing of ipo" 1 'objective.label_smoothing' seqctl submit dpo.json --set objective.loss=ipo --set objective.label_smoothing=0.1
refuse "no field of dpo without it" 1 'objective.beta 0.3 goes with objective.type "dpo" alone' seqctl submit dpo.json --unset objective.type --set objective.beta=0.3
refuse "no field of another objective" 1 'objective.mask_prob 0.3: objective.type "dpo" does not read it' seqctl submit dpo.json --set objective.mask_prob=0.3
fails "pairs in another training" 'set that, or give "text"' dpo.json --unset objective
for word in orpo kto simpo grpo; do
    refuse "$word by name" 1 "objective.type \"$word\" is not in this version: pairs of answers .*objective.type dpo" \
        seqctl submit dpo.json --set objective.type=$word
done
refuse "a loss of TRL" 1 'objective.loss "hinge" is not in this version' seqctl submit dpo.json --set objective.loss=hinge
refuse "TRL's names" 1 "rpo_alpha: seqd's is objective.sft_weight" seqctl submit dpo.json --set objective.rpo_alpha=1
refuse "and its options" 1 'no answer or prompt is cut' seqctl submit dpo.json --set data.max_prompt_length=5
refuse "its references" 1 'references are computed once' seqctl submit dpo.json --set objective.reference_free=true

seqd_stop || bad "seqd stops"
check "nothing is left running" nothing_left
lib_end
