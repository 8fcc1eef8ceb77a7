#!/usr/bin/env bash
# seqctl push --convert: compressed files and Parquet become files that jobs read; damaged, huge and unfit
# ones are refused, and nothing is left of them.
#   BUILD=build/release   KEEP=1 keeps the state directory
#   CONVERT_PYTHON=PATH   a python3 that has pyarrow, where the first of PATH has none
# Without pyarrow a stand-in of a few lines (tests/arrow) reads descriptions in place of Parquet.
# tests: needs arrow @python3 @zstd @gzip @cc
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
command -v python3 >/dev/null || nothing_tested convert "there is no python3 here"
lib_start convert

# A python3 without packages, and one with pyarrow. Each stands in a folder, which comes first in PATH.
REAL=$(python3 -c 'import sys; print(sys.executable)')
python_in() { # FOLDER COMMAND: its python3
    mkdir -p "$T/$1" && printf '#!/bin/sh\nexec %s "$@"\n' "$2" >"$T/$1/python3" && chmod +x "$T/$1/python3"
}
python_in bare "'$REAL' -S"
python_in arrow "'${CONVERT_PYTHON:-$REAL}'"
mkdir "$T/none" "$T/tmp" "$T/stand-in"
# The stand-in is found although python3 -I looks at no variable: its folder is named in the text of -c.
printf '#!/bin/sh\n[ "$1 $2" = "-I -c" ] || exit 9\ntext=$3; shift 3\nexec %s -S -c "import sys; sys.path.insert(0, %s)\n$text" "$@"\n' \
    "'$REAL'" "'$PWD/tests/arrow'" >"$T/stand-in/python3"
chmod +x "$T/stand-in/python3"
export TMPDIR=$T/tmp # of conversions; lib.sh has made its own folder
# Pushes with a python3 in front of all programs.
push_by() { local folder=$1; shift; PATH=$T/$folder:$PATH seqctl push --convert "$@"; }
push() { push_by bare "$@"; }
names() { (cd "$up/$1" && find . -type f | LC_ALL=C sort | tr '\n' ' '); } # NAME: files of an upload

seqd_start || { lib_end; exit 1; }
up=$STATE/uploads/files

# ---- gzip ----------------------------------------------------------------------------------------
odd="it's a \"file\" \$(x)"
mkdir -p "$T/data/in/$odd/train"
printf '{"text": "one"}\n{"text": "two"}' >"$T/data/two.jsonl"
make_text 50000 >"$T/data/text.txt"
cp "$T/data/text.txt" "$T/data/in/README.md"
gzip -c "$T/data/two.jsonl" >"$T/data/in/$odd/train/two.jsonl.gz"
{ gzip -c "$T/data/two.jsonl"; printf '\n{"text": "three"}\n' | gzip; } >"$T/data/in/$odd/parts.json.gz"
gzip -c "$T/data/text.txt" >"$T/data/in/text.txt.gz"
printf '[{"text": "a", "n": [1,\n 2]},\n {"text": "\\u00e9"}]' | gzip >"$T/data/in/list.json.gz"
says "files of a directory" 'converted 4 of 5 files: 7 rows of JSONL' push in all
same "their names, and a file that stays as it is" "$(names all)" "./README.md ./$odd/parts.jsonl ./$odd/train/two.jsonl ./list.jsonl ./text.txt "
check "text" cmp "$T/data/text.txt" "$up/all/text.txt"
check "lines" cmp "$T/data/two.jsonl" "$up/all/$odd/train/two.jsonl"
same "an array is a line for each element" "$(cat "$up/all/list.jsonl")" '{"text": "a", "n": [1,  2]}
{"text": "\u00e9"}'
same "two members of gzip" "$(wc -l <"$up/all/$odd/parts.jsonl")" 3
says "again: nothing is sent" ' 0 B sent' push in all
says "one file has the name of its result" '^upload:two.jsonl$' push "in/$odd/train/two.jsonl.gz" -o name -q
printf '{"kind": "train", "model": {"config": %s}, "data": {"train": [{"path": "upload:all/*.jsonl"}], "seq_len": 16}, "train": {"steps": 2}, "resources": {"ranks": 1, "threads": 1}, "seed": 1}' "$LLAMA" >"$T/data/job.json"
succeeds "a job on the results" "$(seqctl submit job.json -o name -q)" && ok "a job on the results"
says "nothing to convert" 'nothing is converted' push text.txt
cp "$T/data/two.jsonl" "$T/data/in/list.jsonl"
refuse "two files of one name" 1 'list.json.gz and list.jsonl would both become list.jsonl|list.jsonl and list.json.gz' push in both
rm "$T/data/in/list.jsonl"

