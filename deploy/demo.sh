#!/usr/bin/env bash
# make demo: in some minutes, trains a model on real text, kills a rank, and tests the result. Every step is a command
# of seqctl, curl or kill that you can also type yourself.
#   BUILD=build/release    the folder of the programs
#   STEPS=100              the number of training steps
set -u
cd "$(dirname "$0")/.." || exit 2
REPO=$PWD
PATH=$REPO/${BUILD:-build/release}:$PATH
STEPS=${STEPS:-100}
SPEC=$REPO/client/examples/train-demo.json
for p in seqd seqctl seqw seqgang seqrank; do
    command -v "$p" >/dev/null || { echo "demo: $p is not built: run make first"; exit 1; }
done
DIR=$(mktemp -d "${TMPDIR:-/tmp}/seqd-demo.XXXXXX") || exit 1
export SEQD_URL=$DIR/state
SEQD= KILLER=
START=$SECONDS

say() { printf '\n%s\n' "$*"; }
show() { # prints a command as one would type it
    local w
    printf '$'
    for w in "$@"; do
        case $w in *[\[\]{}\"*\'\ ]*) [ $# -gt 1 ] && w="'${w//\'/\'\\\'\'}'" ;; esac
        printf ' %s' "$w"
    done
    printf '\n'
}
run() { show "$@"; "$@"; }
# Does not use awk, because an awk that reads its input in blocks would print nothing for minutes.
cut_to() { # COLUMNS: a line that is cut ends with dots
    local line
    while IFS= read -r line; do
        [ "${#line}" -le "$1" ] || line=${line:0:$(($1 - 3))}...
        printf '%s\n' "$line"
    done
}
every_fifth() { # leaves out the lines of the other steps
    local line word step rest
    while IFS= read -r line; do
        read -r word step rest <<<"$line"
        [ "$word" = step ] && [ $((step % 5)) -ne 0 ] || printf '%s\n' "$line"
    done
}
stop_all() { # leaves no process, however the demo ends
    # shellcheck disable=SC2046
    [ -n "$KILLER" ] && kill $(below "$KILLER") "$KILLER" 2>/dev/null
    KILLER=
    [ -n "$SEQD" ] && kill -INT "$SEQD" 2>/dev/null && wait "$SEQD" 2>/dev/null
    SEQD=
}
fail() {
    printf '\ndemo: %s\n' "$1"
    if [ -n "${JOB:-}" ]; then seqctl events "$JOB" 2>/dev/null | tail -n 8; seqctl logs "$JOB" 2>/dev/null | tail -n 8; fi
    echo "--- the end of $DIR/seqd.log"; tail -n 15 "$DIR/seqd.log" 2>/dev/null
    stop_all
    exit 1
}
trap stop_all EXIT
trap 'exit 130' INT TERM
# Prints the pids of all descendants of a process: seqd -> seqw -> seqgang -> seqrank.
below() {
    local kid
    for kid in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do echo "$kid"; below "$kid"; done
}
ranks() {
    local p
    for p in $(below "$SEQD"); do [ "$(cat "/proc/$p/comm" 2>/dev/null)" = seqrank ] && echo "$p"; done
}
field() { seqctl show "$JOB" --field "$1" 2>/dev/null; }

# ---- 1 ------------------------------------------------------------------------------------------
say "1. Text to learn from: documents of this project, as they were once. One is kept for the exam."
mkdir -p "$DIR/text"
cp -r tests/data/train tests/data/exam.txt "$DIR/text"
cp -r "$REPO/client/examples/demo-model" "$DIR/text" # a config.json, a tokenizer and a chat template: no weights
echo "$(ls "$DIR/text/train" | wc -l) files, $(cat "$DIR"/text/train/* | wc -c) bytes; exam: $(wc -c <"$DIR/text/exam.txt") bytes"

# ---- 2 ------------------------------------------------------------------------------------------
say "2. Start the daemon: loopback only, all state in one directory, one local node. The commands of this
   demo can be typed in another terminal while it runs, after these two lines:"
echo "\$ export PATH=${PATH%%:*}:\$PATH SEQD_URL=$SEQD_URL"
echo "\$ cd $DIR/text"
show "seqd --dev --state $DIR/state --listen 127.0.0.1:0 &"
cd "$DIR/text" || exit 1
seqd --dev --state "$DIR/state" --listen 127.0.0.1:0 >"$DIR/seqd.log" 2>&1 &
SEQD=$!
# Wait until the node has measured its speed, because a plan has no times before that.
for ((i = 0; i < 300; i++)); do
    seqctl nodes -o json 2>/dev/null | grep -q hop_s && break
    kill -0 "$SEQD" 2>/dev/null || fail "seqd did not start"
    sleep 0.1
done
[ "$i" -lt 300 ] || fail "the node has not measured itself within 30 s"
ADDRESS=$(sed 's#^http://##' "$DIR/state/address")
run curl -fsS "http://$ADDRESS/readyz" || fail "seqd is not ready"; echo
run seqctl nodes || fail "no node"

# ---- 3 ------------------------------------------------------------------------------------------
say "3. Plan before running: a new model of 5 million parameters with a tokenizer of its own (demo-model has a
   config.json and a tokenizer.json, and no weights), sequences of 4096 tokens over 2 ranks."
