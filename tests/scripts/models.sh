#!/usr/bin/env bash
# Model directories: `seqctl model check` says all that one holds and all that is wrong with it, and
# GET /v1/models what lies beneath the roots of a node.
#   BUILD=build/release   KEEP=1 keeps the directories
# tests: needs golden
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start models
golden=$PWD/tests/golden

# A command, its exit status, and lines of its output.
says() { # NAME STATUS 'PATTERN' ...; the output is $T/out
    local name=$1 want=$2 rc=$3 p; shift 3
    if [ "$rc" -ne "$want" ]; then bad "$name: exit status $rc" "$T/out"; return; fi
    for p in "$@"; do grep -qE "$p" "$T/out" || { bad "$name: no $p" "$T/out"; return; }; done
    ok "$name"
}
check() { seqctl model check "$1" >"$T/out" 2>&1; }

check "$golden/llama3"
says "a good directory" 0 $? '^family +llama$' '^parameters +16,560$' '^element types +BF16$' '^tokenizer +none' \
    '^generation ends +256$' '^no fault$'

# Every family is described with a small stack.
small=0
for d in "$golden"/*/config.json; do
    (ulimit -s 256; exec "$BIN/seqrank" --describe "${d%/config.json}") >"$T/out" 2>&1 || { bad "$d with a stack of 256 KiB" "$T/out"; small=1; }
done
[ $small -eq 0 ] && ok "every family is described with a stack of 256 KiB"

# With a tokenizer and a template of its own; then with ids beyond the vocabulary, and a template that is none.
mkdir "$T/own" && cp "$golden"/llama3/* "$T/own"
cp "$golden/tokenizers/bert.json" "$T/own/tokenizer.json"
echo '{{ messages[0].content }}' >"$T/own/chat_template.jinja"
check "$T/own"
says "a tokenizer with ids that the model has not" 1 $? '^tokenizer +its own, [0-9]+ ids$' '^chat template +loads$' \
    'tokenizer.json: it has id [0-9]+, and vocab_size'
echo '{% for x in %}' >"$T/own/chat_template.jinja"
echo '{"model": {"type": "Telepathy"}}' >"$T/own/tokenizer.json"
check "$T/own"
says "a tokenizer and a template that do not load" 1 $? '^tokenizer +not read: token ids alone' \
    '^chat template +does not load' '^2 faults:' 'its text is not read, token ids alone are: .*tokenizer.json: .*Telepathy' 'chat_template.jinja'

# Several faults, none of which hides another.
mkdir "$T/bad" && head -c 2000 "$golden/llama3/model.safetensors" >"$T/bad/model.safetensors"
echo '{"model_type": "llama", "hidden_size": -1, "wings": 2}' >"$T/bad/config.json"
echo '{"eos_token_id": -7}' >"$T/bad/generation_config.json"
check "$T/bad"
says "all faults at once" 1 $? '^4 faults:' 'config.json: hidden_size' 'config.json: wings' 'bad/model.safetensors: ' \
    'generation_config.json: eos_token_id'
seqctl model check "$T/bad" -o json >"$T/out"
says "as JSON" 1 $? '"loads": false' '"n_faults": 4'
seqctl model check "$T/nowhere" >"$T/out" 2>&1
says "a directory that is not there" 1 $? 'nowhere cannot be looked at: .*: give the path of a directory' '^1 fault:'
mkdir "$T/pickle" && cp "$golden/llama3/config.json" "$T/pickle" && touch "$T/pickle/pytorch_model.bin"
check "$T/pickle"
says "a directory with a pickle" 1 $? '^1 fault:' 'pytorch_model.bin.*convert it once.* torch.load'
seqctl model check >"$T/out" 2>&1
says "no directory" 2 $? 'seqctl model check DIR'

# Those of a node: good ones and hostile ones, and what makes the walk long.
R=$T/data/models
mkdir -p "$R/deep/er" "$R/none" && cp -r "$golden/llama3" "$R/deep/er/good" && cp -r "$T/bad" "$R/bad"
ln -s .. "$R/deep/up" && ln -s "$R/deep" "$R/again" && ln -s "$golden" "$R/outside"
mkdir "$R/leads_out" && cp "$golden/llama3/config.json" "$R/leads_out" &&
    ln -s "$golden/llama3/model.safetensors" "$R/leads_out/model.safetensors"
mkdir "$R/pipe" && mkfifo "$R/pipe/config.json" && touch "$R/pipe/tokenizer.json"
mkdir "$R/$(printf 'na\033[31mme\xff')" && cp "$golden"/llama3/* "$R"/na*/
seqd_start || { lib_end; exit 1; }
seqctl model ls >"$T/out" 2>&1
says "models of a node" 0 $? '^local +/.*/models/deep/er/good +llama +16,560 +32.3 KiB +none: token ids alone +yes *$' \
    '/models/bad +llama +- .* no +.*config.json: hidden_size' '/models/leads_out +llama .* no +.*model.safetensors' \
    '/models/pipe +.* no +.*config.json' '/models/na.*me.* +llama .* yes'