# ---- refused -------------------------------------------------------------------------------------
gz() { gzip >"$T/data/$1"; } # NAME: stdin, compressed
head -c 400 "$T/data/in/text.txt.gz" >"$T/data/cut.txt.gz"
refuse "a file that is cut off" 1 'cut.txt.gz is no whole gzip file' push cut.txt.gz
cp "$T/data/text.txt" "$T/data/no.txt.gz"
refuse "none of gzip" 1 'no.txt.gz is no whole gzip file: Not a gzipped' push no.txt.gz
: >"$T/data/empty.jsonl.gz"
refuse "an empty file" 1 'empty.jsonl.gz has no record' push empty.jsonl.gz
: >"$T/data/empty.txt.gz"
refuse "an empty text" 1 'empty.txt.gz has no record' push empty.txt.gz
printf ' [ ]\n' | gz none.json.gz
refuse "an empty array" 1 'none.json.gz has no record' push none.json.gz
printf '{\n"text": "one document"\n}\n' | gz doc.json.gz
refuse "a document of many lines" 1 'doc.json.gz has no record in its first line' push doc.json.gz
printf '[{"text": "a"}, 3]' | gz three.json.gz
refuse "an array of something else" 1 "three.json.gz has '3' where element 1" push three.json.gz
printf '[{"text": "a"}, {"text"' | gz open.json.gz
refuse "an array without an end" 1 'open.json.gz has an array whose element 1 is not whole' push open.json.gz
printf '[{"text": "\377"}]' | gz latin.json.gz
refuse "bytes that are not UTF-8" 1 'latin.json.gz has bytes that are not UTF-8' push latin.json.gz
{ printf '['; head -c 1000000 /dev/zero | tr '\0' '[' | sed 's/\[/{"a":/g'; } | gz deep.json.gz
refuse "a tower of objects" 1 'deep.json.gz is nested too deeply' push deep.json.gz
tar -C "$T/data" -cf - text.txt two.jsonl | gz pack.tar.gz
refuse "an archive" 1 'pack.tar.gz is a tar archive within a compressed file' push pack.tar.gz
cp "$T/data/pack.tar.gz" "$T/data/pack.txt.gz"
refuse "an archive that is called a text" 1 'pack.txt.gz holds a tar archive' push pack.txt.gz
head -c 80000000 /dev/zero | gz bomb.txt.gz
refuse "a bomb" 1 'bomb.txt.gz becomes larger than 64.0 MiB.*100 times' push bomb.txt.gz
mkdir "$T/data/late" && cp "$T/data/in/text.txt.gz" "$T/data/late/a.txt.gz" && cp "$T/data/cut.txt.gz" "$T/data/late/b.txt.gz"
refuse "the second of two" 1 'late/b.txt.gz is no whole gzip file' push late
check "nothing of it was sent" test ! -e "$up/late"
check "nothing is left of any conversion" test -z "$(ls -A "$T/tmp")"
refuse "no directory for results" 1 'set TMPDIR' env TMPDIR="$T/nowhere" env -C "$T/data" "$BIN/seqctl" push --convert in/text.txt.gz
refuse "no python3" 1 'python3, which reads in/text.txt.gz, cannot be started' env -C "$T/data" PATH="$T/none" "$BIN/seqctl" push --convert in/text.txt.gz
refuse "columns without Parquet" 2 'in/text.txt.gz has none' push in/text.txt.gz --column text
refuse "columns without --convert" 2 '--column needs --convert' seqctl push in --column text

# A helper that never ends, and seqctl killed meanwhile.
mkdir "$T/slow" && printf '#!/bin/sh\nwhile echo line; do sleep 0.02; done\n' >"$T/slow/python3" && chmod +x "$T/slow/python3"
push_by slow in/text.txt.gz >/dev/null 2>&1 &
pushing=$!
helper() { helper=$(pgrep -P "$(procs seqctl)") 2>/dev/null; }
until_ok 100 helper || bad "a helper runs"
check "the results have no name meanwhile" test -z "$(ls -A "$T/tmp")"
kill -9 "$(procs seqctl)"; wait "$pushing" 2>/dev/null
check "seqctl is killed: the helper ends" until_ok 100 gone "$helper"
check "and nothing is left" test -z "$(ls -A "$T/tmp")"