TRAIN=("$SPEC" --set model.path=demo-model --set 'data.train=[{"path":"train/*","format":"text"}]' --set "train.steps=$STEPS")
run seqctl plan "${TRAIN[@]}" || fail "the plan was refused"

# ---- 4 ------------------------------------------------------------------------------------------
say "4. Train, and watch it. Right after the first checkpoint a rank is killed with kill -9;
   the job starts again from that checkpoint by itself."
show seqctl submit "${TRAIN[@]}" -o name
JOB=$(seqctl submit "${TRAIN[@]}" -o name) || fail "the job was refused"
(
    while read -r event; do
        case $event in *'"type": "checkpoint"'*) ;; *) continue ;; esac
        victim=$(ranks | tail -n 1)
        kill -9 "$victim" && echo "kill -9 $victim" >"$DIR/killed"
        break
    done < <(seqctl events "$JOB" -f -o jsonl 2>/dev/null)
) &
KILLER=$!
show "seqctl watch $JOB"
if [ -t 1 ]; then seqctl watch "$JOB"
else
    echo "(no terminal: every fifth step)"
    seqctl watch "$JOB" 2>&1 | every_fifth | cut_to 150
fi
wait "$KILLER"; KILLER=
[ "$(field state)" = succeeded ] || fail "the job ended as $(field state)"
[ -s "$DIR/killed" ] || fail "no rank was killed"
seqctl events "$JOB" -o jsonl | grep -q '"signal": 9' || fail "the kill left no event"
echo "this happened meanwhile: $(cat "$DIR/killed"), a seqrank. What seqd wrote down:"
show "seqctl events $JOB"
seqctl events "$JOB" | cut_to 150
LOSS=$(seqctl metrics "$JOB" -o jsonl | tail -n 10 | sed 's/.*"loss": \([0-9.e+-]*\), "grad.*/\1/' | awk '{ s += $1 } END { print s / NR }')
ENTROPY=$(field result.unigram_entropy) HF=$(field result.hf)
printf '\nfinal loss %.3f nats a token (mean of the last 10 steps); guessing by frequencies of tokens (unigram entropy) gives %.3f\n' "$LOSS" "$ENTROPY"
awk -v l="$LOSS" -v e="$ENTROPY" 'BEGIN { exit !(l > 0 && l < 0.9 * e) }' || fail "the loss is not clearly below the unigram entropy"
echo "bytes sent == formula: $(field last_metrics.ledger_ok); memory held $(field last_metrics.memory.high) bytes, planned $(field last_metrics.memory.planned)"

