#!/usr/bin/env bash
# Inputs come in: seqctl push of files and directories, broken by kill -9 of either side and
# continued, until nodes have the same bytes; and jobs that read them.
#   BUILD=build/release   KEEP=1 keeps the state directory
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start push

identical() { check "$1" diff -r "$2" "$3"; } # NAME DIR DIR

mkdir -p "$T/data/in/deep/er"
make_text 100000 >"$T/data/in/text.txt"
cp "$T/data/in/text.txt" "$T/data/text.txt"
: >"$T/data/in/empty"
for i in 1 2 3; do head -c $((i * 30000000 + i)) /dev/urandom >"$T/data/in/deep/er/$i.bin"; done
seqd_start || { lib_end; exit 1; }
up=$STATE/uploads/files

says "push a file" 'upload:text.txt: .* 1 files' seqctl push text.txt
check "it is there" cmp "$T/data/text.txt" "$up/text.txt/text.txt"
says "again: nothing is sent" ' 0 B sent|, 0 bytes sent' seqctl push text.txt
says "push a directory, as JSON" '"state": "complete"' seqctl push in dir -o json
identical "it is there, with its directories" "$T/data/in" "$up/dir"
says "a name for scripts" '^upload:dir$' seqctl push in dir -o name -q
refuse "another one of that name" 4 'other files is here' seqctl push text.txt dir
refuse "a name that leads out" 1 'name: want' seqctl push text.txt ../x
refuse "no such file" 1 'No such file' seqctl push nothing
mkfifo "$T/data/in/fifo"
refuse "no file at all" 1 'neither a file' seqctl push in other
rm "$T/data/in/fifo"

# ---- jobs read it -------------------------------------------------------------------------------
printf '{"kind": "train", "model": {"config": %s}, "data": {"train": [{"path": "upload:dir/text.txt", "format": "text"}], "seq_len": 64}, "train": {"steps": 2}, "resources": {"ranks": 1, "threads": 1}, "seed": 1}' "$LLAMA" >"$T/data/job.json"
id=$(seqctl submit job.json -o name -q)
succeeds "a job on an upload" "$id" && ok "a job on an upload"
check "its model is pulled" seqctl pull "$id" "$T/data/model" --part hf
check "and pushed" seqctl push model tiny
printf '{"kind": "score", "model": {"path": "upload:tiny"}, "input": {"path": "upload:text.txt/text.txt", "format": "text"}, "data": {"seq_len": 64}, "resources": {"ranks": 1, "threads": 1}}' >"$T/data/score.json"
id=$(seqctl submit score.json -o name -q)
succeeds "a model that was pulled and pushed" "$id" && ok "a model that was pulled and pushed"
refuse "an upload that is not there" 1 'no complete upload' seqctl submit score.json --set model.path=upload:none

# seqd, then seqctl, are killed while files are on their way.
parts() { find "$STATE/uploads/parts" -name '*.bin' -size +0 2>/dev/null | grep -q .; }
for victim in seqd seqctl; do
    seqctl push in broken -q >"$T/out" 2>&1 &
    push=$!
    until parts || gone "$push"; do :; done
    if [ "$victim" = seqd ]; then crash; wait "$push"; else kill -9 "$(procs seqctl)" 2>/dev/null; wait "$push" 2>/dev/null; fi
    check "$victim killed: the upload has no name yet" test ! -e "$up/broken"
    [ "$victim" = seqctl ] || seqd_start
done
check "a part was left to continue" parts
says "the third continues" 'upload:broken' seqctl push in broken
identical "after two kills" "$T/data/in" "$up/broken"
check "nothing of it is left over" sh -c "[ -z \"\$(ls '$STATE/uploads/parts')\" ]"

says "uploads lists them" 'broken +complete' seqctl uploads
check "and removes one" seqctl uploads rm broken
check "whose files are gone" test ! -e "$up/broken"
refuse "removed twice" 3 'no upload' seqctl uploads rm broken
refuse "a wrong word" 2 'rm NAME' seqctl uploads remove broken
crash; seqd_start --uploads-max 100M
refuse "over the quota" 1 'uploads-max' seqctl push in more
seqd_stop
lib_end
