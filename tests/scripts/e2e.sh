#!/usr/bin/env bash
# The life of jobs through the public interface: seqd --dev, seqctl and curl, tiny models.
#   BUILD=build/release   KEEP=1 keeps the state directory
# tests: needs client/examples data/exam.txt scripts/make_latents.sh @curl
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start e2e
EXAMPLES=$PWD/client/examples

MODEL="{\"config\": $LLAMA}"
DATA='{"train": [{"path": "text.txt", "format": "text"}], "seq_len": 512}'
RING='"parallel": {"strategy": "rsa", "sp": 2, "layout": "zigzag"}, "resources": {"ranks": 2, "threads": 1}'
TRAIN="{\"kind\": \"train\", \"name\": \"e2e\", \"model\": $MODEL, \"data\": $DATA, $RING, \"train\": {\"steps\": 40}, \"optim\": {\"lr\": 0.003}, \"checkpoint\": {\"every_steps\": 10}, \"seed\": 1}"

base() { head -n 1 "$STATE/address" | sed 's#^\(http://\)\{0,1\}#http://#'; }
# Every curl shows the token, as the documents have it.
curl() { command curl -H "Authorization: Bearer $(cat "$STATE/token")" "$@"; }
post() { # PATH BODY [curl options]: prints the body, then the status on a line of its own
    local path=$1 body=$2; shift 2
    printf '%s' "$body" | curl -sS -w '\n%{http_code}\n' -H 'Content-Type: application/json' "$@" --data-binary @- "$(base)$path"
}
answers() { # NAME STATUS REGEX PATH BODY [curl options]
    local name=$1 want=$2 re=$3 path=$4 body=$5; shift 5
    post "$path" "$body" "$@" >"$T/out" 2>&1
    if [ "$(tail -n 1 "$T/out")" != "$want" ]; then bad "$name: status $(tail -n 1 "$T/out"), want $want" "$T/out"
    elif ! grep -qE -- "$re" "$T/out"; then bad "$name: does not say /$re/" "$T/out"
    else ok "$name"; fi
}
submit() { # VARIANT of the training spec by --set words
    printf '%s' "$TRAIN" | seqctl submit - "$@"
}

# ---- start ------------------------------------------------------------------------------------
make_text 200000 >"$T/data/text.txt"
head -c 5000 tests/data/exam.txt >"$T/data/held.txt"
seqd_start || { lib_end; exit 1; }
ok "seqd starts on a free port and its node joins"
check "readyz" curl -fsS "$(base)/readyz"
check "livez" curl -fsS "$(base)/livez"
says "openapi" '^openapi: ' curl -fsS "$(base)/openapi.yaml"
says "version" 'seqd' seqctl version
says "nodes" 'up' seqctl nodes
says "an empty list" 'no jobs' seqctl ls

