#!/usr/bin/env bash
# What is removed is gone from seqd and its node, and nothing else: the trees of files and the rows
# of the database before a job and after its removal are the same. kill -9 of either program between.
#   BUILD=build/release   KEEP=1 keeps the state directory
# tests: needs @python3
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start removal

TRAIN="{\"kind\": \"train\", \"name\": \"gone\", \"model\": {\"config\": $LLAMA}, \"data\": {\"train\": [{\"path\": \"text.txt\", \"format\": \"text\"}], \"seq_len\": 128}, \"train\": {\"steps\": 4}, \"checkpoint\": {\"every_steps\": 2}, \"resources\": {\"ranks\": 2}, \"parallel\": {\"sp\": 2}}"
submit() { printf '%s' "$TRAIN" | seqctl submit - -q -o name "$@"; }
# Every file of the state directories but seqd's database, locks and logs of programs; prepared data
# belong to no job.
files() { find "$STATE" \( -path '*/jobs/*' -o -path '*/epochs/*' -o -path '*/gangs/*' \) -printf '%P %y %s\n' | sort; }
rows() { # of the database, by table; seqd is stopped
    local t
    for t in jobs events metrics marks part_marks blames keys removal_nodes; do
        echo "$t $(python3 -c 'import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute("SELECT count(*), coalesce(max(rowid), 0) FROM " + sys.argv[2] if sys.argv[2] in ("jobs", "events", "metrics") else "SELECT count(*) FROM " + sys.argv[2]).fetchone())' "$STATE/seqd.db" "$t")"
    done
}
done_with() { seqctl removals -o jsonl | grep -q "\"job\": $1, .*\"state\": \"done\""; }
none_pending() { [ -z "$(seqctl removals --state pending -o jsonl)" ]; }

make_text 20000 >"$T/data/text.txt"
seqd_start || { lib_end; exit 1; }
kept=$(submit); succeeds "a job that stays" "$kept" && ok "a job that stays"
no_attempt() { [ -z "$(find "$STATE" -path '*/gangs/*' -print -quit)" ]; } # seqd has all of it
until_ok 300 no_attempt
files >"$T/before"

a=$(submit); succeeds "a job that goes" "$a" && ok "a job that goes"
files >"$T/with"
check "it left files" sh -c "! cmp -s $T/before $T/with"
refuse "without a terminal nothing is asked" 2 'say --yes' seqctl rm "$a"
refuse "an unknown job" 3 'there is no job 999' seqctl rm 999 --yes
says "it is removed" "^ *$a +job" seqctl rm "$a" --yes
check "the node confirms" until_ok 200 done_with "$a"
files >"$T/after"
check "its files are gone, and no other" diff "$T/before" "$T/after"
refuse "it is unknown" 3 'there is no job' seqctl show "$a"
says "the other one is there" succeeded seqctl show "$kept"
says "what a job takes" "^ *$kept +[0-9.]+ [KM]iB +.*[0-9.]+ MiB" seqctl usage
says "removals say what was freed" "$a +job +done +delete.*[1-9][0-9.]* [KM]iB" seqctl removals

# A live job's files stay; one whose checkpoint another job reads stays, too.
model="{\"path\": \"$STATE/node/jobs/$kept/checkpoints/step-00000004/hf\"}"
long=$(printf '%s' "${TRAIN/"{\"config\": $LLAMA}"/"$model"}" | seqctl submit - -q -o name --set train.steps=100000)
wait_step "$long" 6 || bad "the job that reads another's model does not step"
refuse "a live job" 4 'cancel it' seqctl rm "$long" --yes
refuse "whose model it reads" 4 "job $long, which is running, reads files of job $kept as its model.path" seqctl rm "$kept" --yes
seqctl cancel "$long" --wait -q >/dev/null 2>&1

lists() { seqctl prune --older-than 1s --dry-run --state succeeded 2>&1 | grep -qE "^ *$1 +job +succeeded"; }
check "a dry run lists it" until_ok 100 lists "$kept"
says "and removes nothing" succeeded seqctl show "$kept"
refuse "prune without a terminal" 2 'say --yes' seqctl prune --older-than 1s
refuse "prune without an age" 2 'older-than' seqctl prune --dry-run

# The node is away: pending and visible. Then seqd dies, too; afterwards all of it ends.
b=$(submit); succeeds "a third job" "$b"
agent=$(procs seqw)
kill -STOP "$agent"
check "removed while the node stands still" seqctl rm "$b" "$long" --yes
says "it waits for its node" "$b +job +pending.*waits for" seqctl removals --state pending
crash
kill -CONT "$agent"
seqd_start && until_ok 200 none_pending && ok "it ends after the restart" || bad "pending" "$SEQD_LOG"
files >"$T/after"
check "nothing is left, nothing else gone" diff "$T/before" "$T/after"

# A gang that is slow to go keeps the removal of its job waiting no longer than it takes.
preload seqgang <<'EOF'
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((destructor)) static void wait_for_go(void)
{
    for (int i = 0; i < 300 && access(getenv("SEQD_TEST_GO"), F_OK); i++) usleep(100000);
}
EOF
sed -i "2s#LD_PRELOAD#SEQD_TEST_GO=$T/go LD_PRELOAD#" "$BIN/seqgang"
c=$(submit)
wait_event "$c" assign
seqctl cancel "$c" --wait -q >/dev/null 2>&1
check "cancelled, and removed" seqctl rm "$c" --yes
says "it waits for its gang" "$c +job +pending.*waits for" seqctl removals --state pending
touch "$T/go"
check "and goes with it, not 30 s later" until_ok 100 done_with "$c"

# kill -9 in the middle, again and again.
ids=$(for i in 1 2 3 4; do submit; done)
for id in $ids; do succeeds "one of four" "$id"; done
for id in $ids; do
    seqctl rm "$id" --yes -q >/dev/null 2>&1 &
    rm_pid=$!
    wait "$rm_pid"
    crash
    seqd_start || break
done
check "all of them end" until_ok 300 none_pending
files >"$T/after"
check "nothing is left after the crashes" diff "$T/before" "$T/after"
same "ids are not given again" "$(submit)" "$((${ids##*$'\n'} + 1))"
seqctl cancel "$((${ids##*$'\n'} + 1))" --wait -q >/dev/null 2>&1
check "and the last one goes" seqctl rm "$((${ids##*$'\n'} + 1))" --yes
check "here and on its node" until_ok 200 none_pending || seqctl removals --state pending
seqd_stop
rows >"$T/rows"
says "of jobs one row is left" '^jobs \(1, ' cat "$T/rows"
says "no key, no mark but its own" 'removal_nodes \(0,\)' cat "$T/rows"
check "no process is left" until_ok 100 nothing_left
lib_end