# ---- Zstandard -----------------------------------------------------------------------------------
if command -v zstd >/dev/null; then
    mkdir "$T/data/z"
    { zstd -qc "$T/data/two.jsonl"; printf '\n{"text": "three"}\n' | zstd -qc; } >"$T/data/z/a.jsonl.zst"
    says "two frames" '3 rows of JSONL' push z
    same "are one file" "$(wc -l <"$up/z/a.jsonl")" 3
    head -c 20 "$T/data/z/a.jsonl.zst" >"$T/data/cut.jsonl.zst"
    refuse "a frame that is cut off" 1 'cut.jsonl.zst is no whole Zstandard file' push cut.jsonl.zst
    refuse "none of its readers" 1 'needs zstd, zstandard or pyarrow' env -C "$T/data" PATH="$T/bare" "$BIN/seqctl" push --convert z
    for reader in zstandard pyarrow; do
        "$T/arrow/python3" -I -c "import $reader" 2>/dev/null || { echo "without $reader: zstd alone reads Zstandard here"; continue; }
        says "read by a package" '3 rows of JSONL' env -C "$T/data" PATH="$T/arrow" "$BIN/seqctl" push --convert z
        refuse "cut off" 1 'cut.jsonl.zst is no whole Zstandard file' env -C "$T/data" PATH="$T/arrow" "$BIN/seqctl" push --convert cut.jsonl.zst
    done
else echo "left out: there is no zstd here"; fi

# ---- Parquet -------------------------------------------------------------------------------------
: >"$T/data/chat.parquet"
refuse "no pyarrow" 1 'needs pyarrow, which python3 does not have: .*pip install pyarrow' push chat.parquet
turns='["list", ["struct", [["role", "string"], ["content", "string"], ["tool_calls", "string"], ["weight", "double"]]]]'
turn() { printf '{"role": "%s", "content": "%s"}' "$1" "$2"; }
describe() { # NAME COLUMNS ROWS
    printf '{"columns": [%s], "rows": [%s]}' "$2" "$3" >"$T/data/$1.described"
}
describe chat "[\"id\", \"int64\"], [\"messages\", $turns], [\"note\", \"null\"]" \
    "{\"id\": 7, \"messages\": [$(turn user 'say \"hi\"\n'), $(turn assistant 'é')]}, {\"messages\": [$(turn user a), {\"role\": \"assistant\", \"content\": \"b\", \"weight\": 0.5}]}"
describe pairs "[\"prompt\", $turns], [\"chosen\", $turns], [\"rejected\", $turns], [\"at\", \"timestamp[us]\"]" \
    "{\"prompt\": [$(turn user a)], \"chosen\": [$(turn assistant b)], \"rejected\": [$(turn assistant c)]}"
