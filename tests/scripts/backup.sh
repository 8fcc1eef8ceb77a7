#!/usr/bin/env bash
# A backup while jobs are submitted, and a seqd on a state directory that holds nothing else: every job
# that was acknowledged before the backup is there, and tokens, certificates of nodes and cursors count.
#   BUILD=build/release   KEEP=1 keeps the state directory   JOBS_BEFORE=n (default 100)
# tests: needs @curl
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start backup
seqd_start || { lib_end; exit 1; }
make_text 20000 >"$T/data/text.txt"
cat >"$T/data/job.json" <<JSON
{"kind": "train", "model": {"config": $LLAMA}, "data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 256},
 "train": {"steps": 5}, "resources": {"ranks": 4096}}
JSON
sed 's/4096/2/' "$T/data/job.json" >"$T/data/run.json"
check "a job runs and ends" seqctl submit run.json --wait -q --timeout $((100 * PATIENCE))
# Those wait for more ranks than there are slots.
sed "s/\"num_attention_heads\": 4, \"num_key_value_heads\": 2/\"num_attention_heads\": 16, \"num_key_value_heads\": 16/; s/4096/16/; s#\"text.txt\"#\"$T/data/text.txt\"#" \
    "$T/data/job.json" >"$T/data/waits.json"
URL=$(cat "$STATE/address")
load() { # N FILE: ids of acknowledged jobs go to FILE, one a line
    local i
    for ((i = 0; i < $1; i++)); do
        curl -s -H "Authorization: Bearer $(cat "$STATE/token")" -H 'Content-Type: application/json' --data-binary @"$T/data/waits.json" \
            -w '\n' "$URL/v1/jobs" | sed -n 's/^{"id":\([0-9]*\).*/\1/p' >>"$2"
    done
}
before=${JOBS_BEFORE:-100}
load "$before" "$T/before"
same "jobs are acknowledged" "$(sort -un "$T/before" | wc -l)" "$before"
cursor=$(curl -s -H "Authorization: Bearer $(cat "$STATE/token")" "$URL/v1/jobs?limit=5" | sed -n 's/.*"next_cursor":"\([0-9]*\)".*/\1/p')
page() { curl -s -H "Authorization: Bearer $(cat "$OLD/token")" "$(cat "$1/address")/v1/jobs?limit=5&cursor=$cursor" | grep -oE '"id":[0-9]+' | sort -u; }
OLD=$STATE
page "$STATE" >"$T/page"
# While others are submitted.
: >"$T/during"
load "$before" "$T/during" & LOADER=$!
acknowledged() { [ "$(wc -l <"$T/during" 2>/dev/null || echo 0)" -ge 3 ]; }
until_ok 100 acknowledged
sort -un "$T/before" "$T/during" >"$T/promised"
check "a backup is made meanwhile" seqctl backup "$T/copy.db"
wait "$LOADER"
same "and all others are acknowledged" "$(sort -un "$T/during" | wc -l)" "$before"
same "it is its owner's alone" "$(stat -c %a "$T/copy.db")" 600
refuse "an existing file is left" 2 'exists: give a new name' seqctl backup "$T/copy.db"
says "how long the writer takes" '"last_commit_ms"' curl -s "$URL/readyz?verbose"
curl -s -H "Authorization: Bearer $(cat "$STATE/token")" -H 'Content-Type: application/json' -d '{"user": "ann"}' "$URL/v1/tokens" |
    sed -n 's/.*"token":"\([^"]*\)".*/\1/p' >"$T/ann"
refuse "a user is refused" 1 'admin' seqctl backup "$T/ann.db" --token-file "$T/ann"
check "no file is left of that" sh -c "! ls '$T'/ann.db* 2>/dev/null"
seqd_stop

# ---- restore
STATE=$T/restored
mkdir -m 700 "$STATE"
mv "$T/copy.db" "$STATE/seqd.db"
export SEQD_URL=$STATE SEQD_TOKEN_FILE=$OLD/token
check "a seqd starts on it" seqd_start
missing=$(comm -23 <(sort "$T/promised") <(seqctl ls --limit 1000 -o name 2>/dev/null | sort))
if [ -z "$missing" ]; then ok "all $(wc -l <"$T/promised") jobs that were acknowledged before are there"
else bad "jobs are missing: $missing"; fi
same "the one that had ended has ended" "$(field 1 state)" succeeded
check "a new job is taken" seqctl submit waits.json -q
same "an old cursor gives the same page" "$(page "$STATE")" "$(cat "$T/page")"
for f in secret token; do check "$f is the old one, 0600" sh -c "cmp '$OLD/$f' '$STATE/$f' && [ \$(stat -c %a '$STATE/$f') = 600 ]"; done
seqd_stop

# ---- a seqd with an authority: one that is lost, and one on what was saved
unset SEQD_TOKEN_FILE
AT=127.$((RANDOM % 200 + 1)).$((RANDOM % 250)).$((RANDOM % 250 + 1)):7434
open_seqd() { # STATE [options]
    SEQD_URL=unix:$1/seqd.sock
    STATE=$1 seqd_run --node-address "$AT" "${@:2}"
}
node_up() { seqctl nodes -o json | tr -d ' \n' | grep -q '"name":"far","state":"up"'; }
said() { grep -qE -- "$1" "$SEQD_LOG"; }
open_seqd "$T/net"
seqctl nodes token -q --names far --ttl 10m >"$T/join"
"$BIN/seqw" --connect "$AT" --name far --state "$T/node" --slots 2 --root "$T/data" --join-token-file "$T/join" >"$T/seqw.log" 2>&1 &
SEQW_PID=$!
check "a node joins with a token" until_ok 200 node_up
seqctl tokens create --user ann --role operator -q >"$T/operator"
check "its backup is made" seqctl backup "$T/net.db"
cp "$T/net/pki/ca.pem" "$T/ca.pem"
kill -9 "$SEQD_PID"; wait "$SEQD_PID" 2>/dev/null
rm -rf "$T/net"
cp "$T/net.db" "$T/mixed.db"
mkdir -m 700 "$T/new"
mv "$T/net.db" "$T/new/seqd.db"
open_seqd "$T/new"
check "the node comes back with the certificate that it had" until_ok 200 node_up
same "it did not join again" "$(grep -c 'member.certificate' "$T/seqw.log")" 1
check "the authority is the old one" cmp "$T/ca.pem" "$T/new/pki/ca.pem"
says "an old token is taken" 'ann' seqctl whoami --url "$(cat "$T/new/address")" --token-file "$T/operator"
check "a job runs there" seqctl submit run.json --wait -q --timeout $((100 * PATIENCE))
kill -TERM "$SEQD_PID" && wait "$SEQD_PID"

# Into the directory of another seqd.
open_seqd "$T/third" --backup-every 1h "$T/hourly"
hourly() { [ "$(stat -c %a "$T"/hourly/seqd-2*.db 2>/dev/null)" = 600 ]; }
check "a backup is made at an interval" until_ok 100 hourly
refuse "an interval without a directory" 1 'backup-dir DIR belong together' "$BIN/seqd" --state "$T/none" --backup-every 1h
kill -TERM "$SEQD_PID" && wait "$SEQD_PID"
cp "$T/mixed.db" "$T/third/seqd.db"
refuse "a backup over the files of another seqd" 1 'third/secret is not the one of the backup.*empty' \
    timeout 20 "$BIN/seqd" --state "$T/third" --listen 127.0.0.1:0 --node-address "$AT"
kill -TERM "$SEQW_PID" && wait "$SEQW_PID"
check "nothing is left" until_ok 50 nothing_left
lib_end
