#!/usr/bin/env bash
# seqctl's verbs that change jobs and follow all of them, against a running seqd.
#   BUILD=build/release   KEEP=1 keeps the state directory
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start verbs

# It waits: no machine of a test has 4,000 slots in one node.
WAITS="{\"kind\": \"train\", \"name\": \"waits\", \"model\": {\"config\": $LLAMA}, \"data\": {\"train\": [{\"path\": \"text.txt\", \"format\": \"text\"}], \"seq_len\": 128}, \"train\": {\"steps\": 20}, \"parallel\": {\"strategy\": \"rsa\", \"sp\": 64}, \"resources\": {\"ranks\": 64}}"
submit() { printf '%s' "$WAITS" | seqctl submit - -q -o name "$@"; }

make_text 100000 >"$T/data/text.txt"
seqd_start || { lib_end; exit 1; }

# ---- set ----------------------------------------------------------------------------------------
one=$(submit --set 'labels={"team": "x", "old": "1"}')
check "set" seqctl set "$one" --priority 90 --label team=y --unset labels.old
same "the priority" "$(field "$one" priority)" 90
same "its labels" "$(field "$one" labels)" '{"team": "y"}'
same "found by them" "$(seqctl ls --label team=y -o name)" "$one"
refuse "nothing to set" 2 'nothing changes' seqctl set "$one"
refuse "what cannot be removed" 2 'only a label' seqctl set "$one" --unset train.steps
refuse "a priority that is none" 1 'between 0 and 100' seqctl set "$one" --priority 101
check "cancel it" seqctl cancel "$one" --wait --timeout $((60 * PATIENCE))
refuse "a job that has ended" 4 'has ended' seqctl set "$one" --priority 1
refuse "no job" 3 'no job 999' seqctl set 999 --priority 1

# ---- names alone --------------------------------------------------------------------------------
me=$(field "$one" owner)
same "whoami -o name" "$(seqctl whoami -o name)" "$me"
same "usage -o name" "$(seqctl usage -o name -q)" "$one"
same "audit -o name" "$(seqctl audit --limit 2 -o name)" "$(seqctl audit --limit 2 -o jsonl | grep -o '"seq": [0-9]*' | grep -o '[0-9]*')"
same "no table in it" "$(seqctl audit --limit 2 -o name | grep -c '^[0-9][0-9]*$')" 2

# ---- events of all jobs -------------------------------------------------------------------------
"$BIN/seqctl" events -f --last 1 -o jsonl --timeout 30 >"$T/feed" 2>/dev/null & following=$!
check "events -f begins" until_ok 100 test -s "$T/feed"
two=$(submit)
until_ok 100 grep -q "\"job\": $two,.*\"type\": \"submit\"" "$T/feed" && ok "events -f" || bad "events -f" "$T/feed"
kill -TERM "$following"; wait "$following"; same "it ends by a signal" $? 130
says "events of all jobs" "job $one .*edit" seqctl events
check "all is still" seqctl cancel "$two" --wait --timeout $((60 * PATIENCE))
same "of the last one" "$(seqctl events --last 1 -o jsonl | grep -c '"seq"')" 1
same "by state" "$(seqctl events --state cancelled -o jsonl | grep -o '"job": [0-9]*' | sort -u | tr '\n' ' ')" "\"job\": $one \"job\": $two "
refuse "a job's own have no filter" 2 'no filter' seqctl events "$two" --state cancelled

# ---- several jobs in one request ----------------------------------------------------------------
# Jobs that wait, as they are submitted at once.
sweep() { for ((i = 0; i < $1; i++)); do printf '%s\n' "${WAITS/waits/sweep-$i}"; done; }
listed() { seqctl ls --limit 1000 -l "sweep=$1" -o name -q | sort -n | tr '\n' ' '; }
sweep 3 >"$T/data/three.jsonl"
printf '%s' "$WAITS" >"$T/data/a.json"
ids=$(seqctl submit three.jsonl a.json --set 'labels={"sweep": "a"}' -q -o name | tr '\n' ' ')
first=${ids%% *}
same "a batch has consecutive ids" "$ids" "$first $((first + 1)) $((first + 2)) $((first + 3)) "
same "they are there, each with the label" "$(listed a)" "$ids"
same "in the order of the specs" "$(field $((first + 1)) name) $(field $((first + 3)) name)" "sweep-1 waits"
says "the same as a table" "^job $((first + 4)) queued" seqctl submit a.json a.json
refuse "an empty --after, as of an id that was not got" 1 'want ids or names of jobs' seqctl submit a.json --after ''
same "as JSON" "$(seqctl submit a.json a.json --set 'labels={"sweep": "b"}' -o json | grep -c '"state": "queued"')" 2
says "planned alone" '^sweep-2 +train +64 ' seqctl submit three.jsonl --dry-run
printf '[%s, %s]' "$WAITS" "${WAITS/\"steps\": 20/\"steps\": -1}" >"$T/data/bad.json"
refuse "one is wrong" 1 'jobs\[1\]: train\.steps' seqctl submit bad.json --set 'labels={"sweep": "c"}'
refuse "which is not JSON" 1 'four\.jsonl: line 3, column' sh -c "cd '$T/data'; (head -n 2 three.jsonl; echo '{') >four.jsonl; '$BIN/seqctl' submit four.jsonl"
refuse "too many" 1 'more than 1000' sh -c "cd '$T/data'; for i in \$(seq 334); do cat three.jsonl; done >many.jsonl; '$BIN/seqctl' submit many.jsonl --unset model.config --set model.path=job:1"
same "none of those is there" "$(listed c) $(seqctl ls --limit 1000 -o name -q | wc -l)" " 10"
check "all of them end" seqctl cancel --state queued --yes

seqd_stop
seqd_start # it counts what users take when it starts
users() { [ "$(seqctl usage users -o name -q)" = "$me" ]; }
check "usage users -o name" until_ok 50 users
seqd_stop
lib_end
