#!/usr/bin/env bash
# An adapter through all programs: a model is trained, then an adapter of it, which is scored, trained
# further, resumed on other axes, pulled, pushed and published; jobs that name something else are refused.
#   BUILD=build/release   KEEP=1 keeps the state directory
# tests: needs data/train client/examples
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
EXAMPLES=$PWD/client/examples
lib_start adapter

make_text 60000 >"$T/data/text.txt"
head -c 2000 "$T/data/text.txt" >"$T/data/held.txt"
mkdir "$T/data/shared"
seqd_start --writable-root "$T/data/shared" || { lib_end; exit 1; }

spec() { # KIND MORE: a spec with these members beside kind
    printf '{"kind": "%s", "resources": {"ranks": 2, "threads": 1}, "seed": 1, %s}' "$1" "$2"
}
text='"data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 128}'
lora='"adapter": {"type": "lora", "rank": 4, "alpha": 8}'
loss_of() { field "$1" result.nll; }

spec train "\"model\": {\"config\": ${LLAMA/176/192}}, $text, \"train\": {\"steps\": 2}, \"optim\": {\"lr\": 1e-3}" >"$T/data/base.json"
base=$(seqctl submit base.json -o name -q)
succeeds "a model" "$base" || { lib_end; exit 1; }
other=$(seqctl submit base.json --set seed=2 -o name -q)
succeeds "another model of the same sizes" "$other" || { lib_end; exit 1; }

# ---- training ------------------------------------------------------------------------------------
spec train "\"model\": {\"path\": \"job:$base\"}, $lora, $text, \"train\": {\"steps\": 30, \"global_batch\": 2},
    \"optim\": {\"lr\": 1e-2}, \"schedule\": {\"warmup_steps\": 1}, \"parallel\": {\"sp\": 2, \"zero\": 3},
    \"checkpoint\": {\"every_steps\": 10}, \"verify\": {\"first_step\": true}" >"$T/data/adapt.json"
