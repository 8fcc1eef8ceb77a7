#!/usr/bin/env bash
# make check and make check-all: builds and tests everything that needs no GPU. Ends with the time
# of each part, then "N passed, N failed".
#   tests/check.sh        the checks to run while working: minutes
#   tests/check.sh all    all checks
#   JOBS=n                parallel compilation (default: the cores)
#   SKIP="cuda mutants ..."   parts to leave out while working, by the first words of their names
#   FRESH=1               results of earlier runs count for nothing (tests/kept.sh, tests/unchanged.sh)
#   CHECKED=1             check has run on this tree: check-all does not repeat its parts
set -u
cd "$(dirname "$0")/.."
all=${1:-}
jobs=${JOBS:-$(nproc)}
passed=0 failed=0 times='' part='' begun=$SECONDS sides=()
skip() { case " ${SKIP:-} " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }
# Begins a part, and enters the time of the part before into the table.
part() {
    if [ -n "$part" ]; then times+=$(printf '%6d s  %s' $((SECONDS - begun)) "$part")$'\n'; fi
    part=$* begun=$SECONDS
    if [ -n "$part" ]; then printf '\n== %s (%d s)\n' "$part" "$SECONDS"; fi
}
# Begins a part that SKIP may leave out. begin_all begins one that only check-all has.
begin() { ! skip "${1%:}" && part "$@"; }
begin_all() { [ -n "$all" ] && begin "$@"; }
checked() { [ -n "$all" ] && [ -n "${CHECKED:-}" ]; }

