#!/usr/bin/env bash
# A node that cannot start ranks, beside one that can: seqrank lacks a library there, then seqgang,
# then a source of data is missing. Every job succeeds on the other node. Three blames quarantine
# the first until it is released; the quarantine outlives a kill -9 of seqd.
#   BUILD=build/release   KEEP=1 keeps the state
# tests: needs @curl
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start badnode

spec() { # NAME
    cat <<JSON
{"kind": "train", "name": "$1",
 "model": {"config": $LLAMA},
 "data": {"train": [{"path": "${2:-$T/data/text.txt}", "format": "text"}], "seq_len": 64},
 "train": {"steps": 2, "global_batch": 2}, "checkpoint": {"every_steps": 2},
 "limits": {"restarts": 0}, "resources": {"ranks": 2, "threads": 1}, "seed": 3}
JSON
}
submit() { spec "$@" | seqctl submit - -o name -q; }
# seqctl would make the path absolute; curl leaves it relative to the root of each node.
posted() { spec "$@" | curl -s --unix-socket "$STATE/seqd.sock" -H 'Content-Type: application/json' --data-binary @- localhost/v1/jobs; }
post() { posted "$@" | sed 's/^{"id":\([0-9]*\),.*/\1/'; }
open_seqd() { seqd_run --node-address "unix:$T/nodes.sock"; }
node() { # NAME BIN ROOT: its pid in PID
    "$2/seqw" --bin "$2" --connect "unix:$T/nodes.sock" --name "$1" --state "$T/$1" --slots 2 --root "$3" >>"$T/seqw-$1.log" 2>&1 &
    PID=$!
}
all_succeed() { # NAME ID...
    local name=$1 id; shift
    [ $# -gt 0 ] || { bad "$name: no job was taken"; return; }
    for id in "$@"; do
        succeeds "$name" "$id" || return
        [ "$(field "$id" node)" = good ] || { bad "$name: job $id ran on $(field "$id" node)"; return; }
    done
    ok "$name"
}
quarantined() { seqctl nodes | grep -q '^bad .*quarantined.*3 jobs failed to start on it'; }

# A program that cannot be loaded: its library is missing.
without_library() { # PROGRAM: into $T/badbin
    rm -f "$T/badbin/$1"
    echo 'int gone(void) { return 0; }' | ${CC:-cc} -shared -fPIC -x c -o "$T/libgone.so" - &&
        echo 'int gone(void); int main(void) { return gone(); }' | ${CC:-cc} -x c -o "$T/badbin/$1" - -L"$T" -lgone &&
        rm "$T/libgone.so" && ! "$T/badbin/$1" 2>/dev/null
}
mkdir -p "$T/badbin" "$T/other"
cp "$BIN"/seq{w,gang,rank} "$T/badbin"
make_text 4000 >"$T/data/text.txt"

check "a seqrank without one of its libraries" without_library seqrank
open_seqd
node bad "$T/badbin" "$T/data"; BAD=$PID
until_ok 200 n_up 1 || { bad "the bad node joins" "$SEQD_LOG"; lib_end; exit 1; }
node good "$BIN" "$T/data"; GOOD=$PID
until_ok 200 n_up 2 || { bad "the good node joins" "$SEQD_LOG"; lib_end; exit 1; }

# Three jobs at once, then one after another.
ids=$(for i in 1 2 3; do submit "together-$i"; done)
all_succeed "three jobs at once" $ids
for i in 4 5 6; do ids="$ids $(submit "alone-$i")"; all_succeed "job $i" "${ids##* }"; done
says "the event blames the node" '"node": "bad".*"class": "infrastructure".*"exit_status": 127.*"blame": "node"' seqctl events "${ids%%[[:space:]]*}" -o jsonl
check "the node is quarantined, with the reason" quarantined
crash
open_seqd
until_ok 200 n_up 2 || bad "seqd starts again" "$SEQD_LOG"
check "after a kill -9 of seqd it is still quarantined" quarantined
refuse "releasing a node that is not quarantined" 4 'in no quarantine' seqctl nodes release good
refuse "releasing a node that does not exist" 3 'there is no node' seqctl nodes release elsewhere
says "seqctl nodes release" 'bad +up' seqctl nodes release bad

# seqgang cannot be run: the agent reports it, not a rank.
cp "$BIN/seqrank" "$T/badbin/seqrank"
check "a seqgang without one of its libraries" without_library seqgang
id=$(submit no-gang)
all_succeed "a node without seqgang" "$id"
says "the event has the failure of seqgang" 'seqgang exited with status 127.*gang.log' seqctl events "$id" -o jsonl

# seqgang is repaired; then the node lacks the source.
cp "$BIN/seqgang" "$T/badbin/seqgang.new" && mv "$T/badbin/seqgang.new" "$T/badbin/seqgang"
make_text 4000 >"$T/other/more.txt"
kill "$BAD"; wait "$BAD"
kill "$GOOD"; wait "$GOOD"
until_ok 100 n_up 0 || bad "the nodes are gone"
node bad "$T/badbin" "$T/data"; BAD=$PID
until_ok 200 n_up 1 || bad "the bad node comes back"
node good "$BIN" "$T/other"; GOOD=$PID
until_ok 200 n_up 2 || bad "the nodes come back"
id=$(post no-source more.txt)
all_succeed "a node without the source" "$id"
says "left out without blame" '"blame": "files"' seqctl events "$id" -o jsonl
says "no node has the source: refused at once" 'data.train.0.path: none.txt matches no file beneath' posted nowhere none.txt
check "both nodes wait" seqctl nodes cordon good bad
make_text 4000 >"$T/other/none.txt"
id=$(post nowhere none.txt)
rm "$T/other/none.txt"
check "both nodes run" seqctl nodes uncordon good bad
refuse "no node has the source any more: the job fails with that sentence" 10 'none.txt matches no file beneath' seqctl watch "$id"

check "the bad node stops" stops "$BAD"
check "the good node stops" stops "$GOOD"
check "seqd stops" stops "$SEQD_PID"
SEQD_PID=
check "nothing is left running" until_ok 50 nothing_left

# ---- seqd --dev: its node is ended by a message, and one that cannot begin says why
export SEQD_URL=$T/dev
dev() { # [options]: without waiting for its node
    (cd "$T/data" && exec "$BIN/seqd" --dev --state "$T/dev" --listen 127.0.0.1:0 "$@") >"$T/dev.log" 2>&1 &
    SEQD_PID=$!
}
refuse "a writable root that is absent" 1 'writable-root /absent: No such file' "$BIN/seqd" --dev --state "$T/dev" --listen 127.0.0.1:0 --writable-root /absent
refuse "--no-pin without --dev" 1 '--no-pin, .* belong to --dev' "$BIN/seqd" --state "$T/dev" --listen 127.0.0.1:0 --no-pin
pinned() { tr '\0' '\n' <"/proc/$(cat "$T/dev/seqw.pid")/cmdline" >"$T/args" && ! grep -qx -- --no-pin "$T/args"; }
dev
check "its node is up" until_ok 200 n_up 1
check "which binds ranks to cores" pinned
in_dev() { (STATE=$T/dev; posted nowhere "$1"); }
says "a relative path without a file: where it begins" "none.txt matches no file beneath $T/data, in which relative paths begin: give" in_dev none.txt
check "seqd --dev stops" stops "$SEQD_PID"
says "its node was told" 'agent.quit why="seqd ends"' cat "$T/dev.log"
(cd "$T/data" && exec "$BIN/seqd" --dev --state "$T/dev" --listen 127.0.0.1:0 <&- >&- 2>&-) &
SEQD_PID=$!
check "a seqd without descriptors 0 to 2" until_ok 200 n_up 1
same "has them" "$(readlink "/proc/$SEQD_PID/fd/0" "/proc/$SEQD_PID/fd/1" "/proc/$SEQD_PID/fd/2" | sort -u)" /dev/null
check "and stops" stops "$SEQD_PID"
dev --no-pin
check "a node without pins is up" until_ok 200 n_up 1
check "it has the option" grep -qx -- --no-pin <(tr '\0' '\n' <"/proc/$(cat "$T/dev/seqw.pid")/cmdline")
check "and stops, too" stops "$SEQD_PID"
if unshare -pf true 2>/dev/null; then
    (cd "$T/data" && exec unshare -pf --kill-child "$BIN/seqd" --dev --state "$T/dev" --listen 127.0.0.1:0) >"$T/dev.log" 2>&1 &
    FIRST=$!
    check "a seqd that is process 1" until_ok 200 n_up 1
    SEQD_PID=$(pgrep -P "$FIRST")
    nsenter -t "$SEQD_PID" -p sh -c "(echo >'$T/orphan') &"
    reaped() { [ -e "$T/orphan" ] && ! grep -qs "^State:.Z" $(sed 's#[0-9]\+#/proc/&/status#g' "/proc/$SEQD_PID/task/$SEQD_PID/children"); }
    check "reaps orphans" until_ok 100 reaped
    kill -TERM "$SEQD_PID"; wait "$FIRST"
else echo "left out: seqd as process 1: there are no namespaces of processes here"; fi
preload seqw <<'C'
#include <errno.h>
#include <pthread.h>
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *x) { return EAGAIN; }
C
dev
asked() { seqctl submit "$T/dev.json" >"$T/dev.out" 2>&1; grep -q 'no node is up to answer: seqw ended: start a thread: .*raise the limit of processes' "$T/dev.out"; }
echo '{"kind": "train", "model": {"path": "m"}, "data": {"train": [{"path": "text.txt"}], "seq_len": 64}, "train": {"steps": 1}}' >"$T/dev.json"
check "the client is told that no thread can start there" until_ok 100 asked
says "readyz says it" '"no_node":"seqw ended: start a thread: ' curl -fsS "$(sed -n 's/.*seqd.ready url=\([^ ]*\).*/\1/p' "$T/dev.log")/readyz?verbose"
grows() { grep -q 'again_ms=2000' "$T/dev.log"; }
check "each start waits longer" until_ok 100 grows
check "seqd --dev stops without its node" stops "$SEQD_PID"
SEQD_PID=
lib_end