id=$(seqctl submit adapt.json -o name -q)
succeeds "an adapter, proven before its first step" "$id" || { lib_end; exit 1; }
says "the result names it" '/adapter$' field "$id" result.adapter
says "watch says where it is" 'adapter directory .*/adapter$' seqctl watch "$id"
check "pull" seqctl pull "$id" "$T/adapter" --part adapter
check "it is as peft saves one" test -f "$T/adapter/adapter_config.json" -a -f "$T/adapter/adapter_model.safetensors"
check "pull of the whole checkpoint" seqctl pull "$id" "$T/whole"
check "has the same adapter" diff -r "$T/whole/adapter" "$T/adapter"
refuse "it has no model to pull" 3 'no such part: adapter is one' seqctl pull "$id" "$T/none" --part hf
check "no checkpoint has the model" test -z "$(find "$STATE" -path "*/jobs/$id/checkpoints/*" -name hf)"

# ---- inference -----------------------------------------------------------------------------------
score='"data": {"seq_len": 128}, "input": {"path": "held.txt"}'
spec score "\"model\": {\"path\": \"job:$base\"}, $score" >"$T/data/bare.json"
spec score "\"model\": {\"path\": \"job:$base\", \"adapter\": \"job:$id\"}, $lora, $score" >"$T/data/score.json"
bare=$(seqctl submit bare.json -o name -q) with=$(seqctl submit score.json -o name -q)
succeeds "a score of the model" "$bare"
succeeds "a score with the adapter" "$with"
check "it is better" awk -v a="$(loss_of "$with")" -v b="$(loss_of "$bare")" 'BEGIN { exit !(a > 0 && a < 0.99 * b) }'
one=$(seqctl submit score.json --set resources.ranks=1 -o name -q)
succeeds "the same on one rank" "$one"
check "the same loss" awk -v a="$(loss_of "$with")" -v b="$(loss_of "$one")" 'BEGIN { d = a / b - 1; exit !(d * d < 1e-10) }'
cp -r "$T/adapter" "$T/data/own"
plain=$(seqctl submit score.json --set model.adapter=own -o name -q)
succeeds "from a directory" "$plain"
same "the same bits" "$(loss_of "$plain")" "$(loss_of "$with")"
cp -r "$T/adapter" "$T/data/peft" && rm "$T/data/peft/seqd.json"
free=$(seqctl submit score.json --set model.adapter=peft --set model.path="job:$other" -o name -q)
succeeds "an adapter that does not name its base, on any base" "$free"

small=$(seqctl submit score.json --set model.weights=int8 -o name -q)
succeeds "of a base in blocks of 8 bits" "$small"
check "about the same loss" awk -v a="$(loss_of "$small")" -v b="$(loss_of "$with")" 'BEGIN { d = a / b - 1; exit !(d != 0 && d * d < 1e-4) }'
printf '%s\n' '{"text": "the "}' '{"text": "and when"}' >"$T/data/prompts.jsonl"
prompt='"data": {"seq_len": 64}, "input": {"path": "prompts.jsonl"}, "sampling": {"temperature": 0, "max_tokens": 24}'
spec generate "\"model\": {\"path\": \"job:$base\"}, $prompt" >"$T/data/say.json"
spec generate "\"model\": {\"path\": \"job:$base\", \"adapter\": \"job:$id\"}, $lora, $prompt" >"$T/data/say-with.json"
said() { # options: the answers that a generate job writes
    local job; job=$(seqctl submit "$@" -o name -q --wait 2>"$T/out") || { cat "$T/out" >&2; return; }
    seqctl artifacts "$job" generate.jsonl --file "$T/said" >/dev/null && cat "$T/said"
}
own=$(said say-with.json)
check "it generates another text" test -n "$own" -a "$own" != "$(said say.json)"
same "the same text on one rank" "$(said say-with.json --set resources.ranks=1)" "$own"
same "the same text, two prompts at once" "$(said say-with.json --set infer.batch=2)" "$own"
check "and from blocks of 8 bits" test -n "$(said say-with.json --set model.weights=int8)"

# ---- several adapters, chosen by requests --------------------------------------------------------
narrow=$(seqctl submit adapt.json --set adapter.rank=2 --set adapter.alpha=3 --set adapter.rslora=true --set 'adapter.targets=["q_proj","down_proj"]' \
    --set train.steps=20 --set verify.first_step=false --set seed=5 -o name -q)
succeeds "another adapter of the model" "$narrow"
ask() { # ID MODEL: a request, whose model is left out if it is ""
    printf '{"custom_id": "%s", "method": "POST", "url": "/v1/completions", "body": {%s"prompt": "and when", "max_tokens": 12, "temperature": 0}}\n' "$1" "${2:+\"model\": \"$2\", }"
}
{ ask 1 wide; ask 2 narrow.1; ask 3 ""; ask 4 unknown; ask 5 wide; } >"$T/data/ask.jsonl"
asked='"data": {"seq_len": 64}, "input": {"path": "ask.jsonl", "format": "openai_batch"}'
spec generate "\"model\": {\"path\": \"job:$base\", \"adapters\": {\"wide\": \"job:$id\", \"narrow.1\": \"job:$narrow\"}}, $asked" >"$T/data/several.json"
answered() { # OPTIONS: the answers of a batch, by custom_id, without the name of the model
    local job; job=$(seqctl submit "$@" -o name -q --wait 2>"$T/out") || { cat "$T/out" >&2; return; }
    seqctl artifacts "$job" results.jsonl --file "$T/answers" >/dev/null && sed 's/"model": *"[^"]*"//' "$T/answers"
}
of() { grep "\"custom_id\": *\"$1\""; }
mixed=$(answered several.json)
check "each request has an answer" test "$(printf '%s\n' "$mixed" | grep -c custom_id)" = 5
by_wide=$(answered several.json --unset model.adapters --set model.adapter="job:$id")
by_narrow=$(answered several.json --unset model.adapters --set model.adapter="job:$narrow")
by_none=$(answered several.json --unset model.adapters)
same "that of the adapter alone" "$(of 1 <<<"$mixed")" "$(of 1 <<<"$by_wide")"
same "that of the other adapter alone" "$(of 2 <<<"$mixed")" "$(of 2 <<<"$by_narrow")"
same "that of the model alone" "$(of 3 <<<"$mixed")" "$(of 3 <<<"$by_none")"
check "they differ" test "$(of 2 <<<"$by_narrow")" != "$(of 2 <<<"$by_wide")" -a "$(of 2 <<<"$by_narrow")" != "$(of 2 <<<"$by_none")"
check "a request of no adapter is refused" grep -q 'model \\"unknown\\" is none of model.adapters, which has wide, narrow.1' <<<"$(of 4 <<<"$mixed")"
same "the same on one rank" "$(answered several.json --set resources.ranks=1 | of 2)" "$(answered several.json --unset model.adapters --set model.adapter="job:$narrow" --set resources.ranks=1 | of 2)"
cp -r "$T/adapter" "$T/data/mine"
relative=$(answered several.json --set model.adapters.wide=mine)
same "from a directory of the user" "$(of 1 <<<"$relative")" "$(of 1 <<<"$mixed")"
refuse "an adapter of another base" 10 'model.adapters.wide: the base' seqctl submit several.json --set model.path="job:$other" --wait
refuse "no such directory" 1 'model.adapters.wide' seqctl submit several.json --set model.adapters.wide="$T/data/nowhere"
refuse "prompts that choose nothing" 1 'other prompts name none' seqctl submit several.json --set input.format=jsonl

# ---- its other names -----------------------------------------------------------------------------
mkdir "$T/data/below" && cp -r "$T/adapter" "$T/data/below/mine"
below=$(env -C "$T/data/below" "$BIN/seqctl" submit ../score.json --set "input.path=$T/data/held.txt" --set model.adapter=mine -o name -q)
succeeds "a path relative to the user's directory" "$below"
same "the same bits" "$(loss_of "$below")" "$(loss_of "$with")"
check "push" seqctl push "$T/adapter" lora
pushed=$(seqctl submit score.json --set model.adapter=upload:lora -o name -q)
succeeds "from an upload" "$pushed"
same "the same bits" "$(loss_of "$pushed")" "$(loss_of "$with")"
unlisted() { ! seqctl model ls 2>&1 | grep -E 'adapter|/own|/mine'; }
check "an adapter's directory is not listed as a model" unlisted
refuse "nor checked as one" 1 'give this adapter in model.adapter' seqctl model check "$T/adapter"

# ---- model.adapter alone -------------------------------------------------------------------------
spec score "\"model\": {\"path\": \"job:$base\", \"adapter\": \"$T/data/own\"}, $score" >"$T/data/alone.json"
alone=$(seqctl submit alone.json -o name -q)
succeeds "model.adapter alone" "$alone"
same "the same bits" "$(loss_of "$alone")" "$(loss_of "$with")"
same "the job has its rank" "$(field "$alone" spec_effective.adapter.rank)" 4
same "and its factor" "$(field "$alone" spec_effective.adapter.alpha)" 8
same "and its products" "$(field "$alone" spec_effective.adapter.targets.0)" mlp.down_proj
of=$(seqctl submit alone.json --set model.adapter="job:$id" -o name -q)
succeeds "job:ID alone" "$of"
same "the same bits" "$(loss_of "$of")" "$(loss_of "$with")"
check "a plan of it" seqctl plan alone.json
check "a plan of it for other hardware" seqctl plan alone.json --set hardware.devices=2 --set hardware.memory_gib=8
check "all products, by another name" seqctl plan alone.json --set adapter.targets=all-linear
refuse "another rank" 1 'adapter.rank is 5.*is 4: leave adapter.rank out' seqctl submit alone.json --set adapter.rank=5
refuse "another factor" 1 'adapter.alpha is 9.*is 8: leave adapter.alpha out' seqctl submit alone.json --set adapter.alpha=9
refuse "no rslora" 1 'adapter.rslora is true.*is false' seqctl submit alone.json --set adapter.rslora=true
refuse "no adapter" 1 'adapter.type is "none"' seqctl submit alone.json --set adapter.type=none
refuse "other products" 1 'adapter.targets names other products.*mlp.down_proj' seqctl submit alone.json --set adapter.targets=attention
refuse "another rank in a plan" 1 'adapter.rank is 5' seqctl plan alone.json --set adapter.rank=5
refuse "no such directory" 1 'model.adapter|not exist' seqctl submit alone.json --set model.adapter="$T/data/nowhere"
refuse "a plan without the directory says how" 1 'adapter.targets and adapter.modules_to_save plans without it' \
    seqctl plan alone.json --set hardware.devices=2 --set hardware.memory_gib=8 --set model.adapter="$T/data/nowhere"
check "a plan that says what it is" seqctl plan alone.json --set hardware.devices=2 --set hardware.memory_gib=8 --set model.adapter="$T/data/nowhere" --set adapter.type=lora
mkdir "$T/data/empty"
refuse "a directory without an adapter" 1 'has no adapter_config.json' seqctl submit alone.json --set model.adapter="$T/data/empty"
check "pull the model" seqctl pull "$base" "$T/data/model" --part hf
refuse "a model is no adapter" 1 'is the directory of a model' seqctl submit alone.json --set model.adapter="$T/data/model"
refuse "an adapter's directory is no model" 1 'adapter in model.adapter' seqctl submit bare.json --set model.path="$T/data/own"

# ---- further -------------------------------------------------------------------------------------
more=$(seqctl submit adapt.json --set checkpoint.resume="job:$id" --set checkpoint.changes=true --set train.steps=40 \
    --set parallel.sp=1 --set parallel.tp=2 --set parallel.zero=1 --set verify.first_step=false -o name -q)
succeeds "resumed on other axes" "$more"
same "to the end" "$(field "$more" result.steps)" 40
check "pull the model" seqctl pull "$base" "$T/data/copy" --part hf
moved=$(seqctl submit adapt.json --set checkpoint.resume="job:$id" --set checkpoint.changes=true --set train.steps=35 \
    --set model.path=copy --set adapter.targets=all-linear -o name -q)
succeeds "resumed with the same base at another path, and the same products by name" "$moved"
spec train "\"model\": {\"config\": ${LLAMA/176/192}}, $lora, $text, \"train\": {\"steps\": 2}" >"$T/data/random.json"
random=$(seqctl submit random.json -o name -q)
succeeds "an adapter of random weights" "$random"
again=$(seqctl submit random.json --set checkpoint.resume="job:$random" --set checkpoint.changes=true --set train.steps=3 -o name -q)
succeeds "resumed on the same random weights" "$again"
from=$(seqctl submit adapt.json --set model.adapter="job:$id" --set train.steps=2 --set output.path=shared/lora -o name -q)
succeeds "trained further from an adapter" "$from"
check "it is published" diff -r "$T/data/shared/lora/adapter" "$(field "$from" result.adapter)"

# ---- the example ---------------------------------------------------------------------------------
mkdir "$T/data/client" && cp -r "$EXAMPLES" "$T/data/client"
example=$(seqctl submit "$EXAMPLES/train-lora.json" -o name -q)
succeeds "the example as it stands" "$example"
check "its loss falls" awk -v a="$(seqctl metrics "$example" -o jsonl | head -n 1 | grep -o '"loss": [0-9.]*' | cut -c 9-)" \
    -v b="$(field "$example" result.loss)" 'BEGIN { exit !(b > 0 && b < a) }'

ways() { # options: an adapter of a base in blocks
    seqctl submit adapt.json --set model.weights=int8 "$@" -o name -q
}
end_of() { field "$1" result.loss; }
in_blocks=$(ways --set parallel.zero=2)
succeeds "of a base in blocks, proven" "$in_blocks"
check "about the same loss as of numbers" awk -v a="$(end_of "$in_blocks")" -v b="$(end_of "$id")" 'BEGIN { d = a / b - 1; exit !(d != 0 && d * d < 1e-4) }'
cut=$(ways --set parallel.sp=1 --set parallel.tp=2 --set parallel.zero=0 --set verify.first_step=false)
succeeds "of a base in blocks that ranks share" "$cut"
check "the same loss" awk -v a="$(end_of "$cut")" -v b="$(end_of "$in_blocks")" 'BEGIN { d = a / b - 1; exit !(d * d < 1e-8) }'
shards=$(ways)
succeeds "of a base in blocks in shards, proven" "$shards"
same "with the same loss" "$(end_of "$shards")" "$(end_of "$in_blocks")"
refuse "blocks are not trained" 1 'set adapter.type' seqctl submit base.json --set model.weights=int8

# ---- merged --------------------------------------------------------------------------------------
merged=$(seqctl submit adapt.json --set checkpoint.merge=true --set checkpoint.every_steps=0 -o name -q)
succeeds "merged" "$merged"
same "the same adapter" "$(field "$merged" result.weights_sha256)" "$(field "$id" result.weights_sha256)"
whole=$(seqctl submit bare.json --set model.path="job:$merged" -o name -q 2>&1)
succeeds "a score of the merged model" "$whole"
check "the loss with the adapter" awk -v a="$(loss_of "$whole")" -v b="$(loss_of "$with")" 'BEGIN { d = a / b - 1; exit !(d * d < 1e-10) }'

# ---- merged by a job -----------------------------------------------------------------------------
job=$(seqctl merge "$id" -o name -q)
succeeds "a job that merges" "$job"
same "its adapter" "$(field "$job" spec_effective.model.adapter)" "job:$id/step-30/adapter"
same "its memory is the plan's" "$(field "$job" result.memory.high)" "$(field "$job" plan.memory.total_bytes)"
check "pull of a training's merged model" seqctl pull "$merged" "$T/merged" --part hf
check "pull of the job's" seqctl pull "$job" "$T/own-merged" --part hf
check "the same files, to the bit" diff -r "$T/merged" "$T/own-merged"
says "watch says where it is" 'model directory .*/hf$' seqctl watch "$job"
says "show has its result" 'parameters, with .* of an adapter merged' seqctl show "$job"
then=$(seqctl submit bare.json --set model.path="job:$job" -o name -q 2>&1)
succeeds "a score of its model" "$then"
same "the same bits" "$(loss_of "$then")" "$(loss_of "$whole")"
tuned=$(seqctl submit base.json --set model.path="job:$job" --unset model.config --set train.steps=2 -o name -q 2>&1)
succeeds "a training of it" "$tuned"
of_blocks=$(seqctl merge "$in_blocks" --set precision.params=bf16 -o name -q)
succeeds "a merge of a base that was trained in blocks" "$of_blocks"
succeeds "its model is read" "$(seqctl submit bare.json --set model.path="job:$of_blocks" -o name -q)"
put=$(seqctl merge "$id" --set output.path=shared/merged -n tuned -o name -q)
succeeds "a merge that is published" "$put"
check "it is there" diff -r "$T/data/shared/merged/hf" "$T/own-merged"
says "a plan of a merge" 'reads the model tensor by tensor' seqctl merge "$id" --dry-run
refuse "a merge of a whole model" 4 "job $base trained a whole model and no adapter" seqctl merge "$base"
refuse "a merge of a score" 4 'only a training has an adapter' seqctl merge "$bare"
refuse "a merge of random weights" 4 'train it with checkpoint.merge' seqctl merge "$random"
refuse "a ring for a merge" 1 'parallel.sp does not belong to a merge job' seqctl merge "$id" --set parallel.sp=2
refuse "two ranks for a merge" 1 'a merge job has one rank' seqctl merge "$id" --set resources.ranks=2
refuse "a merge without its model" 1 'model.path is missing' seqctl merge "$id" --unset model.path
refuse "a merge has no adapter" 1 "job $job merged an adapter into its model, and left no adapter" \
    seqctl submit score.json --set model.adapter="job:$job"
