#!/usr/bin/env bash
# The disk of seqd. Slow: a state that a GET or a stream showed survives a kill -9. Torn: of a batch
# of jobs all are there after a kill -9, or none. Failing: seqd ends with a sentence. Full: seqd takes
# no new job; it cancels jobs, and it starts.
#   BUILD=build/release   KEEP=1 keeps the state directory
# tests: not kept: it mounts a disk
set -u
cd "$(dirname "$0")/../.." || exit 2
# The full disk is a small tmpfs in a mount namespace of its own, where that is allowed.
if [ -z "${SEQD_STORE_INSIDE:-}" ] && unshare -Urm --propagation private sh -c 'mount -t tmpfs -o size=1m none /tmp' 2>/dev/null; then
    SEQD_STORE_INSIDE=1 exec unshare -Urm --propagation private "$0" "$@"
fi
. tests/lib/lib.sh
lib_start store

# A sync of the database's log waits while $T/hold exists, takes $T/slow milliseconds, and fails
# while $T/eio exists. While $T/die exists, seqd is killed at the N-th write of the log; 0: after the
# first sync of more than 200 writes.
preload seqd -DDIR="\"$T\"" <<'C' || { lib_end; exit 1; }
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static void wait_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}
static int is_log(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    return strstr(path, "/seqd.db-wal") != NULL;
}
static long writes; /* since the last sync */
static void die_at(long n)
{
    long at = -1;
    FILE *f = fopen(DIR "/die", "r");
    if (!f) return;
    if (fscanf(f, "%ld", &at) == 1 && at == n) kill(getpid(), SIGKILL);
    fclose(f);
}
static int linger(int fd)
{
    long ms = 0;
    if (!is_log(fd)) return 0;
    FILE *f = fopen(DIR "/slow", "r");
    if (f && fscanf(f, "%ld", &ms) == 1) wait_ms(ms);
    if (f) fclose(f);
    if (!access(DIR "/hold", F_OK) && (f = fopen(DIR "/held", "w"))) fclose(f);
    while (!access(DIR "/hold", F_OK)) wait_ms(5);
    errno = EIO;
    return access(DIR "/eio", F_OK) ? 0 : -1;
}
static int synced(int fd, int rc)
{
    if (!is_log(fd)) return rc;
    if (writes > 200) die_at(0);
    writes = 0;
    return rc;
}
int fsync(int fd)
{
    return linger(fd) ? -1 : synced(fd, ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd));
}
int fdatasync(int fd)
{
    return linger(fd) ? -1 : synced(fd, ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd));
}
ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at)
{
    if (is_log(fd)) die_at(++writes);
    return ((ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64"))(fd, p, n, at);
}
C

spec() { # NAME: more ranks than there are slots, so that it waits
    cat <<JSON
{"kind": "train", "name": "$1",
 "model": {"config": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 16, "intermediate_size": 128}},
 "data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 256},
 "train": {"steps": 5}, "resources": {"ranks": 16}}
JSON
}
submit() { spec "$1" | seqctl submit - -o name -q; }
submit_prepared() { # VARIABLE NAME: its id in the variable
    eval "$1=\$(submit $2)" && wait_event "${!1}" prepared || bad "$2: submitted and prepared"
}
is() { [ "$(field "$1" state)" = "$2" ]; } # ID STATE
cancels() { seqctl cancel "$1" -q && is "$1" cancelled; }
# Polls without a pause, so that the next command runs right after the answer.
is_said() { local n; for ((n = 0; n < 500; n++)); do is "$@" && return; done; return 1; }
unanswered() { ! gone "$1"; }
logged() { grep -q "$1" "$SEQD_LOG"; }
# Job $1 as REST shows it everywhere: show, the lists by state, the events.
said() {
    echo "show $(field "$1" state)"
    seqctl ls -o jsonl | grep -o "\"id\": $1,.*\"state\": \"[a-z]*\"" | grep -o '"state": "[a-z]*"'
    seqctl ls --state cancelled -o name 2>&1 | grep -x "$1"
    seqctl events "$1" -o jsonl | grep -o '"type": "[a-z]*"'
}

make_text 10000 >"$T/data/text.txt"
seqd_start || { lib_end; exit 1; }

# ---- held: a commit is in its sync, a cancel waits for it ----------------------------------------
submit_prepared a waits || { lib_end; exit 1; }
touch "$T/hold"
env -C "$T/data" "$BIN/seqctl" submit - -q >"$T/b.out" 2>&1 < <(spec holds) &
sub=$!
check "held: a commit is in its sync" until_ok 100 test -e "$T/held"
"$BIN/seqctl" cancel "$a" -q >"$T/cancel.out" 2>&1 &
can=$!
check "held: seqd has taken the cancel" until_ok 100 logged "job=$a .*event=cancel"
said "$a" >"$T/before"
check "held: no GET says cancelled" sh -c "! grep -q cancel '$T/before' && grep -q queued '$T/before'"
check "held: the cancel is not answered" unanswered "$can"
crash
rm -f "$T/hold"
kill "$sub" "$can" 2>/dev/null; wait "$sub" "$can" 2>/dev/null
seqd_start || { lib_end; exit 1; }
said "$a" >"$T/after"
check "held: a kill -9 changes nothing that REST showed" cmp "$T/before" "$T/after"

# ---- slow: killed as soon as a GET shows the state -----------------------------------------------
echo 300 >"$T/slow"
for round in 1 2 3; do
    id=$(submit "slow-$round")
    "$BIN/seqctl" cancel "$id" -q >"$T/cancel.out" 2>&1 &
    can=$!
    check "slow, round $round: a GET shows it" is_said "$id" cancelled
    crash
    kill "$can" 2>/dev/null; wait "$can" 2>/dev/null
    seqd_start || { lib_end; exit 1; }
    same "slow, round $round: it stays cancelled" "$(field "$id" state)" cancelled
done
rm -f "$T/slow"

# ---- torn: a batch of 400 jobs, and seqd killed while it is written ----------------------------
one=$(spec sweep | tr -d '\n')
{ printf '{"jobs": [%s' "$one"; for ((i = 1; i < 400; i++)); do printf ',%s' "$one"; done; echo ']}'; } >"$T/batch.json"
post() { # KEY: prints the status
    curl -s -o "$T/posted" -w '%{http_code}' -H "Authorization: Bearer $(cat "$STATE/token")" -H 'Content-Type: application/json' \
        -H "Idempotency-Key: $1" --data-binary @"$T/batch.json" "$(cat "$STATE/address")/v1/jobs:batch"
}
n_sweep() { seqctl ls --limit 1000 --name sweep --state queued,starting -o name -q | wc -l; } # some are being prepared
for at in 10 100 400 0; do # writes of the log; 0: it is on disk, and was not answered
    echo $at >"$T/die"
    same "torn at $at: no answer" "$(post "$at")" 000
    until_ok 100 gone "$SEQD_PID" || bad "torn at $at: seqd was not killed"
    wait "$SEQD_PID" 2>/dev/null
    rm -f "$T/die"
    seqd_start || { lib_end; exit 1; }
    same "torn at $at: none or all" "$(n_sweep)" $((at ? 0 : 400))
done
same "torn: asked again with its key" "$(post 0)" 201
same "torn: it is the same batch" "$(grep -o '"id":[0-9]*' "$T/posted" | wc -l) $(n_sweep)" "400 400"
says "torn: they can be cancelled" 'cancelled 400 of 400' seqctl cancel --name sweep --yes

# ---- failing -------------------------------------------------------------------------------------
submit_prepared id fails
touch "$T/eio"
"$BIN/seqctl" cancel "$id" -q --timeout 2 >"$T/cancel.out" 2>&1 &
can=$!
until_ok 100 gone "$SEQD_PID" || kill -9 "$SEQD_PID"
wait "$SEQD_PID"; rc=$?
kill "$can" 2>/dev/null; wait "$can" 2>/dev/null
same "failing: seqd ends" "$rc" 70
says "failing: with a sentence" "seqd ends: .*/seqd.db: COMMIT failed: disk I/O error.*: see to the disk" cat "$SEQD_LOG"
rm -f "$T/eio"
seqd_start || { lib_end; exit 1; }
check "failing: seqd starts and cancels afterwards" cancels "$id"
check "seqd stops" seqd_stop

# ---- full ----------------------------------------------------------------------------------------
if [ -n "${SEQD_STORE_INSIDE:-}" ]; then
    STATE=$T/small
    export SEQD_URL=$STATE
    mkdir -p "$STATE" && mount -t tmpfs -o size=48m none "$STATE"
    seqd_start || { lib_end; exit 1; }
    check "full: a reserve was made" test "$(stat -c %s "$STATE/reserve")" -eq $((16 << 20))
    submit_prepared a before-1; submit_prepared b before-2
    fill() { # takes space that is freed meanwhile, too
        dd if=/dev/zero bs=64k status=none 2>/dev/null >>"$STATE/ballast"
        ! dd if=/dev/zero bs=4k count=1 status=none 2>/dev/null >>"$STATE/ballast"
    }
    check "full: to the last byte" until_ok 50 fill
    # A commit still succeeds while the file of the log has room for it.
    refused() { ! submit new >"$T/new.out" 2>&1; }
    check "full: new jobs are refused" until_ok 50 refused
    says "full: with a sentence" 'state directory .* is full: .*new jobs are taken from 32 MiB on' cat "$T/new.out"
    check "full: the reserve is released" test ! -e "$STATE/reserve"
    says "full: reads continue" "^$a\$" seqctl ls -o name
    check "full: and show the state before" is "$a" queued
    check "full: a cancel is committed" cancels "$a"
    crash
    check "full: the space of the reserve is full, too" until_ok 50 fill
    seqd_start || { lib_end; exit 1; }
    same "full: seqd starts with its state" "$(field "$a" state)" cancelled
    check "full: and takes no new job" refused
    truncate -s -2M "$STATE/ballast"
    check "full: a little room is enough for a cancel" cancels "$b"
    rm -f "$STATE/ballast"
    check "full: the reserve comes back" until_ok 50 test -e "$STATE/reserve"
    check "full: and jobs are taken" until_ok 50 submit after
    check "seqd stops" seqd_stop
    check "full: no process holds the disk" until_ok 50 umount "$STATE"
else
    echo "store: full: NOT RUN: this machine allows no mounts in a user namespace (unshare -Urm)"
fi
check "nothing is left running" until_ok 50 nothing_left
lib_end
