#!/usr/bin/env bash
# Packs what the calls of check.sh run into one file, for a machine without make, a compiler or a
# network: stripped programs, the kernels, the commit. make gpu-pack builds them for 9.0a, without
# TLS, in build/sm90.
#
#   tests/gpu/pack.sh BUILD FILE "HOW IT WAS BUILT"
#   tests/gpu/pack.sh --check FILE    without a GPU: the file unpacks, its programs start, and every
#                                     library that they need is here; lists these libraries
set -u
cd "$(dirname "$0")/../.." || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
programs="seqrank seqgang gpu/bench_gpu gpu/bench_steps gpu/libraries gpu/probe $(MAKEFLAGS= make -s print-gpu-tests | sed 's#[^ ]*#tests/&#g')"

pack() { # BUILD FILE HOW
    local f
    for f in $programs libkernels_cuda.so; do
        install -D "$1/$f" "$work/$f" && strip "$work/$f" || { echo "gpu-pack: no $1/$f: run \`make gpu-pack\`"; return 1; }
    done
    git -c safe.directory='*' describe --always --dirty >"$work/COMMIT" || return 1
    echo "$3, $(date -u '+%Y-%m-%d %H:%M UTC')" >"$work/BUILT"
    printf '%s\n' $programs >"$work/PROGRAMS"
    # The programs have most of their code in common, which xz finds and gzip does not.
    mkdir -p "$(dirname "$2")" && rm -f "${2%.*}".t?z &&
        XZ_OPT='-T1 --lzma2=preset=6,dict=128MiB' tar -C "$work" --owner=0 --group=0 -caf "$2" . || return 1
    tests/gpu/travels.sh "$2" || return 1
    echo "$2: $(du -k "$2" | cut -f 1) KiB, commit $(cat "$work/COMMIT"), $(cat "$work/BUILT")"
}

n_passed=0 n_failed=0
holds() { # NAME COMMAND...
    local name=$1; shift
    if "$@" >"$work/log" 2>&1; then n_passed=$((n_passed + 1)); echo "ok   $name"; return; fi
    n_failed=$((n_failed + 1))
    echo "FAIL $name"
    tail -n 8 "$work/log" | sed 's/^/     /'
}
says() { # REGEX COMMAND...: whatever its status
    local re=$1; shift
    "$@" >"$work/said" 2>&1
    cat "$work/said"
    grep -qE "$re" "$work/said"
}
all_there() { ! ldd "$@" | grep 'not found'; }

check() { # FILE
    local f all
    mkdir "$work/t" && tar -C "$work/t" -xf "$1" || { echo "gpu-pack: $1 does not unpack"; return 1; }
    cd "$work/t" || return 1
    for f in $programs; do holds "$f is there" test -x "$f"; done
    holds "commit" says '^[0-9a-f]{7,}' cat COMMIT
    all=$(for f in $programs libkernels_cuda.so; do echo "$PWD/$f"; done)
    # shellcheck disable=SC2086
    holds "libraries are here" all_there $all
    holds "seqrank starts" says '^usage: seqrank' ./seqrank --help
    holds "seqgang starts" says 'seqgang' ./seqgang --help
    holds "checks of the kernels run" env SEQD_TEST_ONLY=add ./tests/check_kernels
    holds "the probe starts" says 'no test is named "none"' ./gpu/probe none
    holds "libraries are looked for" says '^NCCL\|' ./gpu/libraries
    # The plugin opens and names what it lacks here: a GPU.
    for f in gpu/bench_gpu "gpu/bench_steps $work/json llama"; do
        # shellcheck disable=SC2086
        holds "${f%% *} starts" says '^device "' env BENCH_SMALL=1 ./$f
    done
    command -v nvidia-smi >/dev/null && nvidia-smi >/dev/null 2>&1 ||
        holds "the kernels' file opens" says 'device "cuda": (the driver|.*[Dd]river|no GPU)' \
            env SEQD_TEST_DEVICE=cuda SEQD_TEST_ONLY=add ./tests/check_kernels
    echo "needs: $(for f in $all; do readelf -d "$f"; done | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | sort -u | tr '\n' ' ')"
    echo "needs at least: $(for f in $all; do readelf -V "$f"; done | grep -oE 'GLIBC_2\.[0-9]+' | sort -uV | tail -n 1)"
    echo "$n_passed passed, $n_failed failed"
    [ "$n_failed" -eq 0 ]
}

case ${1:-} in
    --check) check "$(realpath "${2:?want the file}")" ;;
    *) pack "${1:?want BUILD FILE \"HOW IT WAS BUILT\"}" "${2:?want the file}" "${3:?want how it was built}" ;;
esac
