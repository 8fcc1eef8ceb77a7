#!/usr/bin/env bash
# Results come out: checkpoints, their parts and artifacts, by seqctl pull and as a tar, compared
# byte by byte with the node's directory; downloads that break continue.
#   BUILD=build/release   KEEP=1 keeps the state directory
# tests: needs @curl
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start pull

base() { head -n 1 "$STATE/address" | sed 's#^\(http://\)\{0,1\}#http://#'; }
curl() { command curl -H "Authorization: Bearer $(cat "$STATE/token")" "$@"; }
get() { local path=$1; shift; curl -sS "$@" "$(base)$path"; }
identical() { check "$1" diff -r "$2" "$3"; } # NAME DIR DIR
same() { if [ "$2" = "$3" ]; then ok "$1"; else bad "$1: '$2', want '$3'"; fi; }

make_text 100000 >"$T/data/text.txt"
seqd_start || { lib_end; exit 1; }
# 11 million parameters: 130 MB a checkpoint.
cat >"$T/data/job.json" <<'EOF'
{"kind": "train", "model": {"config": {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4,
 "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 1024, "vocab_size": 258}},
 "data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 32}, "train": {"steps": 2},
 "checkpoint": {"every_steps": 1}, "resources": {"ranks": 1, "threads": 2}, "seed": 1}
EOF
id=$(seqctl submit job.json -o name -q)
succeeds "training" "$id" || { lib_end; exit 1; }
dir=$STATE/node/jobs/$id/checkpoints/step-00000002
[ -d "$dir" ] || dir=$(find "$STATE" -type d -path "*/jobs/$id/checkpoints/step-00000002")

# ---- seqctl pull --------------------------------------------------------------------------------
says "pull says what it fetched" 'step 2: .* files fetched' seqctl pull "$id" "$T/all"
identical "the newest checkpoint" "$dir" "$T/all"
says "again: nothing is fetched" ' 0 files fetched' seqctl pull "$id" "$T/all"
flip_bit "$T/all/optim.safetensors" 100000
rm "$T/all/hf/config.json"
says "again: what is missing or differs" ' 2 files fetched' seqctl pull "$id/step-2" "$T/all"
identical "and it is whole again" "$dir" "$T/all"
check "the first checkpoint" seqctl pull "$id/step-1" "$T/first"
identical "the first checkpoint's bytes" "${dir%2}1" "$T/first"
check "a part" seqctl pull "$id" "$T/hf" --part hf
identical "a part's files lie in the directory itself" "$dir/hf" "$T/hf"
says "as JSON" '"state": "present"' seqctl pull "$id" "$T/hf" --part hf -o json
printf '\037\213\010' >"$T/data/gz.txt"
none=$(seqctl submit job.json --set data.train.0.path=gz.txt -o name -q)
seqctl watch "$none" -q --timeout $((60 * PATIENCE)) >/dev/null 2>&1
refuse "a job without artifacts" 3 'has no artifacts' seqctl pull "$none" "$T/none" --artifacts
printf '{"kind": "verify", "model": {"config": %s}, "data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 256}, "parallel": {"sp": 2}, "resources": {"ranks": 2, "threads": 1}}' "$LLAMA" >"$T/data/verify.json"
verify=$(seqctl submit verify.json -o name -q)
succeeds "verify" "$verify"
check "artifacts" seqctl pull "$verify" "$T/artifacts" --artifacts
identical "artifacts are the node's" "$(find "$STATE" -type d -path "*/jobs/$verify/artifacts")" "$T/artifacts"
printf '{"name": "a pair", %s' "$(sed 's/^{//' "$T/data/verify.json")" >"$T/data/named.json"
named=$(seqctl submit named.json -o name -q)
succeeds "a job with a name" "$named"
check "by the job's name" seqctl pull "a pair" "$T/named" --artifacts
refuse "a step by the job's name" 3 "checkpoint 7 of job $named" seqctl pull "a pair/step-7" "$T/none"
refuse "a step that is none" 2 'want a job, or JOB/step-N' seqctl pull "$id/step-x" "$T/none"
refuse "no such name" 3 'no job has the id or name' seqctl pull "a bear" "$T/none"
refuse "no such step" 3 'does not exist' seqctl pull "$id/step-7" "$T/none"
refuse "no such part" 3 'no such part' seqctl pull "$id" "$T/none" --part nothing
refuse "no such job" 3 'has no checkpoint|no job' seqctl pull 99 "$T/none"
refuse "a wrong operand" 3 'no job has the id or name "1/2"' seqctl pull 1/2 "$T/none"
check "a refused pull makes no directory" test ! -e "$T/none"
mkdir "$T/linked" && ln -s "$T" "$T/linked/hf"
refuse "a symbolic link is not followed" 1 'symbolic link' seqctl pull "$id" "$T/linked"

# ---- the curves of a training -------------------------------------------------------------------
# STEP LOSS of each step, as TensorBoard shows a directory: a START that is not the first drops what
# is of its step and later ones. By the bytes: length, CRC, wall time, step; then a START or the
# first scalar, which is the loss.
curves() { # DIR
    local f
    for f in "$1"/events.out.tfevents.*; do od -An -v -tu1 -w65536 "$f" | tr '\n' ' '; echo; done | awk '
        function varint(   v, m) { v = 0; m = 1; while ($at >= 128) { v += ($(at++) - 128) * m; m *= 128 } return v + $(at++) * m }
        function number(i,   m, e) {
            e = ($(i + 3) % 128) * 2 + int($(i + 2) / 128)
            m = 1 + ($(i + 2) % 128 * 65536 + $(i + 1) * 256 + $i) / 8388608
            return ($(i + 3) >= 128 ? -1 : 1) * m * 2 ^ (e - 127)
        }
        { for (r = 1; r + 12 < NF; r += $r + $(r + 1) * 256 + 16) {
            at = r + 12 + 10; step = varint()
            if ($at == 58) { if (starts++) for (k in loss) if (k + 0 >= step) delete loss[k] }
            else if ($at == 42) { at++; varint(); at++; varint(); at++; n = varint(); tag = ""
                for (i = 0; i < n; i++) tag = tag sprintf("%c", $(at + i))
                if (tag == "train/loss") { if (step + 0 in loss) print "twice", step; loss[step + 0] = number(at + n + 1) } }
        } }
        END { for (k in loss) printf "%d %.9g\n", k, loss[k] }' | sort -n
}
reported() { # ID: the same, of the metrics: the last word on each step
    seqctl metrics "$1" -o jsonl | sed 's/.*"step": \([0-9]*\).*"loss": \([^,]*\),.*/\1 \2/' |
        awk '{ loss[$1] = $2; if ($1 + 0 > last) last = $1 + 0 } END { for (k = 1; k <= last; k++) if (k in loss) print k, loss[k] }'
}
agree() { # DIR ID: every step once, no hole, the same losses but for what a float has not
    curves "$1" >"$T/shown"; reported "$2" >"$T/reported"
    [ -s "$T/shown" ] && paste -d ' ' "$T/shown" "$T/reported" | head -n 3
    paste -d ' ' "$T/shown" "$T/reported" | awk 'NF != 4 || $1 != NR || $3 != NR { exit 1 } { d = $2 - $4; if (d < 0) d = -d; if (d > 1e-7 * $4) exit 1 }'
}
check "the curves of a training" seqctl pull "$id" "$T/curves" --artifacts
check "they are the losses that it reported" agree "$T/curves" "$id"
identical "byte by byte those of the node" "$(find "$STATE" -type d -path "*/jobs/$id/artifacts")" "$T/curves"
same "each file is listed once, with its digest" "$(seqctl artifacts "$id" -o jsonl | grep -c '"sha256"')" 1
printf '{"kind": "train", "model": {"config": %s}, "data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 128}, "train": {"steps": 12000}, "checkpoint": {"every_steps": 50, "keep": 1}, "resources": {"ranks": 1, "threads": 1}}' "$LLAMA" >"$T/data/long.json"
long=$(seqctl submit long.json -o name -q)
wait_event "$long" artifact
check "while it runs" seqctl pull "$long" "$T/live" --artifacts
check "has the first steps" sh -c '[ "$(head -n 1)" != "" ]' <<<"$(curves "$T/live")"
wait_event "$long" checkpoint 1
procs seqrank | xargs -r kill -9
wait_event "$long" ready 2; wait_event "$long" artifact 3
check "again, into the same directory" seqctl pull "$long" "$T/live" --artifacts
# What the killed attempt did beyond its checkpoint is done again before the job is cancelled.
again() { seqctl metrics "$long" -o jsonl | awk 'match($0, /"step": [0-9]+/) { step = substr($0, RSTART + 8, RLENGTH - 8) + 0; if (step > most) most = step; last = step } END { exit !(most > 0 && last == most) }'; }
check "the steps that were lost are made again" until_ok 300 again
seqctl cancel "$long" --wait -q >/dev/null 2>&1
says "the file of the attempt before is present" '"state": "present"' seqctl pull "$long" "$T/live" --artifacts -o json
same "a file an attempt" "$(ls "$T/live" | wc -l)" 2
check "each step once, after a kill and a cancel" agree "$T/live" "$long"

# ---- tar ----------------------------------------------------------------------------------------
tar_path=/v1/jobs/$id/checkpoints/2.tar
get "$tar_path" -o "$T/a.tar" -w '%{speed_download} B/s\n' >"$T/speed"
mkdir "$T/untar"
check "the system's tar reads it" tar -C "$T/untar" -xf "$T/a.tar"
identical "and has the checkpoint" "$dir" "$T/untar/step-00000002"
get "$tar_path" -o "$T/b.tar" --max-filesize 999999999 --limit-rate 20M --max-time 1 2>/dev/null
check "a tar that broke off" test "$(stat -c %s "$T/b.tar")" -lt "$(stat -c %s "$T/a.tar")"
get "$tar_path" -o "$T/b.tar" -C - 2>"$T/out"
check "continues" cmp "$T/a.tar" "$T/b.tar"
get "$tar_path?path=hf" -o "$T/part.tar"
check "a part's tar" tar -xf "$T/part.tar" -C "$T" step-00000002/hf/config.json
echo "     $(awk '{ printf "%.0f MB/s", $1 / 1e6 }' "$T/speed") for the tar of $(stat -c %s "$T/a.tar") bytes"
seqctl pull "$id" "$T/timed" -q & wait $!
check "a pull beside" test -s "$T/timed/MANIFEST.json"

# ---- kill -9 ------------------------------------------------------------------------------------
# seqd, then seqctl, are killed while a file is half here; each time the next pull continues it.
for victim in seqd seqctl; do
    seqctl pull "$id" "$T/killed" -q >"$T/out" 2>&1 &
    pull=$!
    # No pause here: the files are large for the moment between two looks.
    until [ -s "$T/killed/hf/model.safetensors.part" ] || [ -s "$T/killed/optim.safetensors.part" ] || gone "$pull"; do :; done
    if [ "$victim" = seqd ]; then crash; wait "$pull"; else kill -9 "$(procs seqctl)" 2>/dev/null; wait "$pull" 2>/dev/null; fi
    check "$victim killed: no checkpoint yet" test ! -e "$T/killed/MANIFEST.json"
    [ "$victim" = seqctl ] || seqd_start
done
before=$(cat "$T"/killed/*.part "$T"/killed/hf/*.part 2>/dev/null | wc -c)
seqctl pull "$id" "$T/killed" -o json >"$T/out" 2>&1
check "a part file was left to continue" test "$before" -gt 0
identical "after two kills" "$dir" "$T/killed"

rm -rf "$dir"
refuse "a checkpoint that is gone" 3 'No such file' seqctl pull "$id/step-2" "$T/gone"
seqd_stop
lib_end
