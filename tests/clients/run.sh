#!/usr/bin/env bash
# Clients of OpenAI's API, as their packages are, against a job that serves a model which this script trains. It
# installs nothing: PYTHON is a Python that has some of `openai`, `lm-eval[api]` with torch, `langchain-openai`
# and `schemathesis`. A client whose package is missing is left out, so CI runs none: tests/scripts/clients.sh
# replays what they sent.
#   PYTHON=DIR/bin/python tests/clients/run.sh [openai lm_eval langchain schemathesis]
#   RECORD=1    also writes what they send, and the shapes of the answers, to tests/golden/clients
#   BUILD=build/release   KEEP=1 keeps the state directory
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start clients
PYTHON=${PYTHON:-python3} HERE=$PWD/tests/clients
export CLIENTS_MODEL=reader CLIENTS_SEQ_LEN=512 PYTHONPATH=$HERE PYTHONDONTWRITEBYTECODE=1

cp -r client/examples/demo-model "$T/data/model"
cp -r tests/data/train "$T/data/train"
cat >"$T/data/train.json" <<'JSON'
{"kind": "train", "model": {"path": "model", "init": "random"}, "seed": 1, "train": {"steps": 60, "global_batch": 4},
 "data": {"train": [{"path": "train/*.txt", "format": "text"}], "seq_len": 512}, "optim": {"lr": 2e-3},
 "schedule": {"warmup_steps": 5}, "resources": {"ranks": 1, "threads": 2}}
JSON
cat >"$T/data/serve.json" <<'JSON'
{"kind": "serve", "name": "reader", "data": {"seq_len": 512}, "sampling": {"max_tokens": 511},
 "serve": {"max_requests": 4, "queue": 4}, "resources": {"ranks": 2, "threads": 1}}
JSON
seqd_start || { lib_end; exit 1; }
id=$(seqctl submit train.json -o name -q)
succeeds "a model" "$id" || { lib_end; exit 1; }
seqctl pull "$id" taught -q || bad "its files"
export CLIENTS_HF=$T/data/taught/hf CLIENTS_TEXT=$PWD/tests/data/exam.txt CLIENTS_TASKS=$T/tasks
mkdir "$CLIENTS_TASKS"
base=$(seqctl serve serve.json -q --set "model.path=job:$id") || { bad "the job serves"; lib_end; exit 1; }
# A job that answers embeddings, where this version has them.
cp -r tests/golden/embed_bert "$T/data/embedder"
if seqctl serve embedder -q --name embedder --set resources.threads=1 >"$T/embedder" 2>&1; then export CLIENTS_EMBEDDER=embedder
else echo "left out: embeddings: $(tail -n 1 "$T/embedder")"; fi
OPENAI_API_KEY=$(head -n 1 "$STATE/token")
export OPENAI_API_KEY OPENAI_BASE_URL=$base
# The script's own processes alone: lib.sh finds them by their programs.
export KILL_RANK="kill -9 \$(find /proc -maxdepth 2 -path '/proc/[0-9]*/exe' -lname '$BIN/seqrank' 2>/dev/null | sed 's#/proc/##; s#/exe##' | head -n 1)"

# Runs a client and adds its counts.
client() { # NAME
    local line rc proxy=
    export OPENAI_BASE_URL=$base
    if [ -n "${RECORD:-}" ] && [ "$1" != schemathesis ]; then
        "$PYTHON" tests/golden/record_clients.py "$base" "tests/golden/clients/$1.txt" "$T/proxy" &
        proxy=$!
        until_ok 100 test -s "$T/proxy" || bad "the recorder of $1"
        OPENAI_BASE_URL=$(cat "$T/proxy")
    fi
    "$PYTHON" "$HERE/client_$1.py" >"$T/$1.out" 2>"$T/$1.err"; rc=$?
    [ -z "$proxy" ] || { kill -INT "$proxy"; wait "$proxy"; rm -f "$T/proxy"; }
    if [ "$rc" -eq 77 ]; then echo "left out: $1 is not installed in $PYTHON"; return; fi
    cat "$T/$1.out"
    line=$(grep -oE '[0-9]+ passed, [0-9]+ failed' "$T/$1.out" | tail -n 1)
    [ -n "$line" ] || { bad "$1 (status $rc)" "$T/$1.err"; return; }
    PASSED=$((PASSED + ${line%% passed*})) line=${line#*, }; FAILED=$((FAILED + ${line%% failed*}))
}
[ $# -gt 0 ] || set -- openai langchain lm_eval schemathesis
for name in "$@"; do echo "== $name"; client "$name"; done
check "the job serves still" test "$(field "$(seqctl ls --name reader -o name -q)" state)" = running
check "seqd ends" seqd_stop
lib_end