# The names of failed checks are printed last, before the result: some readers see only the end of a log.
fail() { failed=$((failed + 1)); echo "FAIL $*"; echo "${part%%:*}: FAIL $*" >>"$FAILURES"; }
named() { grep -aE '^ *FAIL |MISSED by|NOTHING|: died|broke the rule|^ +tests/.*:[0-9]+|, [1-9][0-9]* failed' "$1" | head -n 12 | cut -c 1-200 | sed "s/^/${part%%:*}: /" >>"$FAILURES"; }
# Runs a command that is one check.
one() {
    local name=$1; shift
    if "$@"; then passed=$((passed + 1)); echo "ok   $name"
    else fail "$name"; fi
}
# Tells whether a part may fail by chance: a script of tests/scripts is run again when all parts have ended.
# run.sh does that with its own programs. The simulator and the mutants draw or inject their faults and never
# fail by chance.
by_luck() { case $1 in tests/scripts/*) return 0 ;; *) return 1 ;; esac; }
run_again() {
    local log cmd line
    [ -s "$AGAIN" ] || return
    part "again: what failed, alone"
    while IFS=$'\t' read -r part log cmd; do
        line=$(grep -oE '[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
        line=${line:-0 passed, 1 failed}
        passed=$((passed + ${line%% passed*})) line=${line#*, } line=${line%% failed*}
        [ "$line" -gt 0 ] || line=1
        # shellcheck disable=SC2086
        if ALONE=1 tests/again.sh "$part" "$log" env $cmd </dev/null; then passed=$((passed + line))
        else failed=$((failed + line)); named "$log"; fi
        rm -f "$log" "$log.again"
    done <"$AGAIN"
    part="again: what failed, alone"
}
# Runs a script with checks of its own, and adds its last "N passed, N failed".
count() {
    local log line rc run=("$@")
    log=$(mktemp)
    ! by_luck "$1" || run=(tests/script.sh "$@")
    PART=${part%%:*} "${run[@]}" 2>&1 | tee "$log"; rc=${PIPESTATUS[0]}
    line=$(grep -oE '[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    if { [ "$rc" -ne 0 ] || [ "${line##*, }" != "0 failed" ]; } && [ "${UNSTABLE:-}" = pass ] && by_luck "$1"; then
        printf '%s\t%s\t%s\n' "${part%%:*}" "$log" "${BUILD:+BUILD=$BUILD }${JOBS:+JOBS=$JOBS }${run[*]}" >>"$AGAIN"
        return
    fi
    if [ -z "$line" ]; then fail "$* (printed no result, status $rc)"
    else
        passed=$((passed + ${line%% passed*}))
        line=${line#*, }; failed=$((failed + ${line%% failed*}))
        if [ "${line%% failed*}" -gt 0 ]; then named "$log"
        elif [ "$rc" -ne 0 ]; then fail "$* (status $rc)"; fi
    fi
    rm -f "$log"
}
# Adds a check that shares nothing that it changes and measures no time, so that several can run at a time: two
# more than the cores, at most 5, because a check also waits. The longest are listed first. The output of
# each is printed as a whole. COMMAND may begin with variables of its own.
side() { # NAME: TEXT one|count COMMAND
    if ! checked && ! skip "${1%:}"; then sides+=("$@"); fi
}
side_all() { if [ -n "$all" ] && ! skip "${1%:}"; then sides+=("$@"); fi; }
run_side() {
    local command
    read -ra command <<<"$4"
    while [[ ${command[0]} = *=* ]]; do export "${command[0]}"; command=("${command[@]:1}"); done
    if [ "$3" = one ]; then one "${1%:}" "${command[@]}"; else count "${command[@]}"; fi
}
# Runs one side check, in a process of its own. Its counts and its time go to a file of the folder $SIDES.
one_side() { # NAME: TEXT one|count COMMAND
    local log=$SIDES/${1%:}.log
    { part "$1" "$2"; run_side "$@"; } >"$log" 2>&1
    echo "$passed $failed $SECONDS" >"$SIDES/${1%:}"
    cat "$log"
}
run_sides() { # TITLE
    local p f s i
    [ "${#sides[@]}" -gt 0 ] || return
    part "$1, several at a time; those of two seconds and more:"
    SIDES=$(mktemp -d); export SIDES
    printf '%s\0' "${sides[@]}" | xargs -0 -n 4 -P $((jobs < 4 ? jobs + 2 : 5)) tests/check.sh --side
    part
    for ((i = 0; i < ${#sides[@]}; i += 4)); do
        p=0 f=1 s=0
        [ -f "$SIDES/${sides[i]%:}" ] && read -r p f s <"$SIDES/${sides[i]%:}"
        passed=$((passed + p)) failed=$((failed + f))
        [ "$s" -lt 2 ] || times+=$(printf '  %6d s  %s %s' "$s" "${sides[i]}" "${sides[i + 1]}")$'\n'
    done
    rm -rf "$SIDES"
    sides=()
}
# Prints the test programs whose sources match an expression of find.
programs() { find tests \( "$@" \) -name '*.c' | sed -nE 's#.*/((test|check)_.*)\.c#\1#p' | sort; }
paths() { sed "s#^#build/$1/tests/#"; }

# The emulated GPU is exact and slow, so only check-all runs its tests.
on_device() { programs -path 'tests/device/*'; }
unit_tests() { programs -name 'test_*' -o -name 'check_*' | comm -23 - <(on_device); }
# Prints the tests of code that reads untrusted bytes from the network: requests, messages, answers. Files of
# models and data are untrusted, too, but their tests need the engine, which takes a minute to compile with
# sanitizers.
read_network() {
    programs -name 'test_api_*' -o -name 'test_client_*' -o -name 'test_seqd_batch.c' -o -name 'test_seqd_http.c' -o -name 'test_seqd_json.c' -o -name 'test_seqd_peer.c' -o -name 'test_seqd_tls.c' \
        -o -name 'test_seqd_rest.c' -o -name 'test_seqd_rows.c' -o -name 'test_seqd_strangers.c' -o -name test_core.c
}

# Prints the tests that check shortens or leaves to check-all.
longer() { { grep -lE 'SEQD_TEST_SMALL|small_tests\(\)|small_leaves\(|RUN_LONG\(' tests/*/*.c | sed -nE 's#.*/((test|check)_.*)\.c#\1#p'; on_device; } | sort -u; }
# Prints the tests that run under sanitizers: all but those that say "Not under sanitizers: " and why, because
# others run the same code in less time. check-all skips tests of the engine that passed on the same files
# (tests/digests).
sanitized() { comm -23 <(unit_tests) <(grep -l 'Not under sanitizers: ' tests/*/*.c | sed -nE 's#.*/((test|check)_.*)\.c#\1#p' | sort); }
# Runs the tests that check has under sanitizers. check-all runs the rest.
asan_network() {
    make -s -j"$jobs" MODE=asan $(read_network | paths asan) && SEQD_TEST_SMALL=1 tests/run.sh asan $(read_network)
}
asan_rest() { sanitized | if checked; then comm -23 - <(read_network); else cat; fi | comm -23 - <(printf '%s\n' "$1"); }
# Prints the engine's tests under sanitizers as parts of tests/unchanged.sh; engine_passed prints those of them that
# passed on these files.
engine_parts() { sanitized | comm -12 - <(programs -path 'tests/engine/*') | sed 's#^#asan/#'; }
engine_passed() { if tests/unchanged.sh asan >/dev/null; then tests/unchanged.sh $(engine_parts) | sed 's#^asan/##'; fi; }

# Tells whether the files of a part have changed since it last passed. Otherwise a part of minutes is not run.
changed() { # PART
    ! tests/unchanged.sh "$1" >/dev/null || { echo "$1: passed on these files before (tests/digests; FRESH=1 runs it)"; return 1; }
}
# Runs the unit tests that check-all has at full length. Tests of the emulated GPU run in full only where the
# kernels have changed.
in_full() {
    local list
    list=$(if checked; then longer; else programs -name 'test_*' -o -name 'check_*'; fi)
    if tests/unchanged.sh emulated >/dev/null
    then SMALL_TESTS=$(on_device | tr '\n' ' ') tests/run.sh release $(grep -vx check_emulated <<<"$list")
    else tests/run.sh release $list; fi
}

# Prints the line of the closing table about scripts whose results are kept (tests/script.sh).
scripts_kept() {
    local kept
    kept=$(grep -cv '^0$' "$SCRIPTS") || return
    echo "[scripts] $kept of $(wc -l <"$SCRIPTS") results are kept, the oldest from $(date -d "@$(grep -v '^0$' "$SCRIPTS" | sort -n | head -n 1)" '+%F %H:%M') (FRESH=1 runs all)"
}

no_libraries() { CC=false deploy/deps --headers 2>&1 | grep -q 'microhttpd.h.*Run: make deps'; }

# check.sh calls itself with these words, within a run whose files the environment names.
case $all in
    --side) shift; all=; one_side "$@"; exit 0 ;;
    --again) run_again; echo "$passed passed, $failed failed"; exit 0 ;;
esac
export UNSTABLE_FOUND=build/${all:+all-}unstable AGAIN=build/${all:+all-}again
export FAILURES=${FAILURES:-build/${all:+all-}failed} SCRIPTS=${SCRIPTS:-build/${all:+all-}scripts} KEPT_SYSTEM
mkdir -p build; rm -f build/*/kept; : >"$FAILURES"; : >"$AGAIN"; : >"$UNSTABLE_FOUND"; : >"$SCRIPTS"
KEPT_SYSTEM=$(tests/kept.sh system)
part "build"
if [ -n "$all" ]
then make -s -j"$jobs" all tests bench-build build/release/paper
else make -s -j"$jobs" all $(unit_tests | paths release)
fi || { fail build; echo "0 passed, 1 failed"; exit 1; }
side test-again: "luck, and what is none" count tests/scripts/test_again.sh
side test-docs: "documents that are wrong are found" count tests/scripts/test_docs.sh
side check-format: "as make format would write it" one "make -s check-format"
side peers: "the table of peers" count tests/scripts/test_peers.sh
side check-headers: "each compiles alone" one "make -s check-headers"
side fuzzers-link: "what they reach" one tests/fuzz/link.sh
side help: "make help" count tests/scripts/test_help.sh
side layers: "includes that the design forbids are found" count tests/scripts/test_layers.sh
side prose: "sentences of comments that must be read twice" one tests/scripts/prose.sh
side test-prose: "comments are told from code" count tests/scripts/test_prose.sh
side opening: "every source says its work" one tests/scripts/opening.sh
side test-opening: "sources without a line are found" count tests/scripts/test_opening.sh
side words: "of the documents and comments" one tests/scripts/words.sh
side check-layers: "what includes what" one "make -s check-layers"
side symbols: "cycles of calls are found" count tests/scripts/test_symbols.sh
side check-symbols: "no cycle of calls" one tests/check_symbols.sh
side names: "names without a prefix are found" count tests/scripts/test_names.sh
side check-names: "each begins as its file" one tests/check_names.sh
side links: "lead to something" one tests/scripts/links.sh
side version: "is one" count tests/scripts/version.sh
side check-tags: "each is of one file" one tests/check_tags.sh
side callers: "functions without a caller are found" count tests/scripts/test_callers.sh
side check-callers: "each function has one, or a reason" one tests/check_callers.sh
side gpu-rehearsal: "calls of gpu-check from a pack of stubs" count tests/gpu/rehearse.sh
side nccl-header: "as NCCL's" one tests/nccl/check.sh
side missing-libraries: "it is said what to do" one no_libraries
run_sides structure
if [ -z "$all" ]; then
    begin unit "tests, the long ones shortened" && SEQD_TEST_SMALL=1 count tests/run.sh release $(unit_tests)
elif begin unit "tests"; then
    emulated=build/release/tests-check_emulated.result
    rm -f $emulated
    TEST_TIMEOUT=${TEST_TIMEOUT:-1800} count in_full # the emulated GPU is slow
    if [ -f $emulated ] && grep -q ' 0 [0-9]*$' $emulated; then one emulated-digest tests/unchanged.sh --passed emulated; fi
fi
packs=
if begin cuda: "the kernels compile; no GPU is needed"; then
    if [ -z "$(make -s print-nvcc)" ]; then echo "left out: there is no nvcc here"
    elif ! changed cuda; then :
    elif [ -n "$all" ]; then
        if make -s -j"$jobs" cuda; then one cuda-compiles true; one cuda-digest tests/unchanged.sh --passed cuda
        else one cuda-compiles false; fi
        packs=1
        if command -v python3 >/dev/null
        then one cuda-hot-loops python3 tests/sass.py build/release/libkernels_cuda.so "$(make -s print-nvcc)"
        else echo "left out: cuda-hot-loops needs python3"; fi
    else one cuda-compiles make -s -j"$jobs" B=build/sm80 CUDA_ARCHS=80 CUDA_PTX= cuda; fi # 9.0a for Hopper's files
fi
if begin_all arm64: "the kernels, emulated"; then
    if changed arm64; then
        before=$failed; count tests/arm64.sh "$jobs"
        [ "$failed" -gt "$before" ] || one arm64-digest tests/unchanged.sh --passed arm64
    fi
fi
begin_all gpu-check: "its scripts, on the emulated device" && JOBS=$jobs PACK=$packs count tests/gpu/test_scripts.sh
if begin_all asan "and UBSan: the unit tests"; then
    before=$failed kept=$(engine_passed)
    list=$(asan_rest "$kept")
    echo "$(wc -w <<<"$kept") of the engine's tests passed on these files before (tests/digests; FRESH=1 runs them)"
    if make -s -j"$jobs" MODE=asan all $(paths asan <<<"$list"); then SEQD_TEST_SMALL=1 SEQD_TEST_SHAPES=small count tests/run.sh asan $list
    else one asan-build false; fi
    if [ "$failed" -eq "$before" ] && [ "$(wc -w <<<"$kept")" -lt "$(engine_parts | wc -l)" ]
    then one asan-digest tests/unchanged.sh --passed asan $(engine_parts); fi
fi
begin_all planted: "faults of synchronisation in the kernels must be found" && JOBS=$jobs count tests/planted.sh
begin_all mutants: "every injected fault must be caught" && JOBS=$jobs count tests/mutants.sh
if begin_all sim: "faults from seeds"; then
    if make -s -j"$jobs" sim; then
        JOBS=$jobs count tests/sim.sh "$([ -z "${FRESH:-}" ] && echo 3000 || echo 10000)"
        JOBS=$jobs count tests/sim.sh "$([ -z "${FRESH:-}" ] && echo 1000 || echo 3000)" 5122 # lost power, full disks, failed syncs
    else one sim-build false; fi
fi
[ -n "$all" ] || side asan: "and UBSan: what reads the network" count asan_network
side_all docs: "the commands of the documents" count "tests/scripts/docs.sh all"
if command -v slurmctld >/dev/null; then side_all slurm: "one job of Slurm on three nodes" count tests/scripts/slurm.sh
elif begin_all slurm: "one job of Slurm on three nodes"; then echo "left out: there is no slurmctld here (deploy/deps --slurm)"; fi
side_all previous: "the version before, under this one and beside it" count "JOBS=$jobs tests/scripts/previous.sh"
side_all asan: "end to end" count "BUILD=build/asan tests/scripts/e2e.sh"
side_all adapter: "adapters through all programs" count tests/scripts/adapter.sh
side_all serve: "a job that serves, asked by curl" count tests/scripts/serve.sh
side_all clients: "what clients of OpenAI's API sent, asked again" count tests/scripts/clients.sh
side_all preference: "preferences through all programs" count tests/scripts/preference.sh
side_all stages: "stages of a pipeline" count tests/scripts/stages.sh
side_all nodes: "one gang over two nodes" count tests/scripts/nodes.sh
side_all ranks: "a process on each of three machines" count tests/scripts/ranks.sh
side_all kill: "kill -9" count tests/scripts/kill.sh
side_all join: "nodes that join with certificates, and strangers" count tests/scripts/join.sh
side_all pull: "results come out" count tests/scripts/pull.sh
side_all units: "systemd's units, without systemd" count tests/scripts/units.sh
side_all push: "inputs come in" count tests/scripts/push.sh
side_all recipes: "the commands of the recipes" count "tests/scripts/docs.sh api/RECIPES.md"
side_all backup: "a backup under load, restored" count tests/scripts/backup.sh
side_all gpus: "jobs on GPUs, without a GPU" count tests/scripts/gpus.sh
side_all shared: "jobs whose files lie where nodes share them" count tests/scripts/shared.sh
side_all hold: "jobs suspended, at their limit, drained" count tests/scripts/hold.sh
side_all run: "one job with a service of its own" count tests/scripts/run.sh
side_all store: "the disk of seqd, slow, failing, full" count tests/scripts/store.sh
[ -n "$all" ] || side docs: "the commands of the documents" count tests/scripts/docs.sh
side test-kept: "results are kept while nothing has changed" count tests/scripts/test_kept.sh
side_all paper: "every count against its formula" one tests/paper/check.sh
side e2e: "end to end" count tests/scripts/e2e.sh
side tls: "TLS and the Unix socket" count tests/scripts/tls.sh
side people: "seqctl as people use it" count tests/scripts/people.sh
side page: "the page, in a browser where there is one" count tests/scripts/page.sh
side verbs: "verbs that change jobs and follow all of them" count tests/scripts/verbs.sh
side man: "the man pages and completion" count tests/scripts/man.sh
side badnode: "a node that cannot start ranks" count tests/scripts/badnode.sh
side limits: "a limit on the size of files" count tests/scripts/limits.sh
begin_all soak: "65,536 tokens on 4 ranks and on 1" && count tests/scripts/soak.sh 65536
side convert: "inputs of other formats" count tests/scripts/convert.sh
side private: "what no job may read" count tests/scripts/private.sh
side removal: "what is removed is gone, and nothing else" count tests/scripts/removal.sh
side models: "model directories" count tests/scripts/models.sh
begin_all disk: "disks, full, read-only, slow" && count tests/scripts/disk.sh
begin_all serve_faults: "faults under a job that serves" && count tests/scripts/serve_faults.sh
begin_all hang: "an agent that stands still" && count tests/scripts/hang.sh
run_sides scripts
run_again
if [ "$(grep -c '^unstable: ' "$UNSTABLE_FOUND")" -gt 3 ]; then fail "more than three tests are unstable"; fi
part
printf '\n%s%6d s  in all\n' "$times" "$SECONDS"
cat build/*/kept 2>/dev/null
scripts_kept
cat "$UNSTABLE_FOUND" "$FAILURES"
echo "$passed passed, $failed failed" | tee "build/${all:+all-}result"
[ "$failed" -eq 0 ]
