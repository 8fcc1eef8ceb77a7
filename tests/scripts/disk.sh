#!/usr/bin/env bash
# Disks that are full, read-only or slow while a training writes checkpoints: the job names the
# file, waits or runs on, never resumes from half a checkpoint, and ends with the bits of the
# undisturbed run. Disks that are full before a merge, or become full while it writes: the job names
# the disk, leaves no model that looks complete, and merges when there is room. The job directories
# are on a small tmpfs of their own, in a user and mount namespace.
#   BUILD=build/release   KEEP=1 keeps the state directory
# tests: not kept: it mounts a disk
set -u
cd "$(dirname "$0")/../.." || exit 2
if [ -z "${SEQD_DISK_INSIDE:-}" ]; then
    if ! unshare -Urm --propagation private sh -c 'mount -t tmpfs -o size=1m none /tmp' 2>/dev/null; then
        echo "disk: NOT RUN: this machine allows no mounts in a user namespace (unshare -Urm); nothing of it was tested"
        echo "disk: 0 passed, 0 failed"
        exit 0
    fi
    SEQD_DISK_INSIDE=1 exec unshare -Urm --propagation private "$0" "$@"
fi
. tests/lib/lib.sh
lib_start disk
JOBS=$STATE/node/jobs
FILL=$JOBS/ballast
STEPS=240

spec() { # NAME: about 1.5 MB a checkpoint
    cat <<JSON
{"kind": "train", "name": "$1",
 "model": {"config": $LLAMA},
 "data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 256},
 "parallel": {"strategy": "rsa", "sp": 2, "layout": "zigzag"},
 "train": {"steps": $STEPS}, "optim": {"lr": 0.002}, "checkpoint": {"every_steps": $((STEPS / 6)), "keep": 1},
 "resources": {"ranks": 2, "threads": 1}, "seed": 3}
JSON
}
submit() { spec "$1" | seqctl submit - -o name -q; }

fill() { # to the last byte
    dd if=/dev/zero of="$FILL" bs=64k status=none 2>/dev/null
    dd if=/dev/zero of="$FILL.2" bs=1 count=65536 status=none 2>/dev/null
    ! { echo x >"$JOBS/one-more"; } 2>/dev/null
}
room() { rm -f "$FILL" "$FILL.2" "$JOBS/one-more"; }
notes() { seqctl events "$1" -o jsonl | grep '"type": "note"'; }
noted() { notes "$1" | grep -q checkpoint_failed; }
whole() { # ID: has checkpoints, and each that is named as one is complete
    local d n=0
    for d in "$JOBS/$1"/checkpoints/step-*[0-9]; do
        case $d in *.tmp | *.bad) continue ;; esac
        [ -s "$d/MANIFEST.json" ] && n=$((n + 1)) || { echo "no manifest: $d"; return 1; }
    done
    [ "$n" -ge 1 ]
}
lost_no_rank() { ! seqctl events "$1" -o jsonl | grep -q '"type": "rank_exit"'; }
no_tmp() { [ -z "$(find "$JOBS/$1/checkpoints" -name '*.tmp')" ]; }
ends_well() { # NAME ID
    succeeds "$1" "$2" || return
    same "$1: the weights of the undisturbed run" "$(field "$2" result.weights_sha256)" "$WANT"
    check "$1: no .tmp is left" no_tmp "$2"
}

mkdir -p "$JOBS" && mount -t tmpfs -o size=8m none "$JOBS" || { bad "mount a tmpfs"; lib_end; exit 1; }
make_text 100000 >"$T/data/text.txt"
seqd_start || { lib_end; exit 1; }
id=$(submit undisturbed)
"$BIN/seqctl" watch "$id" -q --timeout $((60 * PATIENCE)) >"$T/watch.out" 2>&1
WANT=$(field "$id" result.weights_sha256)
[ -n "$WANT" ] && ok "undisturbed run: $WANT" || { bad "undisturbed run" "$T/watch.out"; lib_end; exit 1; }
rm -rf "${JOBS:?}/$id"

# ---- full ----------------------------------------------------------------------------------------
id=$(submit full)
wait_event "$id" checkpoint 1
check "the disk is full" fill
check "full: a note" until_ok 200 noted "$id"
check "full: the note names file and reason" sh -c "grep -q 'checkpoints/step-.*No space' <<X
$(notes "$id")
X"
check "full: every checkpoint is complete" whole "$id"
room
ends_well full "$id"
rm -rf "${JOBS:?}/$id"

# Ranks are killed while the disk is full: the next attempt resumes from a complete checkpoint
# and waits for space.
id=$(submit full-killed)
wait_event "$id" checkpoint 1
fill
until_ok 200 noted "$id"
procs seqrank | xargs -r kill -9
wait_event "$id" ready 2 && ok "full and killed: it starts again" || bad "full and killed: no second attempt"
check "full and killed: every checkpoint is complete" whole "$id"
room
ends_well "full and killed" "$id"
rm -rf "${JOBS:?}/$id"

