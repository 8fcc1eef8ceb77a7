#!/usr/bin/env bash
# A limit on the size of files (ulimit -f, LimitFSIZE=), which batch systems set: no program dies by
# SIGXFSZ, a checkpoint that is too large is noted and then ends the job, and seqd says what is set.
#   BUILD=build/release   KEEP=1 keeps the state
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start limits

# ---- less than seqd needs ------------------------------------------------------------------------
small() { (ulimit -f 256; exec "$BIN/seqd" --dev --state "$T/new" --listen 127.0.0.1:0); }
refuse "seqd under 256 KiB" 1 'RLIMIT_FSIZE \(ulimit -f, LimitFSIZE=\) is 262144 bytes and seqd writes files' small

# ---- less than a checkpoint needs ----------------------------------------------------------------
head -c 200000 /dev/zero | tr '\0' 'a' >"$T/data/text.txt"
ulimit -S -f 17408
seqd_start
ulimit -S -f unlimited
check "seqd says what the limit is" grep -q 'store.file_limit bytes=17825792 ' "$SEQD_LOG"
cat >"$T/job.json" <<'X'
{"kind": "train", "name": "fsize",
 "model": {"config": {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 1024, "vocab_size": 258}},
 "data": {"train": [{"path": "text.txt"}], "seq_len": 32}, "parallel": {"sp": 2}, "train": {"steps": 4},
 "checkpoint": {"every_steps": 2}, "limits": {"restarts": 1}, "resources": {"ranks": 2}}
X
id=$(seqctl submit "$T/job.json" -o name -q)
refuse "the last checkpoint fails the job" 10 'class=final .*code=too_large' "$BIN/seqctl" watch "$id" -q --timeout $((60 * PATIENCE))
says "its error names the limit and the bytes" \
    'RLIMIT_FSIZE \(ulimit -f, LimitFSIZE=\) is 17825792 bytes and the file needs 2[0-9]{7}' "$BIN/seqctl" show "$id"
same "at once" "$(field "$id" attempts) $(field "$id" restarts)" "1 0"
seqctl events "$id" -o jsonl >"$T/events"
check "the one before is noted, and training ran on" grep -q '"checkpoint_failed".*RLIMIT_FSIZE' "$T/events"
same "all steps were made" "$(field "$id" step)" 4
check "no process died by a signal" sh -c "! grep -q '\"signal\"' '$T/events'"
check "seqd stops" seqd_stop
check "no process is left" until_ok 100 nothing_left
lib_end