refuse "nothing resumes from it" 1 'left nothing to resume from: name the job in model.path' \
    seqctl submit adapt.json --set checkpoint.resume="job:$job" --set checkpoint.changes=true
wrong=$(seqctl merge "$id" --set model.path="job:$other" -o name -q)
seqctl watch "$wrong" -q --timeout $((60 * PATIENCE)) >"$T/watch.out" 2>&1
says "a merge into another base" 'give the same base by model.path' seqctl events "$wrong"
check "leaves nothing" test -z "$(find "$STATE" -path "*/jobs/$wrong/*" -name '*.safetensors')"
refuse "it has no adapter to pull" 3 'no such part: hf is one' seqctl pull "$job" "$T/none" --part adapter

refuse "no merge without an adapter" 1 'set adapter.type' seqctl submit base.json --set checkpoint.merge=true
refuse "nor of blocks" 1 'leave checkpoint.merge out, and merge the adapter by seqctl merge' seqctl submit adapt.json --set checkpoint.merge=true --set model.weights=int8 --set parallel.zero=0

# ---- whole modules -------------------------------------------------------------------------------
spec train "\"model\": {\"path\": \"job:$base\"}, $text, \"train\": {\"steps\": 12, \"global_batch\": 2},
    \"adapter\": {\"type\": \"lora\", \"rank\": 4, \"alpha\": 8, \"modules_to_save\": [\"embed_tokens\", \"lm_head\"]},
    \"optim\": {\"lr\": 1e-2, \"lr_saved\": 2e-3}, \"schedule\": {\"warmup_steps\": 1}, \"parallel\": {\"sp\": 2, \"zero\": 3},
    \"checkpoint\": {\"merge\": true}, \"verify\": {\"first_step\": true}" >"$T/data/saved.json"
saved=$(seqctl submit saved.json -o name -q)
succeeds "an adapter beside a whole embedding and head, proven" "$saved"
check "pull it" seqctl pull "$saved" "$T/data/both" --part adapter
check "it names them" grep -q '"modules_to_save":\["embed_tokens","lm_head"\]' "$T/data/both/adapter_config.json"
own=$(seqctl submit alone.json --set model.adapter=both -o name -q) whole=$(seqctl submit bare.json --set model.path="job:$saved" -o name -q)
succeeds "a score with model.adapter alone" "$own"
same "the job has its modules" "$(field "$own" spec_effective.adapter.modules_to_save.1)" embed_tokens
succeeds "a score of the merged model" "$whole"
check "the same loss" awk -v a="$(loss_of "$whole")" -v b="$(loss_of "$own")" 'BEGIN { d = a / b - 1; exit !(a > 0 && d * d < 1e-10) }'
both=$(seqctl merge "$saved" -o name -q)
succeeds "merged by a job" "$both"
check "pull of the training's merged model" seqctl pull "$saved" "$T/saved" --part hf
check "pull of the job's" seqctl pull "$both" "$T/own-saved" --part hf
check "the same files, to the bit" diff -r "$T/saved" "$T/own-saved"
check "it is better than the model's" awk -v a="$(loss_of "$own")" -v b="$(loss_of "$bare")" 'BEGIN { exit !(a < 0.99 * b) }'
rest=$(seqctl submit saved.json --set checkpoint.resume="job:$saved" --set checkpoint.changes=true --set train.steps=14 \
    --set parallel.sp=1 --set parallel.tp=2 --set parallel.zero=1 --set verify.first_step=false -o name -q)
succeeds "resumed on other axes" "$rest"
further=$(seqctl submit saved.json --set model.adapter=both --set train.steps=2 -o name -q)
succeeds "trained further" "$further"
blocks=$(seqctl submit saved.json --set model.weights=int8 --set parallel.zero=1 --set checkpoint.merge=false -o name -q)
succeeds "beside a base in blocks, proven" "$blocks"
succeeds "and merged" "$(seqctl merge "$blocks" -o name -q)"
refuse "another module" 1 'which are the embedding, embed_tokens, and the head, lm_head' seqctl submit saved.json --set adapter.modules_to_save=norm
refuse "other modules than its own" 1 'names other modules.*leave adapter.modules_to_save out' seqctl submit alone.json --set model.adapter=both --set adapter.modules_to_save=lm_head
refuse "modules that it does not have" 1 'which are none' seqctl submit alone.json --set adapter.modules_to_save=lm_head
refuse "a rate without modules" 1 'names none' seqctl submit adapt.json --set optim.lr_saved=1e-3
refuse "tied ones" 1 'tie_word_embeddings' seqctl submit random.json --set model.config.tie_word_embeddings=true --set adapter.modules_to_save=lm_head

# ---- refused -------------------------------------------------------------------------------------
fails() { # NAME REGEX options: the job fails, and its events name the reason
    local name=$1 re=$2 job; shift 2
    job=$(seqctl submit "$@" -o name -q)
    seqctl watch "$job" -q --timeout $((60 * PATIENCE)) >"$T/watch.out" 2>&1
    says "$name" "$re" seqctl events "$job"
}
sed -i 's/"lora_dropout":0,/"lora_dropout":0.25,/' "$T/data/own/adapter_config.json"
drops=$(seqctl submit adapt.json --set model.adapter=own --set train.steps=2 -o name -q)
succeeds "a training from an adapter with dropout" "$drops"
same "drops as much" "$(field "$drops" spec_effective.adapter.dropout)" 0.25
keeps=$(seqctl submit adapt.json --set model.adapter=own --set train.steps=2 --set adapter.dropout=0 -o name -q)
succeeds "and one that says to drop nothing" "$keeps"
same "drops nothing" "$(field "$keeps" spec_effective.adapter.dropout)" 0
succeeds "a score, which drops nothing" "$(seqctl submit score.json --set model.adapter=own -o name -q)"
fails "another base" "the base .*$other.* is not that of .*trained on the base .*$base.*give the same base" score.json --set model.path="job:$other"
printf '{"text": "a line"}\n' >"$T/data/lines.jsonl"
lines='"input": {"path": "lines.jsonl", "format": "jsonl", "text_key": "text"}'
named="\"model\": {\"path\": \"job:$base\", \"adapter\": \"job:$id\"}, $lora"
spec verify "$named, $text" >"$T/data/verify.json"
spec embed "$named, \"data\": {\"seq_len\": 128}, $lines" >"$T/data/embed.json"
spec generate "$named, \"input\": {\"prompt\": \"a\"}, \"sampling\": {\"max_tokens\": 2}" >"$T/data/generate.json"
for kind in verify embed generate; do
    same_base=$(seqctl submit $kind.json -o name -q)
    succeeds "$kind with an adapter" "$same_base"
    fails "$kind with another base" 'give the same base by model.path' $kind.json --set model.path="job:$other"
done
fails "another base to train further on" 'give the same base by model.path' adapt.json --set model.path="job:$other" --set model.adapter=own
fails "another base of a resumed job" 'give the same base by model.path' adapt.json --set checkpoint.resume="job:$id" \
    --set checkpoint.changes=true --set model.path="job:$other"
fails "another rate of a resumed job" 'made with optim.lr 0.01, .*set checkpoint.changes to true, as seqctl continue does, .*model.adapter .*/adapter starts from its adapter alone' adapt.json \
    --set checkpoint.resume="job:$id" --set optim.lr=0.02