describe bytes '["text", "string"], ["image", ["struct", [["bytes", "binary"], ["path", "string"]]]]' '{"text": "a"}'
describe price '["text", "string"], ["price", "decimal"]' '{"text": "a"}'
describe nan '["text", "string"], ["x", "double"]' '{"text": "a", "x": 1}, {"text": "b", "x": NaN}'
describe twice '["text", "string"], ["text", "string"]' '{"text": "a"}'
describe only '["image", "binary"]' '{}'
describe flags '["a", "bool"], ["b", "uint64"], ["c", ["list", "int32"]]' '{"a": true, "b": 18446744073709551615, "c": [1, null]}, {"c": []}'
describe dots '["user", "string"], ["user.at", "timestamp[us]"], ["user.x", "string"]' '{"user": "a", "user.x": "b"}'
describe many '["text", "string"]' "$(seq 1000 | sed 's/.*/{"text": "row &"}/' | paste -sd ,)"
parquet() { # FOLDER: the cases, by the python3 that stands there
    local by=$1
    says "conversations" 'converted 1 of 1 files: 2 rows' push_by "$by" chat.parquet "chat-$by"
    same "without nulls" "$(cat "$up/chat-$by/chat.jsonl")" '{"id": 7, "messages": [{"role": "user", "content": "say \"hi\"\n"}, {"role": "assistant", "content": "é"}]}
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0.5}]}'
    refuse "a time" 1 'pairs.parquet has at of type timestamp.us. in column "at", which JSON does not have: take others, by --column prompt --column chosen --column rejected' \
        push_by "$by" pairs.parquet
    says "preferences, without it" '1 rows' push_by "$by" pairs.parquet "pairs-$by" --column prompt --column chosen --column rejected
    same "as lists of messages" "$(cat "$up/pairs-$by/pairs.jsonl")" \
        '{"prompt": [{"role": "user", "content": "a"}], "chosen": [{"role": "assistant", "content": "b"}], "rejected": [{"role": "assistant", "content": "c"}]}'
    says "a column, without those of longer names" '1 rows' push_by "$by" dots.parquet "dots-$by" --column user
    same "and nothing of theirs" "$(cat "$up/dots-$by/dots.jsonl")" '{"user": "a"}'
    refuse "bytes" 1 'has image.bytes of type binary in column "image".*--column text$' push_by "$by" bytes.parquet
    refuse "a decimal" 1 'has price of type decimal.* in column "price"' push_by "$by" price.parquet
    refuse "bytes alone" 1 'which JSON does not have: convert the file yourself' push_by "$by" only.parquet
    refuse "not a number" 1 'nan.parquet cannot be read past row 1: Out of range' push_by "$by" nan.parquet
    refuse "two columns of one name" 1 'has several columns "text"' push_by "$by" twice.parquet
    refuse "no such column" 1 'has no column "answer": it has prompt, chosen' push_by "$by" pairs.parquet --column answer
    refuse "no Parquet" 1 'torn.parquet cannot be read past row 0: Parquet magic' push_by "$by" torn.parquet
    says "numbers" '2 rows' push_by "$by" flags.parquet "flags-$by"
    same "and lists of them" "$(cat "$up/flags-$by/flags.jsonl")" '{"a": true, "b": 18446744073709551615, "c": [1, null]}
{"c": []}'
    says "shards" '2,000 rows' push_by "$by" shards "shards-$by"
    same "each by its name" "$(names "shards-$by")" './train-00000-of-00002.jsonl ./train-00001-of-00002.jsonl '
    same "in their order" "$(tail -n 1 "$up/shards-$by/train-00001-of-00002.jsonl")" '{"text": "row 1000"}'
}
files() { # COMMAND: makes the files of all descriptions
    local f
    rm -rf "$T/data/shards" && mkdir "$T/data/shards"
    for f in "$T"/data/*.described; do "$@" "$f" "${f%.described}.parquet" || return; done
    for f in 0 1; do cp "$T/data/many.parquet" "$T/data/shards/train-0000$f-of-00002.parquet"; done
    head -c 30 "$T/data/chat.parquet" >"$T/data/torn.parquet"
}
files cp
parquet stand-in
if "$T/arrow/python3" -I -c 'import pyarrow' 2>/dev/null; then
    check "files are made by pyarrow" files "$T/arrow/python3" -I tests/arrow/make.py
    parquet arrow
    check "nothing is left of any conversion" test -z "$(ls -A "$T/tmp")"
else echo "left out: real Parquet (python3 has no pyarrow; CONVERT_PYTHON names one that has it)"; fi

preload seqctl <<'END'
#include <stdlib.h>
#include <sys/statvfs.h>
static int looks;
int fstatvfs(int fd, struct statvfs *s)
{
    (void)fd;
    *s = (struct statvfs){.f_frsize = 1, .f_bavail = getenv("FULL_LATER") && !looks++ ? 1L << 40 : 1000};
    return 0;
}
int fstatvfs64(int fd, struct statvfs *s) { return fstatvfs(fd, s); }
END
refuse "a disk that is nearly full" 1 'has 1000 B left, .* keeps 256.0 MiB free: set TMPDIR to a directory of a larger disk' push in/text.txt.gz
mkdir "$T/data/three"
for f in 1 2 3; do head -c 12000000 /dev/zero | tr '\0' 'a' | gz three/$f.txt.gz; done
FULL_LATER=1 refuse "a disk that small files fill" 1 'has 1000 B left' push three

seqd_stop || bad "seqd stops"
lib_end
