#!/usr/bin/env bash
# seqd's own disk, slow: what a GET or a stream said is never taken back by a kill -9.
#   BUILD=build/release   KEEP=1 keeps the state directory
set -u
cd "$(dirname "$0")/.." || exit 2
. tests/lib.sh
lib_start store

# A sync of the database's log waits while $T/hold exists, and takes $T/slow milliseconds.
cat >"$T/slow.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static void wait_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}
static void linger(int fd)
{
    char link[64], path[4096];
    long ms = 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    if (!strstr(path, "/seqd.db-wal")) return;
    FILE *f = fopen(DIR "/slow", "r");
    if (f && fscanf(f, "%ld", &ms) == 1) wait_ms(ms);
    if (f) fclose(f);
    if (!access(DIR "/hold", F_OK) && (f = fopen(DIR "/held", "w"))) fclose(f);
    while (!access(DIR "/hold", F_OK)) wait_ms(5);
}
int fsync(int fd)
{
    linger(fd);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
int fdatasync(int fd)
{
    linger(fd);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
C
${CC:-cc} -shared -fPIC -DDIR="\"$T\"" -o "$T/slow.so" "$T/slow.c" -ldl 2>"$T/out" ||
    { bad "the shim that slows fsync" "$T/out"; lib_end; exit 1; }
mv "$BIN/seqd" "$BIN/seqd-real"
printf '#!/bin/sh\nLD_PRELOAD=%s exec %s "$@"\n' "$T/slow.so" "$BIN/seqd-real" >"$BIN/seqd"
chmod +x "$BIN/seqd"

submit() { # NAME: more ranks than there are slots, so that it waits
    seqctl submit - -o name -q <<JSON
{"kind": "train", "name": "$1",
 "model": {"config": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 16, "intermediate_size": 128}},
 "data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 256},
 "train": {"steps": 5}, "resources": {"ranks": 16}}
JSON
}
logged() { grep -q "$1" "$SEQD_LOG"; }
crash() { kill -9 "$SEQD_PID"; wait "$SEQD_PID" 2>/dev/null; }
# What REST says of job $1 everywhere: show, the list by each state, the events.
said() {
    echo "show $(field "$1" state)"
    seqctl ls -o jsonl | grep -o "\"id\": $1,.*\"state\": \"[a-z]*\"" | grep -o '"state": "[a-z]*"'
    seqctl ls --state cancelled -o name 2>&1 | grep -x "$1"
    seqctl events "$1" -o jsonl | grep -o '"type": "[a-z]*"'
}

make_text 10000 >"$T/data/text.txt"
seqd_start || { lib_end; exit 1; }

# ---- held: a commit is in its sync, a cancel waits behind it ------------------------------------------
a=$(submit waits) || { bad "submit"; lib_end; exit 1; }
wait_event "$a" prepared
touch "$T/hold"
"$BIN/seqctl" submit - -q >"$T/b.out" 2>&1 < <(echo '{"kind": "train", "model": {"config": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 16, "intermediate_size": 128}}, "data": {"train": [{"path": "text.txt"}], "seq_len": 256}, "train": {"steps": 5}, "resources": {"ranks": 16}}') &
sub=$!
check "held: a commit is in its sync" until_ok 100 test -e "$T/held"
"$BIN/seqctl" cancel "$a" -q >"$T/cancel.out" 2>&1 &
can=$!
check "held: seqd has taken the cancel" until_ok 100 logged "job=$a .*event=cancel"
said "$a" >"$T/before"
check "held: no GET says cancelled" sh -c "! grep -q cancel '$T/before' && grep -q queued '$T/before'"
check "held: the cancel is not answered" kill -0 "$can"
crash
rm -f "$T/hold"
kill "$sub" "$can" 2>/dev/null; wait "$sub" "$can" 2>/dev/null
seqd_start || { lib_end; exit 1; }
said "$a" >"$T/after"
check "held: what was said stands after a kill -9" cmp "$T/before" "$T/after"

# ---- slow: killed as soon as a GET says it --------------------------------------------------------------
echo 300 >"$T/slow"
for round in 1 2 3; do
    id=$(submit "slow-$round")
    "$BIN/seqctl" cancel "$id" -q >"$T/cancel.out" 2>&1 &
    can=$!
    n=0
    until [ "$(field "$id" state)" = cancelled ] || [ $n -ge 200 ]; do n=$((n + 1)); done
    crash
    kill "$can" 2>/dev/null; wait "$can" 2>/dev/null
    seqd_start || { lib_end; exit 1; }
    same "slow, round $round: said cancelled, is cancelled" "$(field "$id" state)" cancelled
done
rm -f "$T/slow"
check "seqd stops" seqd_stop
check "nothing is left running" until_ok 50 nothing_left
lib_end