n=$(grep -c '^local' "$T/out")
if [ "$n" -eq 5 ]; then ok "each once, and no link to a directory is followed"; else bad "$n models" "$T/out"; fi

# GGUF files: by their paths, or by the directory of one; a training leaves a directory as any other does.
check "$golden/gguf/llama.gguf"
says "a GGUF file" 0 $? '^family +llama$' '^element types +.*Q4_0' '^tokenizer +none' '^no fault$'
check "$golden/gguf/llama2.gguf"
says "a GGUF file without weights" 1 $? 'llama.embedding_length is missing'
mkdir "$R/gguf" && cp "$golden/gguf/qwen3.gguf" "$R/gguf"
head -c 3000 "$golden/gguf/llama.gguf" >"$T/half.gguf" && cp "$T/half.gguf" "$R/none/half.gguf"
check "$T/half.gguf"
says "a GGUF file that is cut off" 1 $? '^weights +not read: .*half.gguf: .*fetch the file again$' \
    '^tokenizer +not read: .*half.gguf: ' '^chat template +not read$' '^1 fault:'
seqctl model ls >"$T/out" 2>&1
says "a directory with a GGUF file" 0 $? '/models/gguf +llama .* yes' \
    '/models/none +- +not read +not read +no +.*half.gguf: .*fetch the file again'
for i in 1 2 3 4; do echo "{\"input_ids\": [1, 2, 3, $i, 5, 6, 7, 8, 9]}"; done >"$T/data/ids.jsonl"
train='{"kind": "train", "name": "gguf", "model": {"path": "MODEL"}, "data": {"train": [{"path": "IDS"}], "seq_len": 16},
    "train": {"steps": 2, "global_batch": 1}, "checkpoint": {"every_steps": 2}, "resources": {"ranks": 1, "threads": 1}}'
for m in "$R/gguf" "$R/gguf/qwen3.gguf"; do
    sed "s|MODEL|$m|; s|IDS|$T/data/ids.jsonl|" <<<"$train" >"$T/gguf.json"
    seqctl submit "$T/gguf.json" --wait >"$T/out" 2>&1
    says "a training from ${m##*/}" 0 $? 'succeeded'
done
hf=$(find "$T" -path '*/hf/config.json' | tail -n 1)
check "${hf%/config.json}"
says "its checkpoint" 0 $? '^family +' '^element types +' '^no fault$'
sed "s|MODEL|$golden/gguf/absent.gguf|; s|IDS|$T/data/ids.jsonl|" <<<"$train" >"$T/gguf.json"
seqctl submit "$T/gguf.json" >"$T/out" 2>&1
says "a file that is not there" 1 $? 'absent.gguf'
seqctl model ls local -o json >"$T/out" 2>&1
says "as JSON" 0 $? '"n_faults": 4' '"incomplete": null' '"error": null'
seqctl model ls elsewhere >"$T/out" 2>&1
says "of a node that is not up" 3 $? 'node "elsewhere" is not up'

lib_end
