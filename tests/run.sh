#!/bin/sh
# Runs every test program of build/MODE/tests, and adds up their "N passed, N failed" lines. Programs of
# tests/engine and tests/device compute, for half of their time: one more than JOBS of them (default: the cores) run
# at a time. The others wait: JOBS of them run beside the first, so that they last as long; without the first, twice
# as many.
# usage: tests/run.sh MODE [program-name ...]     exit 1 when anything failed
#   SMALL_TESTS="program-name ..."   these programs run in their small form (SEQD_TEST_SMALL)
#   FRESH=1                          programs whose result is kept (tests/kept.sh) run, too
cd "$(dirname "$0")/.." || exit 2

if [ "$1" = --one ]; then # MODE PROGRAM: prints the output of a program as a whole, so that outputs do not mix
    mode=$2 t=$3 log=build/$2/tests-$3.log start=$(date +%s)
    case " ${SMALL_TESTS:-} " in *" $t "*) export SEQD_TEST_SMALL=1 ;; esac
    set -- "build/$mode/tests/$t"
    ! grep -qs " $mode/$t " tests/unstable.txt || export FRESH=1 ALONE=1
    : >"$log.since"
    if key=$(tests/kept.sh key "$mode" "$t"); then
        if kept=$(tests/kept.sh take "$key"); then
            echo "${kept#* } 0 0 ${kept% *}" >"build/$mode/tests-$t.result"
            echo "[$mode] ${t#test_}: ${kept#* } passed, 0 failed (kept from $(date -d "@${kept% *}" '+%F %H:%M'))"
            exit 0
        fi
        set -- "build/$mode/confine" . "$1" $(tests/kept.sh needs "$mode" "$t") -- "$1"
    fi
    timeout "${TEST_TIMEOUT:-900}" "$@" >"$log" 2>&1; rc=$?
    line=$(grep -E '^[^ ]+: [0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
    p=$(echo "$line" | sed -E 's/.*: ([0-9]+) passed.*/\1/'); f=$(echo "$line" | sed -E 's/.*, ([0-9]+) failed/\1/')
    if [ -z "$line" ]; then p=0; f=1; line="$t: died (status $rc)"
    elif [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; line="$line, but exit status $rc"; fi
    s=$(($(date +%s) - start))
    echo "$p $f $s" >"build/$mode/tests-$t.result"
    shown="[$mode] $line ($s s)"
    [ "$f" -eq 0 ] || shown=$(printf '%s\n' "$shown"; grep -vE '^ok ' "$log" | tail -n 60)
    if [ "$f" -eq 0 ]; then [ -z "$key" ] || [ -n "${ALONE:-}" ] || tests/kept.sh keep "$key" "$p" "$log" "$mode" "$t" "$log.since"
    elif [ -n "$key" ]; then tests/kept.sh drop "$key"; fi
    if [ "$f" -gt 0 ] && [ -n "$key" ] && grep -aq 'Permission denied' "$log"; then
        shown="$shown
$t could read no file of the tree but those of its line \"tests: needs ...\" (tests/README.md)"
    fi
    rm -f "$log.since"
    printf '%s\n' "$shown"
    exit 0
fi

if [ "$1" = --alone ]; then # MODE PROGRAM: runs the program without taking or keeping a result; exit 0: it passed
    FRESH=1 ALONE=1 tests/run.sh --one "$2" "$3"
    read -r _ f _ <"build/$2/tests-$3.result"
    [ "$f" -eq 0 ]; exit
fi

mode=${1:-release}; shift
export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp ${TSAN_OPTIONS:-}"
KEPT_SYSTEM=$(tests/kept.sh system); export KEPT_SYSTEM
tests/kept.sh tidy
passed=0; failed=0; kept=0; oldest=
list=${*:-$(cd "build/$mode/tests" && ls | grep -v '\.d$')}
for t in $list; do rm -f "build/$mode/tests-$t.result"; done
# The longest programs begin first, the longest of all in front: begun last, they would run alone at the end.
longest='check_emulated check_kernels test_attention test_life test_usp test_family test_verify test_train test_comm'
longest="$longest test_lasp test_flow_jobs test_ledger check_tiles test_pieces test_dp test_two_pass"
longest="$longest test_seqd_http test_agent_life test_seqd_feed test_gang_life test_seqd_checkpoint test_seqd_tls"
longest_first() { awk -v longest="$longest" 'BEGIN { n = split(longest, name, " "); for (i = 1; i <= n; i++) at[name[i]] = i }
    { print ($1 in at) ? at[$1] : n + 1, $1 }' | sort -s -n -k 1,1 | cut -d ' ' -f 2; }
computing='' waiting=''
for t in $(printf '%s\n' $list | longest_first); do
    if [ -f "tests/engine/$t.c" ] || [ -f "tests/device/$t.c" ]; then computing="$computing $t"; else waiting="$waiting $t"; fi
done
jobs=${JOBS:-$(nproc)}
run() { [ -z "$1" ] || printf '%s\n' $1 | xargs -P "$2" -n 1 tests/run.sh --one "$mode"; } # PROGRAMS AT_A_TIME
beside=$jobs; [ -n "$computing" ] || beside=$((2 * jobs))
run "$waiting" "$beside" &
run "$computing" $((jobs + 1))
wait
# Run each failed program again, alone (tests/again.sh); not in mode mutants, where faults must make tests fail.
for t in $list; do
    p=0 f=1 s=0 result=build/$mode/tests-$t.result
    [ -f "$result" ] && read -r p f s _ <"$result"
    [ "$f" -eq 0 ] || [ "$mode" = mutants ] && continue
    cp "build/$mode/tests-$t.log" "build/$mode/tests-$t.failed"
    tests/again.sh "$mode/$t" "build/$mode/tests-$t.failed" tests/run.sh --alone "$mode" "$t" || echo "$p $f $s" >"$result"
done
# Prints the first sentence of a test's source, which says what the test proves.
proves() { sed -n '1,4p' tests/*/"$1.c" | tr -s '\n ' '  ' | sed -E 's#^/\* *##; s# \*/.*##; s# \* # #g; s#  +# #g; s#([.;]) .*#\1#' | cut -c 1-110; }
for t in $list; do
    p=0 f=1 s=0 then=
    [ -f "build/$mode/tests-$t.result" ] && read -r p f s then <"build/$mode/tests-$t.result"
    passed=$((passed + p)); failed=$((failed + f))
    if [ -n "$then" ]; then
        kept=$((kept + 1))
        [ -n "$oldest" ] && [ "$oldest" -le "$then" ] || oldest=$then
    fi
    [ "$s" -lt 5 ] || echo "$s $t"
done >"build/$mode/times"
if [ -s "build/$mode/times" ]; then
    echo "[$mode] the dearest:"
    sort -rn "build/$mode/times" | head -n 10 | while read -r s t; do printf '  %5d s  %-20s %s\n' "$s" "$t" "$(proves "$t")"; done
fi
rm -f "build/$mode/kept"
if [ "$kept" -gt 0 ]; then
    echo "[$mode] $kept of $(echo "$list" | wc -w) results are kept, the oldest from $(date -d "@$oldest" '+%F %H:%M') (FRESH=1 runs all)" | tee "build/$mode/kept"
fi
echo "$passed passed, $failed failed" > "build/$mode/result"
echo "[$mode] total: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