# A second seqd on the same port or state must not start.
port=$(base); port=${port##*:}
refuse "port in use" 1 "$port" timeout 20 "$BIN/seqd" --dev --state "$T/other" --listen "127.0.0.1:$port"
refuse "state directory in use" 1 'state|lock|another' timeout 20 "$BIN/seqd" --dev --state "$STATE" --listen 127.0.0.1:0

# ---- plan and train ---------------------------------------------------------------------------
printf '%s' "$TRAIN" >"$T/train.json"
says "plan" 'ring_kv' seqctl plan "$T/train.json"
planned=$(seqctl plan "$T/train.json" -o json | grep -o '"total_bytes": [0-9]*' | head -n 1 | grep -o '[0-9]*$')
id=$(submit -o name -q)
check "submit answers with an id" test "$id" -gt 0
check "watch to the end" seqctl watch "$id" --timeout $((60 * PATIENCE))
cp "$T/out" "$T/watched"
says "watch in a pipe has a line a step" 'step 40  loss' cat "$T/watched"
same "state" "$(field "$id" state)" succeeded
same "steps" "$(field "$id" step)" 40
same "memory == plan" "$(field "$id" last_metrics.memory.high)" "$planned"
same "bytes == formula" "$(field "$id" last_metrics.ledger_ok)" true
sha=$(field "$id" result.weights_sha256); hf=$(field "$id" result.hf)
check "weights have a digest" test "${#sha}" -eq 64
check "model directory is there" test -s "$hf/model.safetensors" -a -s "$hf/config.json"
says "events" 'checkpoint' seqctl events "$id"
same "one event stream line per step" "$(seqctl metrics "$id" -o jsonl | grep -c '"step":')" 40
says "logs" '.' seqctl logs "$id"
says "checkpoints" 'step-' seqctl checkpoints "$id" -o name
same "checkpoints: of the four, those that checkpoint.keep left" "$(seqctl checkpoints "$id" -o name | xargs -n 1 basename | tr '\n' ' ')" "step-00000020 step-00000030 step-00000040 "
check "checkpoints: each is there" sh -c 'for d; do test -s "$d/MANIFEST.json" || exit 1; done' - $(seqctl checkpoints "$id" -o name)
says "checkpoints: one was removed" 'checkpoint_removed.*step-00000010' seqctl events "$id"
check "artifacts list" seqctl artifacts "$id"
says "ls" 'succeeded' seqctl ls --state succeeded
says "show" 'memory .*== plan' seqctl show "$id"
says "explain" 'succeeded' seqctl explain "$id"
again=$(submit -o name -q); seqctl watch "$again" -q --timeout $((60 * PATIENCE)) >/dev/null 2>&1
same "the same job again has the same weights" "$(field "$again" result.weights_sha256)" "$sha"

# Streams: a client that names the last row it has gets the rows after it.
first=$(curl -sSN -H 'Accept: text/event-stream' "$(base)/v1/jobs/$id/events" | grep '^id:' | sed -n 2p | tr -d 'id: \r')
curl -sSN -H 'Accept: text/event-stream' -H "Last-Event-ID: $first" "$(base)/v1/jobs/$id/events" >"$T/rest"
curl -sSN -H 'Accept: text/event-stream' "$(base)/v1/jobs/$id/events" >"$T/whole"
same "events after Last-Event-ID" "$(grep -c '^data: {"seq' "$T/rest")" "$(($(grep -c '^data: {"seq' "$T/whole") - 2))"
check "streams end with the state" grep -A1 '^event: end' "$T/rest"
curl -sSN -H 'Accept: text/event-stream' -H "Last-Event-ID: $(grep '^id:' <(curl -sSN -H 'Accept: text/event-stream' "$(base)/v1/jobs/$id/metrics") | sed -n 30p | tr -d 'id: \r')" "$(base)/v1/jobs/$id/metrics" >"$T/rest"
same "metrics after Last-Event-ID" "$(grep -c '^data: {"step' "$T/rest")" 10

curl -sSN -H 'Accept: text/event-stream' "$(base)/v1/jobs/$id/logs?rank=1" >"$T/rest"
check "a log's stream ends with the state" grep -A1 '^event: end' "$T/rest"
seqctl logs "$id" --rank 1 -f 2>/dev/null | tail -n 1 >"$T/followed"
same "a followed log ends as the log does" "$(cat "$T/followed")" "$(seqctl logs "$id" --rank 1 | tail -n 1)"
says "the data of a step" 'text\.txt' seqctl data "$id" 40
same "pieces of a step are whole" "$(seqctl data "$id" 1 -o json | grep -o '"tokens": *[0-9]*' | grep -o '[0-9]*$')" 512
refuse "a step that does not exist" 3 '40 steps' seqctl data "$id" 41

# Idempotency: one key, one job; another body under the same key is refused.
key='Idempotency-Key: "e2e-1"'
one=$(post /v1/jobs "$TRAIN" -H "$key" | grep -o '"id":[0-9]*' | head -n 1)
two=$(post /v1/jobs "$TRAIN" -H "$key" | grep -o '"id":[0-9]*' | head -n 1)
same "a repeated submit is one job" "$two" "$one"
answers "a key with another body" 422 'another body' /v1/jobs "${TRAIN/\"seed\": 1/\"seed\": 2}" -H "$key"
seqctl cancel "${one#*:}" --wait -q >/dev/null 2>&1

# ---- resume, score, generate, verify ------------------------------------------------------------
step20=$(seqctl checkpoints "$id" -o name | grep -E 'step-0*20$')
resumed=$(submit -o name -q --set "checkpoint.resume=$step20")
seqctl watch "$resumed" -q --timeout $((60 * PATIENCE)) >/dev/null 2>&1
same "resumed from step 20: the same weights" "$(field "$resumed" result.weights_sha256)" "$sha"
SCORE="{\"kind\": \"score\", \"model\": {\"path\": \"$hf\"}, \"input\": {\"path\": \"held.txt\", \"format\": \"text\"}, \"data\": {\"seq_len\": 512}, $RING}"
score=$(printf '%s' "$SCORE" | seqctl submit - -o name -q --wait 2>"$T/out") && ok "score" || bad "score" "$T/out"
check "perplexity below that of chance" awk -v p="$(field "$score" result.ppl)" 'BEGIN { exit !(p > 1 && p < 250) }'
same "a score counts tokens to the end" "$(field "$score" progress.unit) $(field "$score" progress.fraction) $(field "$score" progress.done)" "tokens 1 $(field "$score" progress.total)"
says "ls: it is done" "^$score .*succeeded +100%" seqctl ls
says "show: it is done" '^progress +100%' seqctl show "$score"
one_rank=$(printf '%s' "$SCORE" | seqctl submit - -o name -q --wait --set parallel.sp=1 --set resources.ranks=1 --set parallel.strategy=local --set parallel.layout=auto 2>"$T/out")
check "score on 1 rank agrees to 1e-6" awk -v a="$(field "$score" result.nll)" -v b="$(field "$one_rank" result.nll)" 'BEGIN { d = a - b; exit !(b > 0 && d * d <= b * b * 1e-12) }'
GEN="{\"kind\": \"generate\", \"model\": {\"path\": \"$hf\"}, \"input\": {\"prompt\": \"static int \"}, \"sampling\": {\"temperature\": 0, \"max_tokens\": 24}, \"parallel\": {\"strategy\": \"rsa\", \"sp\": 2}, \"resources\": {\"ranks\": 2}}"
gen=$(printf '%s' "$GEN" | seqctl submit - -o name -q --wait 2>"$T/out") && ok "generate" || bad "generate" "$T/out"
same "24 tokens" "$(field "$gen" result.n_tokens)" 24
check "tokens a second of prefill and decode" awk -v p="$(field "$gen" result.prefill_tokens_s)" -v d="$(field "$gen" result.decode_tokens_s)" 'BEGIN { exit !(p > 0 && d > 0) }'
gen1=$(printf '%s' "$GEN" | seqctl submit - -o name -q --wait --set parallel.sp=1 --set resources.ranks=1 --set parallel.strategy=local 2>"$T/out")
same "1 rank writes the same text" "$(field "$gen1" result.text)" "$(field "$gen" result.text)"
check "generate.jsonl" seqctl artifacts "$gen" generate.jsonl --file "$T/generate.jsonl"
curve=$(printf '%s' "$SCORE" | seqctl submit - -o name -q --wait --set score.stride=256 --set score.by_position_bucket=64 --set score.token_logprobs=true 2>"$T/out") && ok "score with stride" || bad "score with stride" "$T/out"
same "only the document's first token is unscored" "$(field "$curve" result.unscored)" 1
check "without a stride every window's first is" test "$(field "$score" result.unscored)" -gt 5
check "tokens a second of the score" awk -v r="$(field "$score" result.tokens_s)" 'BEGIN { exit !(r > 0) }'
says "its curve" 'score-buckets.json' seqctl artifacts "$curve" -o name
says "a number per token" 'token-logprobs.npy' seqctl artifacts "$curve" -o name
mkdir -p "$T/data/client/examples"; cp "$EXAMPLES"/*.jsonl "$T/data/client/examples"
batch=$(seqctl submit "$EXAMPLES/generate-batch.json" -o name -q --wait --set infer.batch=1 2>"$T/out") && ok "a batch of requests" || bad "a batch of requests" "$T/out"
check "results.jsonl" seqctl artifacts "$batch" results.jsonl --file "$T/results.jsonl"
same "an answer each" "$(grep -c '"status_code":200' "$T/results.jsonl") of $(wc -l <"$EXAMPLES/requests.jsonl")" "4 of 4"
auto=$(seqctl submit "$EXAMPLES/generate-batch.json" -o name -q --wait 2>"$T/out") && ok "as many at once as fit" || bad "as many at once as fit" "$T/out"
at_once=$(field "$auto" plan.batch)
check "more than one" test "${at_once:-0}" -gt 1
same "the job keeps how many" "$(seqctl show "$auto" -o json | tr -d ' \n' | grep -o '"infer":{[^}]*}')" "\"infer\":{\"batch\":$at_once}"
same "their bytes == plan" "$(field "$auto" result.ledger)" equal
check "their results" seqctl artifacts "$auto" results.jsonl --file "$T/at_once.jsonl"
answers_of() { sed -E 's/"created":[0-9]+//' "$1"; }
same "the same answers" "$(answers_of "$T/at_once.jsonl")" "$(answers_of "$T/results.jsonl")"
sample=$(seqctl submit "$EXAMPLES/sample-tiny.json" -o name -q --wait 2>"$T/out") && ok "a diffusion model samples" || bad "a diffusion model samples" "$T/out"
same "switch bytes == plan for the sample" "$(field "$sample" result.ledger)" equal
same "memory == plan for the sample" "$(field "$sample" result.memory.high)" "$(field "$sample" result.memory.planned)"
check "a sample" seqctl artifacts "$sample" sample-00000.safetensors --file "$T/sample"
check "its latents, fp32" test "$(wc -c <"$T/sample")" -gt $((4 * 16 * 16 * 16 * 4))
one=$(seqctl submit "$EXAMPLES/sample-tiny.json" -o name -q --wait --set parallel.sp=1 --set resources.ranks=1 --set parallel.strategy=local --set determinism=ranks 2>"$T/out")
two=$(seqctl submit "$EXAMPLES/sample-tiny.json" -o name -q --wait --set determinism=ranks 2>"$T/out")
check "1 rank's samples" seqctl artifacts "$one" results.jsonl --file "$T/one"
check "2 ranks' samples" seqctl artifacts "$two" results.jsonl --file "$T/two"
check "the same bits" cmp "$T/one" "$T/two"
answers "a diffusion model has no temperature" 400 'sampling.temperature' /v1/jobs "$(sed 's/"steps"/"temperature": 1, "steps"/' "$EXAMPLES/sample-tiny.json")"
embed=$(seqctl submit "$EXAMPLES/embed-tiny.json" -o name -q --wait 2>"$T/out") && ok "embed" || bad "embed" "$T/out"
check "embeddings.npy" seqctl artifacts "$embed" embeddings.npy --file "$T/embeddings.npy"
same "a row of 64 floats a document" "$(wc -c <"$T/embeddings.npy")" $((128 + 4 * 64 * 4))
answers "a request's sampling is checked" 400 'sampling.top_k' /v1/jobs "${GEN/\"max_tokens\"/\"top_k\": 4, \"max_tokens\"}"
says "verify: 3 ranks == 1" '3 ranks == 1 rank' seqctl verify "$T/train.json" --set verify.keep_grads=true --set parallel.sp=3 --set resources.ranks=3 --set verify.max_tokens=500
verify=$(seqctl ls --limit 1 -o name)
says "verify keeps both gradient sets" 'grads-sp1' seqctl artifacts "$verify" -o name
check "a gradient set can be fetched" seqctl artifacts "$verify" grads-sp1.safetensors --file "$T/grads"
same "its digest" "$(sha256sum <"$T/grads" | cut -c 1-64)" \
    "$(seqctl artifacts "$verify" -o jsonl | grep grads-sp1.safetensors | grep -o '"sha256": "[0-9a-f]*' | tail -c 65)"
url="$(base)/v1/jobs/$verify/artifacts/grads-sp1.safetensors"
same "two ranges are the whole" "$( (curl -sS -r 0-12344 "$url"; curl -sS -r 12345- "$url") | sha256sum)" "$(sha256sum <"$T/grads")"
head -c 5000 "$T/grads" >"$T/again.part"
says "a broken download continues" 'continuing' seqctl artifacts "$verify" grads-sp1.safetensors --file "$T/again"
check "and is the same file" cmp "$T/grads" "$T/again"

# ---- the life of a training ----------------------------------------------------------------------
LIFE="${TRAIN%\}}, \"eval\": {\"data\": [{\"path\": \"held.txt\"}], \"every_steps\": 10, \"at_start\": true}, \"stages\": [{\"from_step\": 20, \"seq_len\": 700, \"lr\": 0.001}], \"schedule\": {\"type\": \"wsd\"}, \"verify\": {\"first_step\": true}}"
life=$(printf '%s' "$LIFE" | seqctl submit - -o name -q)
seqctl watch "$life" -q --timeout $((60 * PATIENCE)) >"$T/out" 2>&1
same "stages, evaluation, proof: state" "$(field "$life" state)" succeeded
seqctl events "$life" -o jsonl >"$T/life"
same "an event per evaluation" "$(grep -c '"type": "eval"' "$T/life")" 5
same "the proof before step 1" "$(grep -c '"type": "verified"' "$T/life")" 1
check "the best checkpoint is there" test -s "$(field "$life" result.best.checkpoint)/hf/model.safetensors"
check "its loss is the lowest" awk -v b="$(field "$life" result.best.loss)" -v l="$(field "$life" result.eval.loss)" 'BEGIN { exit !(b > 0 && b <= l) }'
same "bytes == formula in every stage" "$(field "$life" result.ledger)" equal
refuse "stages that do not ascend" 1 'stages\.1\.from_step' submit --set 'stages=[{"from_step":9},{"from_step":5}]'

# ---- diffusion -----------------------------------------------------------------------------------
bash tests/scripts/make_latents.sh "$T/data/latents"
flow=$(seqctl submit "$EXAMPLES/train-diffusion.json" -o name -q --wait 2>"$T/out") && ok "a diffusion model is trained" || bad "a diffusion model is trained" "$T/out"
same "switch bytes == formula, whatever the sample" "$(field "$flow" result.ledger)" equal
same "memory == plan" "$(field "$flow" last_metrics.memory.high)" "$(field "$flow" last_metrics.memory.planned)"
check "switches were counted" test "$(field "$flow" last_metrics.comm.switch.bytes_sent)" -gt 0
seqctl events "$flow" -o jsonl >"$T/flow"
same "an evaluation each" "$(grep -c '"type": "eval"' "$T/flow")" 3
same "4 ranks == 1 rank before step 1" "$(grep -c '"type": "verified"' "$T/flow")" 1
check "averaged weights" test -s "$(field "$flow" result.hf_ema)/model.safetensors"
says "where a step's latents came from" 'latents/latents.jsonl' curl -sS "$(base)/v1/jobs/$flow/steps/3/data"
says "verify: 3 ranks == 1, samples of any size" '3 ranks == 1 rank' seqctl verify "$EXAMPLES/train-diffusion.json" --set parallel.sp=3
says "and by heads" '2 ranks == 1 rank' seqctl verify "$EXAMPLES/train-diffusion.json" --set parallel.sp=2 --set parallel.form=ulysses
refuse "a sample larger than the plan's largest" 10 'latents\.jsonl line 1: .*data\.frames' seqctl submit "$EXAMPLES/train-diffusion.json" --wait --set data.frames=4
refuse "a diffusion model without sizes" 1 'data\.frames' seqctl submit "$EXAMPLES/train-diffusion.json" --set data.frames=0
refuse "tokens of latents" 1 'train\.tokens' seqctl submit "$EXAMPLES/train-diffusion.json" --set 'train={"tokens":100}'

# ---- cancel -----------------------------------------------------------------------------------
# Progress of a long score: in submit --wait, in ls and in watch.
printf '%s' "$SCORE" >"$T/slow.json"
: >"$T/waited"; : >"$T/watched"
seqctl submit "$T/slow.json" --wait --set input.path=text.txt --set score.stride=1 2>"$T/waited" >"$T/slow" & waiting=$!
until_ok 600 grep -q '% .* of .* tokens' "$T/waited" && ok "submit --wait: how far it is" || bad "submit --wait: no progress" "$T/waited"
slow=$(sed -n 's/^job \([0-9]*\) .*/\1/p' "$T/slow" | head -n 1)
moves() { seqctl ls | grep -qE "^$slow .*running +[0-9]+% +[0-9,]+ tokens/s +[0-9]+"; }
until_ok 600 moves && ok "ls: per cent, rate, time left" || { seqctl ls >"$T/out"; bad "ls: no progress" "$T/out"; }
seqctl watch "$slow" >"$T/watched" 2>&1 & watching=$!
until_ok 600 grep -q '% .*ETA' "$T/watched" && ok "watch in a pipe: a line a per cent" || bad "watch: no progress" "$T/watched"
check "cancel it" seqctl cancel "$slow" --wait --timeout $((30 * PATIENCE))
wait "$waiting"; same "submit --wait ends as the job does" $? 11
wait "$watching"; same "watch ends as the job does" $? 11

long=$(submit -o name -q --set train.steps=100000)
wait_step "$long" 5 && check "cancel a running job" seqctl cancel "$long" --wait --timeout $((30 * PATIENCE)) || bad "cancel: the job does not step"
same "state" "$(field "$long" state)" cancelled
check "its ranks are gone" until_ok 50 no_gang
refuse "waiting for a cancelled job" 11 'cancelled' seqctl watch "$long"
check "cancel again changes nothing" seqctl cancel "$long"
big=$(submit -o name -q --set train.steps=100000 --set resources.ranks=8 --set parallel.sp=8)
wait_event "$big" ready
queued=$(submit -o name -q --set resources.ranks=8 --set parallel.sp=8 --set priority=10)
wait_event "$queued" prepared
says "a queued job says why" 'slot|rank' seqctl explain "$queued"
seqctl cancel "$queued" -q >/dev/null; same "cancelled while queued" "$(field "$queued" state)" cancelled
seqctl cancel "$big" --wait -q --timeout $((30 * PATIENCE)) >/dev/null

# ---- bad input ----------------------------------------------------------------------------------
answers "malformed JSON" 400 'line|column|JSON' /v1/jobs '{"kind": "train",'
answers "a body that is not an object" 400 'object' /v1/jobs '[1,2]'
answers "duplicate keys" 400 'duplicate' /v1/jobs '{"kind":"train","kind":"score"}'
answers "deep nesting" 400 'deep|nest|level' /v1/jobs "$(printf '[%.0s' {1..3000})"
answers "invalid UTF-8" 400 'UTF-8|JSON' /v1/jobs $'{"name":"\xff"}'
answers "a string of 70 KB" 413 '64 KiB|65536|limit' /v1/jobs "{\"kind\":\"train\",\"model\":{\"path\":\"$(head -c 70000 /dev/zero | tr '\0' a)\"}}"
head -c 1200000 /dev/zero | tr '\0' ' ' >"$T/big"
same "a body of 1.2 MB" "$(curl -sS -o /dev/null -w '%{http_code}' -H 'Content-Type: application/json' --data-binary @"$T/big" "$(base)/v1/jobs")" 413
same "not JSON by its type" "$(curl -sS -o /dev/null -w '%{http_code}' -H 'Content-Type: text/plain' -d '{}' "$(base)/v1/jobs")" 415
same "a foreign Host" "$(curl -sS -o /dev/null -w '%{http_code}' -H 'Host: evil.example' "$(base)/v1/jobs")" 403
refuse "an unknown field" 1 'data\.seq_len' submit --set data.seqlen=5
refuse "an unknown strategy" 1 'strategy' submit --set parallel.strategy=rsb
refuse "an impossible shape" 1 'num_key_value_heads' submit --set model.config.num_key_value_heads=3
refuse "an odd head" 1 'head_dim' submit --set model.config.head_dim=7
refuse "more ranks than tokens" 1 'sp' submit --set data.seq_len=1
refuse "a negative length" 1 'seq_len' submit --set data.seq_len=-4
refuse "zigzag and invariant bits" 1 'layout' submit --set determinism=ranks
refuse "a job that does not fit" 1 'MiB|GiB' submit --set resources.memory_mib=1
refuse "its plan" 1 'MiB|GiB' seqctl plan "$T/train.json" --set data.seq_len=67108864 --set resources.memory_mib=1000
refuse "no such job" 3 '99999' seqctl show 99999
refuse "no such artifact" 3 'nothing' seqctl artifacts "$id" nothing --file "$T/x"
same "a path out of artifacts" "$(curl -sS -o /dev/null -w '%{http_code}' --path-as-is "$(base)/v1/jobs/$id/artifacts/..%2f..%2f..%2f..%2fseqd.db" | head -c 1)" 4
refuse "a missing data file" 1 'data\.train.*nowhere\.txt|nowhere\.txt' submit --wait --set 'data.train=[{"path":"nowhere.txt"}]'
refuse "a file outside the roots" 1 'passwd' submit --wait --set 'data.train=[{"path":"/etc/passwd"}]'
printf '{"text": "fine"}\n{"text": 5}\n' >"$T/data/bad.jsonl"
refuse "a bad line of JSONL" 10 'bad\.jsonl.*2|line 2' submit --wait --set 'data.train=[{"path":"bad.jsonl"}]'

# Damaged files: prepared data, a model, a checkpoint.
cp -r "$hf" "$T/data/rotten" 2>/dev/null; truncate -s -100 "$T/data/rotten/model.safetensors"
refuse "a truncated model" 1 'model\.safetensors' seqctl submit - --wait <<<"${SCORE/$hf/$T/data/rotten}"
cp "$hf/model.safetensors" "$T/data/rotten/"; printf '\377\377\377\377\377\377\377\177' | dd of="$T/data/rotten/model.safetensors" conv=notrunc status=none
refuse "a hostile safetensors header" 1 'model\.safetensors' seqctl submit - --wait <<<"${SCORE/$hf/$T/data/rotten}"
cp -r "$step20" "$T/data/step-00000020" 2>/dev/null; victim=$(find "$T/data/step-00000020" -name 'optim*.safetensors' | head -n 1)
flip_bit "$victim" 5000
refuse "a corrupt checkpoint on resume" 10 'optim|sha256|digest' submit --wait --set "checkpoint.resume=$T/data/step-00000020"
prepared=$(find "$STATE" -name tokens.bin | head -n 1)
truncate -s 1000 "$prepared"
# Prepared data is a cache: it is made again, or the job names the damaged file.
submit --wait --set seed=77 >"$T/out" 2>&1
if [ $? -eq 0 ] || grep -q 'tokens\.bin' "$T/out"; then ok "truncated prepared data"; else bad "truncated prepared data" "$T/out"; fi

# ---- the end ------------------------------------------------------------------------------------
says "seqd is still ready" 'up' seqctl nodes
check "seqd stops on Ctrl-C" seqd_stop
check "nothing is left running" until_ok 50 nothing_left
seqd_start && ok "starts again on the same state"
same "and knows its jobs" "$(field "$id" result.weights_sha256)" "$sha"
check "stops when its terminal goes" seqd_stop HUP
check "nothing is left running" until_ok 50 nothing_left
# With BUILD=build/asan or build/tsan a report is in a log, of seqd or of a rank.
same "no sanitizer report" "$(grep -rlE 'AddressSanitizer|ThreadSanitizer|runtime error:|LeakSanitizer' "$T"/*.log "$STATE" 2>/dev/null | wc -l)" 0
lib_end
