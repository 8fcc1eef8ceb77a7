#!/usr/bin/env bash
# A job that serves, through all programs: curl asks it as a client of OpenAI's API does. A killed rank
# loses what is open, and the job serves again. No prompt and no answer is in a file.
#   BUILD=build/release   KEEP=1 keeps the state directory
# tests: needs client/examples @curl
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start serve
command -v curl >/dev/null || nothing_tested serve "there is no curl"

cp -r client/examples/demo-model "$T/data/model"
cat >"$T/data/serve.json" <<'END'
{"kind": "serve", "name": "reader", "model": {"path": "model", "init": "random"}, "seed": 1,
 "data": {"seq_len": 2048}, "sampling": {"max_tokens": 2000}, "serve": {"max_requests": 4, "drain_s": 60},
 "resources": {"ranks": 2, "threads": 1}}
END
SECRET=the-prompt-that-no-file-has
seqd_start || { lib_end; exit 1; }
URL=$(cat "$STATE/address") TOKEN=$(cat "$STATE/token")

# ask PATH [BODY [options of curl]]: the status goes to $STATUS, the body to $T/answer.
ask() {
    local path=$1 body=${2:-}; shift; shift 2>/dev/null
    STATUS=$(curl -s -m 120 -o "$T/answer" -D "$T/heads" -w '%{http_code}' -H "Authorization: Bearer $TOKEN" \
        ${body:+-H 'Content-Type: application/json' --data-binary "$body"} "$@" "$URL/openai/v1/$path")
}
# answers NAME STATUS REGEX PATH [BODY]: the status, and a body that matches.
answers() {
    local name=$1 want=$2 re=$3; shift 3
    ask "$@"
    if [ "$STATUS" != "$want" ]; then bad "$name (status $STATUS, want $want)" "$T/answer"
    elif ! grep -qE -- "$re" "$T/answer"; then bad "$name (does not say /$re/)" "$T/answer"
    else ok "$name"; fi
}
serves() { ask completions '{"model": "reader", "prompt": "a", "max_tokens": 1}'; [ "$STATUS" = 200 ]; }
state_is() { [ "$(field "$id" state)" = "$1" ]; }
listed() { ask models; grep -q '"id": *"reader"' "$T/answer"; }
no_secret() { ! grep -rqsa "$SECRET" "$STATE" "$T"/seqd.*.log; }
begun() { grep -q '^data: {' "$T/stream"; }

answers "no model yet" 200 '"data": *\[\]' models
answers "a model that does not exist" 404 model_not_found completions '{"model": "reader", "prompt": "a"}'
id=$(seqctl submit serve.json -o name -q)
until_ok 600 listed && ok "the job serves" || { bad "the job serves" "$T/answer"; lib_end; exit 1; }

# ---- answers -------------------------------------------------------------------------------------
answers "a completion" 200 '"text_completion".*"usage"' completions \
    "{\"model\": \"reader\", \"prompt\": \"$SECRET\", \"max_tokens\": 8, \"seed\": 1}"
cp "$T/answer" "$T/first"
answers "the same by the job's id" 200 '"completion_tokens": *8' completions \
    "{\"model\": \"$id\", \"prompt\": \"$SECRET\", \"max_tokens\": 8, \"seed\": 1}"
text_of() { grep -o '"text": *"[^"]*"' "$1"; }
same "has the same text" "$(text_of "$T/answer")" "$(text_of "$T/first")"
answers "a stream" 200 '^data: \[DONE\]' completions \
    "{\"model\": \"reader\", \"prompt\": \"$SECRET\", \"max_tokens\": 8, \"stream\": true}"
check "of events" grep -qi 'content-type: text/event-stream' "$T/heads"
answers "a chat" 200 '"chat.completion".*"assistant"' chat/completions \
    "{\"model\": \"reader\", \"messages\": [{\"role\": \"user\", \"content\": \"$SECRET\"}], \"max_tokens\": 8}"
answers "ids of a text" 200 '"tokens"' tokenize '{"model": "reader", "prompt": "The ranks"}'
tokens=$(grep -o '"tokens": *\[[^]]*\]' "$T/answer")
answers "text of ids" 200 'The ranks' detokenize "{\"model\": \"reader\", $tokens}"

# ---- refusals ------------------------------------------------------------------------------------
answers "a wrong model" 404 model_not_found completions '{"model": "other", "prompt": "a"}'
answers "a wrong value" 400 '"param": *"max_tokens"' completions \
    '{"model": "reader", "prompt": "a", "max_tokens": -1}'
long=$(printf 'The ranks. %.0s' $(seq 1000))
answers "a prompt that is too long" 400 context_length_exceeded completions \
    "{\"model\": \"reader\", \"prompt\": \"$long\"}"
answers "no JSON" 400 '"error"' completions '{'
TOKEN=none answers "no token" 401 authentication_error models

# ---- a killed rank -------------------------------------------------------------------------------
long_stream='{"model": "reader", "prompt": "a", "max_tokens": 2000, "stream": true, "ignore_eos": true}'
: >"$T/stream"
curl -sN -m 120 -o "$T/stream" -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
    -d "$long_stream" "$URL/openai/v1/completions" &
reader=$!
until_ok 100 begun && ok "a long stream begins" || bad "a long stream begins" "$T/stream"
kill -9 "$(procs seqrank | head -1)"
until_ok 100 gone "$reader" && ok "it ends with its rank" || bad "it ends with its rank"
check "with an error" grep -q '"error"' "$T/stream"
until_ok 600 serves && ok "the job serves again" || bad "the job serves again" "$T/answer"
kill -9 "$(procs seqw)"
until_ok 600 serves && ok "also after its agent was killed" || bad "also after its agent was killed" "$T/answer"

# ---- the end -------------------------------------------------------------------------------------
: >"$T/stream"
curl -sN -m 120 -o "$T/stream" -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
    -d "$long_stream" "$URL/openai/v1/completions" &
reader=$!
until_ok 100 begun || bad "a stream before the cancel" "$T/stream"
check "cancel" seqctl cancel "$id"
ask completions '{"model": "reader", "prompt": "a"}' # 404 once the job has ended
check "takes no more requests" grep -qE '503|404' <<<"$STATUS"
wait "$reader"
check "the open request is answered" grep -q '^data: \[DONE\]' "$T/stream"
until_ok 300 state_is succeeded && ok "the job has succeeded" || bad "the job is $(field "$id" state)"
check "with counts" test "$(field "$id" result.requests)" -ge 1
check "nothing is left running" until_ok 100 no_gang
check "no prompt is in a file" no_secret
seqd_stop
lib_end
