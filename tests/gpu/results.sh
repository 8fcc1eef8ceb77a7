#!/usr/bin/env bash
# make gpu-results: appends the table of each call to tests/gpu/RESULTS.md (of the emulated device:
# to build/gpu-emulated/RESULTS.md): its machine, its rows, its speed, its ratios. A call that the
# file has is not appended again; one that has more rows now replaces its table.
#
#   tests/gpu/results.sh [FOLDER ...]   folders of calls, or folders of these, as GPU_OUT brings
#                                       them from elsewhere. Default: those of build/gpu-*
set -u
cd "$(dirname "$0")/../.." || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

table() { # FOLDER
    local log
    echo "| | |"
    echo "|---|---|"
    sed 's/|/ | /; s/^/| /; s/$/ |/' "$1/machine"
    echo
    echo "| part | result | seconds | |"
    echo "|---|---|---|---|"
    sed 's/|/ | /g; s/^/| /; s/$/ |/' "$1/rows"
    if [ -s "$1/ratios.md" ]; then printf '\nBeside PyTorch, in the same call:\n\n'; cat "$1/ratios.md"; fi
    grep -q '^device|\*\*emulated' "$1/machine" && return # the speed of an emulation is no result
    for log in "$1"/probe.log "$1"/speed_of_*.log; do
        [ -s "$log" ] || continue
        printf '\n%s:\n\n```\n' "$(basename "$log" .log | tr _ ' ')"
        grep -av '^{' "$log"
        echo '```'
    done
}

# Without the section of a call.
without() { # FILE CALL
    awk -v id="$2" '/^## / { skip = index($0, "(" id ")") > 0 } !skip' "$1"
}

one() { # FOLDER
    local id=${1##*/} logs=$1 f results=tests/gpu/RESULTS.md
    if [ -s "$1/logs.tgz" ]; then
        logs=$work/$id
        mkdir -p "$logs" && tar -C "$logs" -xzf "$1/logs.tgz" || return 1
        for f in machine rows ratios.md; do [ ! -s "$1/$f" ] || cp "$1/$f" "$logs/$f"; done
    fi
    if [ ! -s "$logs/machine" ] || [ ! -s "$logs/rows" ]; then echo "$1: no call lies here: want machine and rows"; return 1; fi
    ! grep -q '^device|\*\*emulated' "$logs/machine" || results=build/gpu-emulated/RESULTS.md
    [ -s "$results" ] || echo "# What \`make gpu-check\` found, call by call" >"$results"
    { printf '\n## %s, %s, commit %s (%s)\n\n' "${id%%-*}" "$(sed -n 's/^date|//p' "$logs/machine")" \
        "$(sed -n 's/^commit|//p' "$logs/machine")" "$id"; table "$logs"; } >"$work/section"
    if grep -qF "($id)" "$results"; then
        awk -v id="$id" '/^## / { on = index($0, "(" id ")") > 0 } on' "$results" >"$work/there"
        if [ "$(grep -c '^|' "$work/there")" -ge "$(grep -c '^|' "$work/section")" ]; then return 0; fi
        without "$results" "$id" >"$work/rest" && cat "$work/rest" >"$results"
    fi
    cat "$work/section" >>"$results"
    echo "$id: $(grep -c '' "$logs/rows") rows, in $results"
}

rc=0 asked=$#
[ $# -gt 0 ] || set -- build/gpu-cuda build/gpu-emulated
for folder in "$@"; do
    if [ -f "$folder/rows" ]; then one "$folder" || rc=1; continue; fi
    n=0
    for call in "$folder"/*/; do
        [ -f "$call/rows" ] || continue
        n=$((n + 1))
        one "${call%/}" || rc=1
    done
    if [ "$asked" -gt 0 ] && [ $n -eq 0 ]; then echo "$folder: no call lies here: want folders with rows"; rc=1; fi
done
exit $rc
