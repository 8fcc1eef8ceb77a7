#!/usr/bin/env bash
# tests/planted.sh [PART...]: plants each fault of tests/device/planted.txt into the kernels of the
# emulated device, one at a time, and runs check_planted, which must fail. A fault whose place is no
# longer in the source is a failure, too. PART: only faults whose line contains it. Ends with
# "N passed, N failed".
set -u
cd "$(dirname "$0")/.."
table=tests/device/planted.txt out=build/release/planted
flags="-std=c++17 -O1 -w -DSEQD_EMU -DSEQD_EMU_RACE -I. -fPIC -fvisibility=hidden -ffp-contract=off"
sanitize="-fsanitize=thread --param tsan-instrument-func-entry-exit=0" # its calls are those of emu_race.cc
sources() { find kernels/cuda -name '*.cu' -o -name '*.cc' | LC_ALL=C sort; }
# The files with faults, and the emulation; of the other files the objects of the release build are used.
watched() { find kernels/cuda -name '*.cc'; awk '/^[a-z]/ { print "kernels/cuda/" $2 ".cu" }' $table | sort -u; }
object() { local stem=${1##*/}; echo "$out/${stem%.*}.o"; }
compile() { # SOURCE OBJECT
    case $1 in *.cu) set -- "$@" $sanitize ;; esac
    ${CXX:-c++} $flags "${@:3}" -x c++ -c "$1" -o "$2"
}
library() { # DIRECTORY [FILE]: with DIRECTORY/FILE.o in place of FILE's own object
    local o objects=()
    for o in $(sources); do
        o=$(object "$o")
        [ -e "$o" ] || o=build/release/emu/${o##*/}
        [ "$o" = "$out/${2:-}.o" ] && o=$1/$2.o
        objects+=("$o")
    done
    ${CXX:-c++} -shared -o "$1/libkernels_emulated.so" "${objects[@]}" build/release/cuda/err.o build/release/cuda/library.o
}
run() { # DIRECTORY CASE...
    { LD_LIBRARY_PATH=$1 timeout "${TEST_TIMEOUT:-60}" build/release/tests/check_planted "${@:2}" >"$1/log" 2>&1; } 2>"$1/end"
}
said() { grep -E '^emu: |^  [^ ^]' "$1" | head -n 1 | cut -c 1-110; }
plant() { # LINE: prints how the fault was caught
    local case file name dir rc
    read -r case file name < <(sed -n "$1p" $table)
    dir=$out/$file-$name
    mkdir -p "$dir"
    sed -z "$(sed -n "$(($1 + 1))p" $table)" "kernels/cuda/$file.cu" >"$dir/$file.cu"
    if cmp -s "kernels/cuda/$file.cu" "$dir/$file.cu"; then echo "FAIL $file: $name: no such place in the source"; return; fi
    if ! compile "$dir/$file.cu" "$dir/$file.o" 2>"$dir/log" || ! library "$dir" "$file" 2>>"$dir/log"
    then echo "FAIL $file: $name: does not compile: $(head -n 1 "$dir/log")"; return; fi
    run "$dir" "$case"; rc=$?
    # A fault is caught by the emulation, by a check, or by a touched guard page, and not by whatever ends a program.
    if [ $rc -eq 0 ]; then echo "FAIL $file: $name: not caught"
    elif [ $rc -eq 139 ] || { [ $rc -ne 124 ] && grep -qE '^emu: |^  (\./)?tests/.*:[0-9]+: ' "$dir/log" && ! grep -q 'undefined symbol' "$dir/log"; }; then
        echo "ok   $file: $name: $(said "$dir/log")"
        rm -rf "$dir"
    else echo "FAIL $file: $name: ended with $rc: $(tail -n 1 "$dir/log")"; fi
}

case ${1:-} in
--compile) compile "$2" "$(object "$2")"; exit ;;
--plant) plant "$2"; exit ;;
esac
mkdir -p $out
make -s -j"${JOBS:-2}" build/release/tests/check_planted || { echo "0 passed, 1 failed"; exit 1; }
rm -f $out/*.o
watched | xargs -P "${JOBS:-2}" -n 1 tests/planted.sh --compile || { echo "0 passed, 1 failed"; exit 1; }
mkdir -p $out/none && library $out/none && run $out/none || { cat $out/none/log; echo "FAIL without a fault"; echo "0 passed, 1 failed"; exit 1; }
lines=$(grep -nE '^[a-z]' $table | { if [ $# -gt 0 ]; then grep -E "$(IFS='|'; echo "$*")"; else cat; fi; } | cut -d : -f 1)
[ -n "$lines" ] || { echo "no fault is called so" >&2; exit 2; }
printf '%s\n' $lines | xargs -P "${JOBS:-2}" -n 1 tests/planted.sh --plant | tee $out/result
failed=$(grep -c '^FAIL' $out/result)
[ "$(grep -cE '^(ok|FAIL)' $out/result)" -eq "$(wc -w <<<"$lines")" ] || failed=$((failed + 1)) # one said nothing
echo "$(grep -c '^ok' $out/result) passed, $failed failed"
[ "$failed" -eq 0 ]
