#!/usr/bin/env bash
# The scripts of gpu-check on the emulated device and the smallest shapes: they report a failure,
# lose nothing when a call is cut off, merge the results of a call once, and pack programs that
# start. Run after `make`; the speeds that it prints are not a GPU's.
#   PACK=1   there is a build/release/libkernels_cuda.so of this build (`make cuda`): pack it
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
SUITE=gpu-scripts PASSED=0 FAILED=0
T=$(mktemp -d) || exit 2
trap 'rm -rf "$T"' EXIT
export GPU_DEVICE=emulated GPU_SHORT=1
results=build/gpu-emulated/RESULTS.md
sections() { grep -c "^## $1," $results; }

# All three calls: each has its results in GPU_OUT as well, and a section of the table.
rm -f $results
check "the calls run" env GPU_OUT="$T/back" make -s gpu-check
same "a section for each call" "$(grep -o '^## [a-z]*' $results | tr '\n' ' ')" "## right ## fast ## why "
for call in right fast why; do
    check "$call: rows and logs came back" test -s "$T"/back/$call-*/rows -a -s "$T"/back/$call-*/logs.tgz
done
says "libraries, found or not, are rows" '^NCCL\|(found|not found)\|0\|.' cat "$T"/back/right-*/rows
says "memory beside the plan is a row" '^memory beside the plan\|not run\|0\|there is no GPU' cat "$T"/back/right-*/rows
says "a sanitizer that does not run is a row" '^racecheck, _fold, bf16, sm90\|not run' cat "$T"/back/why-*/rows

# Products by the library and by our kernels; each figure names which.
for key in gemm train decode; do
    for by in cublasLt "own kernels"; do
        says "$key by $by" "\"key\":\"$key [^\"]*\",\"device\":\"emulated\",\"by\":\"$by\",\"rate\"" tar -xzOf "$T"/back/fast-*/logs.tgz ./bench.jsonl
    done
done

# The results of a call are merged once; a later call does not touch an earlier one.
cp $results "$T/was"
check "the calls are merged again" make -s gpu-results FROM="$T/back"
check "which changes nothing" cmp "$T/was" $results
refuse "an unknown part fails" 1 '1 failed' env GPU_CALL=why GPU_PARTS=none tests/gpu/check.sh
same "and its call has a section" "$(sections why)" 2
refuse "an unknown call" 2 'GPU_CALL=fats: want right, fast or why' env GPU_CALL=fats tests/gpu/check.sh

# The machine is lost in the middle of a call.
refuse "a call that is cut off" 137 '' env GPU_CALL=right GPU_PARTS="libraries cut" GPU_OUT="$T/cut" tests/gpu/check.sh
same "its rows came back" "$(cat "$T"/cut/right-*/rows | cut -d '|' -f 1 | tr '\n' ' ')" "cuBLASLt NCCL "
check "they are merged" tests/gpu/results.sh "$T/cut"
same "as a section" "$(sections right)" 2
printf 'later|passed|1|\n' >>"$(echo "$T"/cut/right-*)/rows"
check "a call with one more row" tests/gpu/results.sh "$T/cut"
same "replaces its section" "$(sections right) $(grep -c '^| later ' $results)" "2 1"
refuse "a folder without a call" 1 'no call lies here' sh -c "mkdir $T/none && touch $T/none/rows && tests/gpu/results.sh $T/none"
refuse "a folder that does not exist" 1 'nowhere: no call lies here' tests/gpu/results.sh "$T/nowhere"

# The caller's folders are still searched when a library is not found and those of the wheels are
# added.
mkdir -p "$T/stub/gpu" && touch "$T/stub/COMMIT" "$T/stub/BUILT"
printf '#!/bin/sh\necho "cuBLASLt|not found|"\necho "NCCL|found|in $SEQD_LIBRARY_PATH"\n' >"$T/stub/gpu/libraries"
chmod +x "$T/stub/gpu/libraries" && tar -C "$T/stub" -czf "$T/stub.tgz" .
says "the caller's SEQD_LIBRARY_PATH is kept" 'NCCL .* in /opt/theirs' env SEQD_LIBRARY_PATH=/opt/theirs \
    GPU_PACK="$T/stub.tgz" GPU_CALL=right GPU_PARTS=libraries tests/gpu/check.sh

# A figure under its bar fails, but not one that was not run, nor where another way is fast enough.
ratios() { # OURS...
    printf '%s\n' "$@" >"$T/ours"
    printf '{"key":"attn_fwd a","rate":10}\n{"key":"gemm","rate":10}\n{"key":"train a","rate":10}\n' >"$T/theirs"
    python3 tests/gpu/ratios.py "$T/ours" "$T/theirs" "$T/table"
}
if command -v python3 >/dev/null; then
    slow='"rate":5,"unit":"tokens/s"' fast='"rate":9,"unit":"tokens/s"'
    refuse "under its bar" 1 '0 passed, 1 failed' ratios "{\"key\":\"attn_fwd a\",$slow}"
    says "not run" 'not run, ours: out of time' ratios '{"key":"gemm","not_run":"out of time"}'
    says "another way is faster" '2 passed, 0 failed' ratios "{\"key\":\"train a\",\"by\":\"cublasLt\",$fast}" \
        "{\"key\":\"train a\",\"by\":\"own kernels\",$slow}"
    refuse "the only way is too slow" 1 '1 passed, 1 failed' ratios \
        '{"key":"train a","by":"cublasLt","not_run":"no library"}' "{\"key\":\"train a\",\"by\":\"own kernels\",$slow}"
fi

# The pack for a machine without make, here of these programs: those for 9.0a take long to build.
if [ -n "${PACK:-}" ]; then
    check "the programs are packed" tests/gpu/pack.sh build/release "$T/b.tgz" test
    check "and start from the pack" tests/gpu/pack.sh --check "$T/b.tgz"
    check "a call from the pack" env LD_LIBRARY_PATH="$PWD/build/release" GPU_PACK="$T/b.tgz" GPU_CALL=right \
        GPU_PARTS="libraries first" GPU_OUT="$T/packed" tests/gpu/check.sh # it has no emulated device
    says "names the pack's commit" "^commit\|$(git describe --always)" cat "$T"/packed/right-*/machine
    refuse "a pack that does not exist" 1 'does not unpack: run `make gpu-pack`' env GPU_PACK="$T/no.tgz" GPU_CALL=right tests/gpu/check.sh
else
    echo "left out: packing, without kernels (PACK=1)"
fi
lib_end