# ---- 5 ------------------------------------------------------------------------------------------
MODEL="model={\"path\":\"$HF\"}"
say "5. Exam: score the text it has never seen."
run seqctl submit "$REPO/client/examples/score-tiny.json" --set "$MODEL" --set input.path=exam.txt --set data.seq_len=4096 --name exam --wait || fail "score"
JOB=$(seqctl ls --limit 1 -o name)
printf 'perplexity %.2f, bits a byte %.3f\n' "$(field result.ppl)" "$(field result.bits_per_byte)"

# ---- 6 ------------------------------------------------------------------------------------------
say "6. Prove that the number of ranks does not change the model: 2048 tokens, loss and every gradient."
for p in 2 4; do
    run seqctl verify "${TRAIN[@]}" --set "$MODEL" --set verify.max_tokens=2048 --set parallel.sp=$p --set resources.ranks=$p || fail "verify"
done

# ---- 7 ------------------------------------------------------------------------------------------
say "7. Teach it to answer: the lines of seqctl help as conversations, in the words of the model's chat template.
   Only the assistant's turns are learnt."
says() { seqctl help | awk '/^Options/ { exit } /^  [a-z]/ { print $1 "\t" substr($0, 34) }'; } # prints each verb, a tab and its purpose
says | awk -F '\t' '
    function ask(question) {
        printf "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}, ", question
        printf "{\"role\": \"assistant\", \"content\": \"%s\"}]}\n", $2
    }
    {
        ask("What does seqctl " $1 " do?"); ask("Tell me about seqctl " $1 "."); ask("seqctl " $1 "?")
        ask("Explain seqctl " $1 "."); ask("How do I use seqctl " $1 "?")
    }
' >chat.jsonl
run tail -n 3 chat.jsonl
run seqctl submit "$REPO/client/examples/train-chat.json" --set "$MODEL" --set 'data.train=[{"path":"chat.jsonl"}]' --wait || fail "training on conversations"
JOB=$(seqctl ls --limit 1 -o name)
CHAT=$JOB HF=$(field result.hf) MODEL="model={\"path\":\"$HF\"}"

# ---- 8 ------------------------------------------------------------------------------------------
say "8. Ask it about every verb, in the format of OpenAI's batches, and in words that were in none of the questions."
says | awk -F '\t' '{
        printf "{\"custom_id\": \"%s\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", ", $1
        printf "\"body\": {\"messages\": [{\"role\": \"user\", \"content\": \"What is seqctl %s for?\"}], \"temperature\": 0}}\n", $1
    }' >ask.jsonl
run grep explain ask.jsonl
run seqctl submit "$REPO/client/examples/generate-batch.json" --set "$MODEL" --set input.path=ask.jsonl --wait || fail "generate"
JOB=$(seqctl ls --limit 1 -o name)
show "seqctl artifacts $JOB results.jsonl | grep explain"
seqctl artifacts "$JOB" results.jsonl >"$DIR/answers"
grep '"custom_id":"explain"' "$DIR/answers"
ANSWER=$(sed -nE '/"custom_id":"explain"/s/.*"content":"([^"]*)".*/\1/p' "$DIR/answers")
TRUTH=$(seqctl help | sed -nE 's/^  explain ID +//p')
printf '\nasked:     What is seqctl explain for?\nit says:   %s\nseqctl help: %s\n' "$ANSWER" "$TRUTH"
# Prints each verb, a tab and the answer. A small model that has learnt for a short time
# gives some answers with a word of another verb.
answers() { sed -nE 's/.*"custom_id":"([^"]*)".*"content":"([^"]*)".*/\1\t\2/p' "$DIR/answers" | sort; }
RIGHT=$(comm -12 <(says | sort) <(answers) | wc -l) ASKED=$(says | wc -l)
echo "exactly as in seqctl help, word by word: $RIGHT of $ASKED answers"
[ "$ASKED" -gt 0 ] && [ $((4 * RIGHT)) -ge $((3 * ASKED)) ] || fail "it has not learnt what seqctl help says"