# ---- full before a merge -------------------------------------------------------------------------
# The merged model has about 500 KB.
free_kib() { df --output=avail -k "$JOBS" | tail -n 1 | tr -d ' '; }
leave() { # KIB: fills the disk until it has this much
    dd if=/dev/zero of="$FILL" bs=1k count=$(($(free_kib) - $1)) status=none
    test "$(free_kib)" -le "$1"
}
files_of() { find "$JOBS/$1/checkpoints" -type f 2>/dev/null; }
refused() { seqctl events "$1" -o jsonl | grep -q '"type": "rank_exit".*"no_space"'; }
merges_well() { # NAME ID
    succeeds "$1" "$2" || return
    same "$1: the model of the undisturbed merge" "$(field "$2" result.weights_sha256)" "$MERGED"
    check "$1: no .tmp is left" no_tmp "$2"
}
JSON='"data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 128}, "train": {"steps": 2}, "seed": 3'
base=$(seqctl submit - -o name -q <<<"{\"kind\": \"train\", \"model\": {\"config\": $LLAMA}, $JSON}")
succeeds "a model" "$base"
tuned=$(seqctl submit - -o name -q <<<"{\"kind\": \"train\", \"model\": {\"path\": \"job:$base\"}, \"adapter\": {\"type\": \"lora\", \"rank\": 4}, $JSON}")
succeeds "an adapter of it" "$tuned"
id=$(seqctl merge "$tuned" -o name -q)
succeeds "an undisturbed merge" "$id"
MERGED=$(field "$id" result.weights_sha256)
rm -rf "${JOBS:?}/$id"
check "the disk has no room for the merged model" leave 300
id=$(seqctl merge "$tuned" -o name -q)
check "full before a merge: it is refused" until_ok 200 refused "$id"
says "full before a merge: the sentence names need, disk and fix" \
    "the merged model needs 1 MiB on the disk of .*/jobs/$id, and 0 MiB are free: remove" seqctl events "$id"
same "full before a merge: no file is written" "$(files_of "$id" | wc -l)" 0
room
merges_well "full before a merge" "$id"
rm -rf "${JOBS:?}/$id"

# ---- read-only -----------------------------------------------------------------------------------
id=$(submit readonly)
wait_event "$id" checkpoint 1
check "the disk is read-only" until_ok 50 mount -o remount,bind,ro "$JOBS"
check "read-only: a note" until_ok 200 noted "$id"
check "read-only: the note names file and reason" sh -c "grep -q 'checkpoints.*Read-only' <<X
$(notes "$id")
X"
check "read-only: every checkpoint is complete" whole "$id"
mount -o remount,bind,rw "$JOBS"
ends_well read-only "$id"
rm -rf "${JOBS:?}/$id"
check "seqd stops" seqd_stop

# ---- slow, and full while a merge writes ---------------------------------------------------------
# Every fsync takes 60 ms longer; a checkpoint has about twelve. The first write of a weight while
# there is a file fill-now removes that file and fills the disk.
# A rank in its sandbox could write neither the log nor the filler.
if preload seqrank -DSLOW_LOG="\"$T/slow.log\"" -DFILL_NOW="\"$T/fill-now\"" -DFILL="\"$FILL\"" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
int fsync(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    if (strstr(path, "/checkpoints")) {
        FILE *f = fopen(SLOW_LOG, "a");
        if (f) fprintf(f, "%s\n", path), fclose(f);
        nanosleep(&(struct timespec){0, 60000000}, NULL);
    }
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return next(fd);
}
ssize_t write(int fd, const void *p, size_t n)
{
    static const char zeros[1 << 16];
    char link[64], path[4096];
    ssize_t (*next)(int, const void *, size_t) =
        (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = n < 65536 ? -1 : readlink(link, path, sizeof path - 1);
    path[size < 0 ? 0 : size] = 0;
    if (strstr(path, "/checkpoints") && strstr(path, "safetensors") && !unlink(FILL_NOW)) {
        int to = open(FILL, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        while (next(to, zeros, sizeof zeros) > 0) {
        }
        close(to);
    }
    return next(fd, p, n);
}
C
then
    seqd_start --sandbox off || { lib_end; exit 1; }
    id=$(submit slow)
    ends_well slow "$id"
    check "slow: the disk was slow" test "$(wc -l <"$T/slow.log")" -ge 40
    check "slow: in one attempt" lost_no_rank "$id"
    rm -rf "${JOBS:?}/$id"
    : >"$T/fill-now"
    id=$(seqctl merge "$tuned" -o name -q)
    check "full during a merge: it fails" until_ok 200 refused "$id"
    check "full during a merge: the disk was filled" test ! -e "$T/fill-now" -a -s "$FILL"
    says "full during a merge: file and reason" 'checkpoints/step-.*safetensors.*No space' seqctl events "$id"
    check "full during a merge: no model looks complete" test -z "$(files_of "$id" | grep -v '\.tmp/')"
    room
    merges_well "full during a merge" "$id"
    check "seqd stops" seqd_stop
fi
check "nothing is left running" until_ok 50 nothing_left
check "no process holds the disk" until_ok 50 umount "$JOBS"
lib_end
