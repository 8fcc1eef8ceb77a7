#!/usr/bin/env bash
# make_latents.sh DIR: a toy manifest DIR/latents.jsonl and its tensors, for diffusion training:
# videos and pictures of 4 channels and several sizes, captions of up to 4 tokens of 16 numbers; two
# more samples in held.jsonl. The latents are not real: bf16 numbers between 0 and 1 of two byte
# values, so that bash and awk can write them.
set -eu
dir=${1:?usage: make_latents.sh DIR}
mkdir -p "$dir"

tensor() { # FILE NAME SHAPE SEED
    local n=1 d h
    for d in ${3//,/ }; do n=$((n * d)); done
    h="{\"$2\":{\"dtype\":\"BF16\",\"shape\":[$3],\"data_offsets\":[0,$((2 * n))]}}"
    {
        printf '%b' "$(printf '\\x%02x\\x%02x\\0\\0\\0\\0\\0\\0' $((${#h} % 256)) $((${#h} / 256)))"
        printf '%s' "$h"
        awk -v n="$n" -v s="$4" 'BEGIN { for (i = 0; i < n; i++) printf "@%s", substr("<=>?", 1 + int((i * (s + 3) / 7 + s) % 4), 1) }'
    } >"$dir/$1"
}

sample() { # LIST NUMBER FRAMES ROWS COLUMNS CAPTION: pixels are 8 a latent
    tensor "z$2.safetensors" z "4,$3,$4,$5" "$2"
    tensor "y$2.safetensors" y "$6,16" "$2"
    echo "{\"latents\": \"z$2.safetensors\", \"text\": \"y$2.safetensors\", \"height\": $((8 * $4)), \"width\": $((8 * $5)), \"num_frames\": $3, \"fps\": 24}" >>"$dir/$1"
}

: >"$dir/latents.jsonl"; : >"$dir/held.jsonl"
sample latents.jsonl 0 5 8 12 4
sample latents.jsonl 1 1 12 8 1
sample latents.jsonl 2 3 7 10 2
sample latents.jsonl 3 4 8 8 3
sample latents.jsonl 4 1 2 2 4
sample held.jsonl 5 2 8 12 2
sample held.jsonl 6 1 7 9 4
