#!/usr/bin/env bash
# A backup while jobs are submitted, and a seqd on a state directory that holds nothing else: every job
# that was acknowledged before the backup is there.
#   BUILD=build/release   KEEP=1 keeps the state directory   JOBS_BEFORE=n (default 100)
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
check "a job runs and ends" seqctl submit run.json --wait -q --timeout 100
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
OLD=$STATE STATE=$T/restored
mkdir -m 700 "$STATE"
mv "$T/copy.db" "$STATE/seqd.db"
export SEQD_URL=$STATE SEQD_TOKEN_FILE=$OLD/token
check "a seqd starts on it" seqd_start
missing=$(comm -23 <(sort "$T/promised") <(seqctl ls --limit 1000 -o name 2>/dev/null | sort))
if [ -z "$missing" ]; then ok "all $(wc -l <"$T/promised") jobs that were acknowledged before are there"
else bad "jobs are missing: $missing"; fi
same "the one that had ended has ended" "$(field 1 state)" succeeded
check "a new job is taken" seqctl submit waits.json -q
seqd_stop
check "nothing is left" until_ok 50 nothing_left
lib_end
