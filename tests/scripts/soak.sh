#!/usr/bin/env bash
# One sequence that is longer than any other of the tests: a document of N tokens, scored by a model
# of one layer on 4 ranks and on 1. The loss of the whole and of each sixteenth of it are equal to
# 1e-6, bytes sent are those of the formula, and memory is as planned.
#   tests/scripts/soak.sh [N]    default 1048576: about 600 s of two idle cores; 65536 takes 15 s
#   BUILD=build/release          KEEP=1 keeps the state directory
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start soak
N=${1:-1048576}
CLOSE=1e-6
# One head of 16: attention is all but nothing else, and its work is the square of N.
MODEL='{"config": {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 64, "vocab_size": 258}}'

make_text $((N - 1)) >"$T/data/book.txt" # and the end of the document
seqd_start || { lib_end; exit 1; }

# Weights that look at what they read: random ones see the mean of a million values: nothing.
id=$(seqctl submit - -o name -q <<EOF
{"kind": "train", "name": "a model", "model": $MODEL, "data": {"train": [{"path": "book.txt"}], "seq_len": 2048},
 "train": {"steps": 60, "global_batch": 2}, "optim": {"lr": 0.01}, "schedule": {"warmup_steps": 4},
 "parallel": {"sp": 2, "strategy": "rsa"}, "resources": {"ranks": 2}, "seed": 1}
EOF
)
succeeds "a model to score with" "$id" || { lib_end; exit 1; }
HF=$(field "$id" result.hf)

score() { # RANKS THREADS
    local begun=$SECONDS
    id=$(seqctl submit - -o name -q <<EOF
{"kind": "score", "name": "$1 ranks", "model": {"path": "$HF"}, "input": {"path": "book.txt"}, "data": {"seq_len": $N},
 "score": {"by_position_bucket": $((N / 16))}, "parallel": {"sp": $1, "strategy": "rsa"},
 "resources": {"ranks": $1, "threads": $2}}
EOF
    )
    "$BIN/seqctl" watch "$id" -q >"$T/watch.out" 2>&1
    if [ "$(field "$id" state)" != succeeded ]; then
        seqctl events "$id" >>"$T/watch.out" 2>&1
        bad "$1 ranks: job $id is $(field "$id" state)" "$T/watch.out"
        return 1
    fi
    eval "NLL_$1=$(field "$id" result.nll)"
    seqctl artifacts "$id" score-buckets.json >"$T/buckets.$1"
    same "$1 ranks: every token but the first is scored, in one window" \
        "$(field "$id" result.tokens) $(field "$id" result.windows)" "$((N - 1)) 1"
    same "$1 ranks: bytes sent == formula" "$(field "$id" result.ledger)" equal
    same "$1 ranks: memory == plan" "$(field "$id" result.memory.high)" "$(field "$id" result.memory.planned)"
    printf '     %d ranks of %d threads: nll %s, %s MiB a rank planned, %s resident, %d s\n' "$1" "$2" \
        "$(field "$id" result.nll)" $(($(field "$id" result.memory.planned) >> 20)) \
        $(($(field "$id" result.memory.resident.own) >> 20)) $((SECONDS - begun))
    # What was placed is all there is: no [N, V], and nothing that grows with N beside the plan.
    check "$1 ranks: resident within the plan and 4 MiB" \
        test "$(field "$id" result.memory.resident.own)" -le $(($(field "$id" result.memory.planned) + (4 << 20)))
}
buckets() { sed -nE 's/.*"nll":([0-9.e+-]+).*/\1/p' "$T/buckets.$1"; }
apart() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; printf "%.1e\n", d / b }'; }
close_to() { awk -v d="$1" -v c="$CLOSE" 'BEGIN { exit !(d <= c) }'; }

if score 4 1 && score 1 2; then
    same "sixteen parts" "$(buckets 4 | wc -l) $(buckets 1 | wc -l)" "16 16"
    d=$(apart "$NLL_4" "$NLL_1")
    worst=$(paste -d ' ' <(buckets 4) <(buckets 1) | while read -r a b; do apart "$a" "$b"; done | sort -g | tail -n 1)
    echo "     4 ranks and 1: the loss is $d apart, of a sixteenth at most $worst"
    check "4 ranks == 1 rank over $N tokens" close_to "$d"
    check "and over each sixteenth of them" close_to "$worst"
fi
check "seqd ends" seqd_stop
lib_end
