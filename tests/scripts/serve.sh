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

# Asks a shared job the same prompt as its owner and as another user. Prints the tokens that the second one took.
BOB=$(seqctl tokens create --user bob -q) || bad "a token for bob"
taken_by_bob() { # NAME
    local said
    said=$(printf 'The ranks of a ring. %.0s' $(seq 20))
    ask completions "{\"model\": \"$1\", \"prompt\": \"$said\", \"max_tokens\": 1}"
    TOKEN=$BOB ask completions "{\"model\": \"$(field "$id" owner)/$1\", \"prompt\": \"$said\", \"max_tokens\": 1}"
    grep -o '"cached_tokens": *[0-9]*' "$T/answer" | grep -o '[0-9]*$' || cat "$T/answer"
}

# ---- seqctl serve and chat ----------------------------------------------------------------------
# A model directory: its name, and its positions.
base=$(seqctl serve model -q --set model.init=random --set seed=1 --set serve.max_requests=2 --set serve.shared=true --set resources.threads=1)
same "serve -q prints the base URL" "$base" "$URL/openai/v1"
two=$(seqctl ls --name model -o name -q)
same "a model directory has its positions" "$(field "$two" spec_effective.data.seq_len) $(field "$two" spec_effective.sampling.max_tokens)" "4096 1024"
same "another user takes nothing of a prompt" "$(taken_by_bob model)" 0
talk() { printf '%s\n' "$@" | seqctl chat model --max-tokens 8 2>"$T/talk.err"; }
talk "Who are you?" "Why?" >"$T/talk" && ok "chat from a pipe" || bad "chat from a pipe" "$T/talk.err"
check "an answer a line" test "$(wc -l <"$T/talk")" -ge 2
check "--raw" test -n "$(echo "The ranks of" | seqctl chat model --raw --max-tokens 8 -q | tr -d '\0')"
refuse "chat with no such job" 3 'no job of kind serve named "other"' seqctl chat other
refuse "an error of the server" 1 'max_tokens' sh -c "echo a | '$BIN/seqctl' chat model --max-tokens 5000"
refuse "a temperature in words" 2 'temperature "hot"' seqctl chat model --temperature hot
check "cancel it" seqctl cancel model --wait --timeout $((60 * PATIENCE))
# A job that waits: no machine of a test has 4,000 slots in one node.
waits() { seqctl serve serve.json --set resources.ranks=64 --set parallel.sp=64 "$@" >"$T/waits" 2>&1; }
waits --name first --timeout 0; same "serve does not wait for longer than --timeout" $? 124
waits --name second & waiting=$!
until_ok 100 seqctl cancel second >/dev/null 2>&1
wait "$waiting"; same "serve ends as a job that never serves" $? 11
check "cancel the other" seqctl cancel first
# The lines that serve prints for a shell work in one. A model of bytes has no chat template.
check "init serve" seqctl init serve made.yaml
seqctl serve made.yaml --name made --set resources.threads=1 --set serve.shared=true --set serve.share_prefixes=true >"$T/lines" 2>"$T/out" && ok "serve takes it" || bad "serve takes it" "$T/out"
check "no token is in the lines" sh -c "! grep -q '$TOKEN' '$T/lines'"
sed -i 's#/chat/completions#/completions#; s#"messages": *\[.*\]#"prompt": "a"#' "$T/lines"
says "its lines ask the job" '"text_completion"' bash "$T/lines"
check "with serve.share_prefixes another user takes pages" test "$(taken_by_bob made)" -ge 64
check "cancel it, too" seqctl cancel made --wait --timeout $((60 * PATIENCE))

# ---- the end -------------------------------------------------------------------------------------
: >"$T/stream"
curl -sN -m 120 -o "$T/stream" -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
    -d "$long_stream" "$URL/openai/v1/completions" &
reader=$!
until_ok 100 begun || bad "a stream before the cancel" "$T/stream"
check "cancel" seqctl cancel "$id"
ask completions '{"model": "reader", "prompt": "a"}'
check "takes no more requests" grep -q 503 <<<"$STATUS"
wait "$reader"
check "the open request is answered" grep -q '^data: \[DONE\]' "$T/stream"
until_ok 300 state_is succeeded && ok "the job has succeeded" || bad "the job is $(field "$id" state)"
check "with counts" test "$(field "$id" result.requests)" -ge 1
check "nothing is left running" until_ok 100 no_gang
check "no prompt is in a file" no_secret
seqd_stop
lib_end
