#!/bin/sh
# Builds every tests/fuzz/fuzz_*.c with clang's libFuzzer, ASan and UBSan, and runs each for FUZZ_S
# seconds (default 60). The first line of a fuzzer names what it links: "/* sources: a.c b.c".
# A crash leaves its input in build/fuzz/NAME/ and makes the exit status 1.
cd "$(dirname "$0")/../.." || exit 2
seconds=${FUZZ_S:-60}
clang=${FUZZ_CC:-$(command -v clang || command -v clang-14 || command -v clang-16 || command -v clang-18)}
[ -n "$clang" ] || { echo "fuzz: no clang found (Debian package clang)"; exit 2; }
failed=0
for f in tests/fuzz/fuzz_*.c; do
    name=$(basename "$f" .c); dir=build/fuzz/$name
    mkdir -p "$dir/corpus"
    sources=$(sed -n '1s|^/\* sources: ||p' "$f")
    # shellcheck disable=SC2086
    "$clang" -std=c11 -D_GNU_SOURCE -I. -O1 -g -ffp-contract=off \
        -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
        -o "$dir/$name" "$f" $sources -lm || { failed=1; continue; }
    seeds=; [ -d "tests/fuzz/seeds/$name" ] && seeds=tests/fuzz/seeds/$name
    # shellcheck disable=SC2086
    if "$dir/$name" -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=1024 \
        -artifact_prefix="$dir/" "$dir/corpus" $seeds >"$dir/log" 2>&1; then
        echo "$name: $(grep -oE 'Done [0-9]+ runs in [0-9]+ second' "$dir/log")s, no crash"
    else
        echo "$name: FAILED, see $dir/log"; tail -n 30 "$dir/log"; failed=1
    fi
done
exit $failed