fails "another storage of the base of a resumed job" 'was made with model.weights' adapt.json --set checkpoint.resume="job:$id" \
    --set model.weights=int8 --set parallel.zero=0
calm=$(seqctl submit adapt.json --set checkpoint.resume="job:$id" --set checkpoint.changes=true --set train.steps=32 --set adapter.dropout=0.1 -o name -q)
succeeds "resumed with dropout" "$calm"
refuse "another rank of a resumed job" 1 'has adapter.rank 4, and this job has 5' seqctl submit adapt.json --set checkpoint.resume="job:$id" --set adapter.rank=5
fails "other products of a resumed job" 'adapter.targets say nothing' adapt.json --set checkpoint.resume="job:$id" --set adapter.targets=attention
fails "modules of a resumed job that its checkpoint does not have" 'does not have' adapt.json --set checkpoint.resume="job:$id" --set adapter.modules_to_save=lm_head
fails "other modules of a resumed job" 'modules_to_save names lm_head' saved.json --set checkpoint.resume="job:$saved" --set checkpoint.merge=false --set adapter.modules_to_save=embed_tokens
spec embed "\"model\": {\"path\": \"job:$base\", \"adapter\": \"both\"}, \"data\": {\"seq_len\": 128}, $lines" >"$T/data/embed-both.json"
succeeds "embed with an adapter that has a head" "$(seqctl submit embed-both.json -o name -q)"
fails "other random weights of a resumed job" 'made with seed 1, this job has 2' random.json --set checkpoint.resume="job:$random" --set seed=2
refuse "no such product" 1 'names no product.*q_proj' seqctl submit score.json --set adapter.targets=w7
refuse "no such adapter" 1 'nonesuch does not exist on this node: give a path that it has' seqctl submit score.json --set model.adapter=nonesuch
refuse "an adapter is no model" 1 "job $id trained an adapter.* its base, job:$base/step-2/hf, in model.path" seqctl submit bare.json --set model.path="job:$id"
refuse "a model is no adapter" 1 "job $base trained a whole model" seqctl submit score.json --set model.adapter="job:$base"

seqd_stop || bad "seqd stops"
check "nothing is left running" nothing_left
lib_end