# ---- 9 ------------------------------------------------------------------------------------------
say "9. Serve it: the model stays loaded, and clients of OpenAI's API ask it through seqd. Here the client is curl."
SERVE=(seqctl serve "job:$CHAT" --name helper --set resources.ranks=2 --set serve.max_requests=4)
show "${SERVE[@]}"
"${SERVE[@]}" >"$DIR/openai" || fail "serve"
cat "$DIR/openai"
eval "$(grep '^export ' "$DIR/openai")"
QUESTION='{"model": "helper", "messages": [{"role": "user", "content": "What is seqctl explain for?"}], "temperature": 0'
HEADERS=(-H 'Content-Type: application/json' -H "Authorization: Bearer $OPENAI_API_KEY")
# shellcheck disable=SC2016
show 'curl -s $OPENAI_BASE_URL/chat/completions -H "Authorization: Bearer $OPENAI_API_KEY" ... -d '"'$QUESTION}'"
curl -fsS "$OPENAI_BASE_URL/chat/completions" "${HEADERS[@]}" -d "$QUESTION}" >"$DIR/answer" || fail "the job does not answer"
cat "$DIR/answer"
SERVED=$(sed -nE 's/.*"content": *"([^"]*)".*/\1/p' "$DIR/answer")
[ "$SERVED" = "$ANSWER" ] || fail "the served answer is another than that of the batch: $SERVED"
echo "the answer that the batch has, word by word; as it is written, with \"stream\": true:"
curl -fsSN "$OPENAI_BASE_URL/chat/completions" "${HEADERS[@]}" -d "$QUESTION, \"stream\": true}" >"$DIR/stream" || fail "the job does not stream"
grep . "$DIR/stream" | sed 's/^data: {.*"choices":/data: {..., "choices":/' | cut_to 150
grep -qx 'data: \[DONE\]' "$DIR/stream" || fail "the stream has no end"
show "echo 'Tell me about seqctl explain.' | seqctl chat helper --temperature 0 --max-tokens 64"
echo 'Tell me about seqctl explain.' | seqctl chat helper --temperature 0 --max-tokens 64 || fail "chat"
run seqctl cancel helper --wait || fail "cancel"

# ---- 10 -----------------------------------------------------------------------------------------
say "10. Take the model away: the directory is what transformers saves and loads."
HF=$DIR/model
run seqctl pull "$CHAT" "$HF" --part hf || fail "the model cannot be taken away"
run ls "$HF"
run seqrank --describe "$HF" || fail "the model cannot be read"; echo
READ="import transformers as t; m = t.AutoModelForCausalLM.from_pretrained('$HF'); print(m.num_parameters(), 'parameters,', m.dtype, t.AutoTokenizer.from_pretrained('$HF').vocab_size, 'tokens')"
if python3 -c 'import torch, transformers' 2>/dev/null; then run python3 -c "$READ" || fail "transformers does not load the model"
else printf 'with the Python package transformers (not installed here):\n  python3 -c "%s"\n' "$READ"; fi

# ---- 11 -----------------------------------------------------------------------------------------
say "11. Stop with Ctrl-C."
PIDS="$SEQD $(below "$SEQD" | tr '\n' ' ')"
show "kill -INT $SEQD        # the same as Ctrl-C; processes now: $PIDS"
kill -INT "$SEQD"; wait "$SEQD"; rc=$?; SEQD=
[ "$rc" -eq 0 ] || fail "seqd ended with status $rc"
left=; for p in $PIDS; do kill -0 "$p" 2>/dev/null && left="$left $p"; done
[ -z "$left" ] || fail "still running:$left"
echo "no process is left"

say "The model is $HF.
   Everything of this demo is in $DIR: rm -r it when you have seen enough.
   Done in $((SECONDS - START)) s. Next: README.md, client/examples/, seqctl help."
