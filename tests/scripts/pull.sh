#!/usr/bin/env bash
# Results come out: checkpoints, their parts and artifacts, by seqctl pull and as a tar, compared
# byte by byte with the node's directory; downloads that break continue.
#   BUILD=build/release   KEEP=1 keeps the state directory
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
printf x | dd of="$T/all/optim.safetensors" bs=1 seek=100000 conv=notrunc 2>/dev/null
rm "$T/all/hf/config.json"
says "again: what is missing or differs" ' 2 files fetched' seqctl pull "$id/step-2" "$T/all"
identical "and it is whole again" "$dir" "$T/all"
check "the first checkpoint" seqctl pull "$id/step-1" "$T/first"
identical "the first checkpoint's bytes" "${dir%2}1" "$T/first"
check "a part" seqctl pull "$id" "$T/hf" --part hf
identical "a part's files lie in the directory itself" "$dir/hf" "$T/hf"
says "as JSON" '"state": "present"' seqctl pull "$id" "$T/hf" --part hf -o json
refuse "a job without artifacts" 3 'has no artifacts' seqctl pull "$id" "$T/none" --artifacts
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
