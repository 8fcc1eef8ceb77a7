#!/usr/bin/env bash
# Requests of clients of OpenAI's API, as their packages sent them to tests/clients/run.sh: a job that serves answers
# each with the status and the shape of then. Packages are not needed: tests/golden/clients has the cases.
#   BUILD=build/release   KEEP=1 keeps the state directory
# tests: needs client/examples golden/clients golden/embed_bert scripts/shape.awk @curl
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start clients
command -v curl >/dev/null || nothing_tested clients "there is no curl"
export LC_ALL=C

cp -r client/examples/demo-model "$T/data/model"
cat >"$T/data/serve.json" <<'END_JSON'
{"kind": "serve", "name": "reader", "model": {"path": "model", "init": "random"}, "seed": 1,
 "data": {"seq_len": 512}, "sampling": {"max_tokens": 511}, "serve": {"max_requests": 4},
 "resources": {"ranks": 1, "threads": 1}}
END_JSON
seqd_start || { lib_end; exit 1; }
base=$(seqctl serve serve.json -q) && ok "the job serves" || { bad "the job serves"; lib_end; exit 1; }
if grep -q '"model": *"embedder"' tests/golden/clients/*.txt; then
    cp -r tests/golden/embed_bert "$T/data/embedder"
    check "a job answers embeddings" seqctl serve embedder -q --name embedder --set resources.threads=1
fi
TOKEN=$(cat "$STATE/token")

# Asks a case, and compares its status and the shape of its answer.
ask() { # NAME METHOD PATH STATUS HEADERS BODY SHAPE
    local status shape header options=(-X "$2")
    while IFS= read -r -d $'\t' header; do options+=(-H "$header"); done <<<"$5"$'\t'
    [ "$6" = - ] || options+=(--data-binary "$6")
    status=$(curl -s -m 60 -o "$T/answer" -w '%{http_code}' -H "Authorization: Bearer ${TOKEN_OF_CASE:-$TOKEN}" "${options[@]}" "$base/$3")
    if [ "$status" != "$4" ]; then bad "$1 (status $status, want $4): $6" "$T/answer"; return; fi
    shape=$(awk -f tests/scripts/shape.awk "$T/answer")
    same "$1" "$shape" "$7"
}

for file in tests/golden/clients/*.txt; do
    name=$(basename "$file" .txt) n=0
    while IFS= read -r line; do
        case $line in '#'*) continue ;; esac
        read -r method path status <<<"$line"
        IFS= read -r headers; IFS= read -r body; IFS= read -r shape
        n=$((n + 1)) TOKEN_OF_CASE=
        [ "$status" != 401 ] || TOKEN_OF_CASE=none
        ask "$name $n: $method $path $status" "$method" "$path" "$status" "$headers" "$body" "$shape"
    done <"$file"
    check "$name has cases" test "$n" -ge 5
done
seqd_stop
lib_end
