# lib.sh: what the scripts of tests share: a private copy of the programs, a seqd --dev on a port of
# its own, counted checks, waiting for events. Sourced by bash.
#
# The programs are copied, so that the processes of this run are those whose exe is in $BIN, or in
# another folder *bin of $T: /proc shows whether any is left running.
# tests: needs seqd seqw seqgang seqrank seqctl data/train

PATIENCE=${PATIENCE:-1} # waits are that many times as long: 3 in CI

# A small model, for jobs whose model does not matter.
LLAMA='{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 176, "vocab_size": 258}'

lib_start() { # names the suite, makes $T, $BIN, $STATE
    SUITE=$1 PASSED=0 FAILED=0
    T=$(mktemp -d "${TMPDIR:-/tmp}/seqd-$SUITE.XXXXXX") || exit 1
    BIN=$T/bin STATE=$T/state
    mkdir -p "$BIN" "$STATE" "$T/data"
    cp "${BUILD:-build/release}"/seq{d,w,gang,rank,ctl} "$BIN" || exit 1
    export SEQD_URL=$STATE NO_COLOR=1 XDG_CONFIG_HOME=$T/config TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp"
    SEQD_PID= SEQD_N=0
    trap 'lib_clean' EXIT
    trap 'exit 130' INT TERM
}

lib_clean() {
    local p
    for p in $(procs '*'); do kill -9 "$p" 2>/dev/null; done
    # An interrupted script may have left mounts, which would keep the folder.
    for p in $(awk -v t="$T/" 'index($2, t) == 1 { print $2 }' /proc/self/mounts); do umount -l "$p"; done
    if [ "$FAILED" -gt 0 ] || [ -n "${KEEP:-}" ]; then echo "$SUITE: kept $T"; else rm -rf "$T"; fi
}

# Ends a script that this machine cannot run: nothing counts as passed.
nothing_tested() { # SUITE WHY
    echo "$1: SKIPPED, NOTHING WAS TESTED: $2"
    echo "$1: 0 passed, 0 failed"
    exit 0
}

lib_end() {
    echo "$SUITE: $PASSED passed, $FAILED failed"
    [ "$FAILED" -eq 0 ]
}

ok() { PASSED=$((PASSED + 1)); echo "ok   $1"; }
bad() { # NAME [file with more]
    FAILED=$((FAILED + 1)); echo "FAIL $1"
    if [ -n "${2:-}" ]; then tail -n 12 "$2" | sed 's/^/     /'; fi
    return 1
}

# Pids of our processes of one program ('*': of all), one a line.
procs() {
    find /proc -maxdepth 2 -path '/proc/[0-9]*/exe' -lname "$T/*bin/$1" 2>/dev/null |
        sed 's#/proc/##; s#/exe##' | sort -n
}

# Runs a command until it succeeds, at most $1 tenths of a second, times PATIENCE on a busy machine.
until_ok() {
    local n=$(($1 * PATIENCE)); shift
    for ((; n > 0; n--)); do "$@" && return 0; sleep 0.1; done
    return 1
}

# Relative paths in specs are relative to the caller's directory: here the directory of the data.
seqctl() { env -C "$T/data" "$BIN/seqctl" "$@"; }
field() { seqctl show "$1" --field "$2" 2>/dev/null; }
ready() { seqctl version -o json >/dev/null 2>&1 && [ -n "$(seqctl nodes -o name 2>/dev/null)" ]; }
n_up() { [ "$(seqctl nodes -o json 2>/dev/null | grep -c '"state": "up"')" -eq "$1" ]; }

# Starts seqd --dev, logging to $T/seqd.N.log, and waits until it is ready and its node has joined.
seqd_start() {
    SEQD_N=$((SEQD_N + 1))
    SEQD_LOG=$T/seqd.$SEQD_N.log
    # Jobs may read beneath the directory that seqd --dev starts in.
    (cd "$T/data" && exec "$BIN/seqd" --dev --state "$STATE" --listen 127.0.0.1:0 "$@") >"$SEQD_LOG" 2>&1 &
    SEQD_PID=$!
    until_ok 200 ready || { bad "seqd starts" "$SEQD_LOG"; return 1; }
}

# Starts a seqd whose nodes are agents that the script starts, logging to $T/seqd.N.log, and waits until it is ready.
seqd_run() { # [options]
    SEQD_N=$((SEQD_N + 1))
    SEQD_LOG=$T/seqd.$SEQD_N.log
    "$BIN/seqd" --state "$STATE" --listen 127.0.0.1:0 "$@" >"$SEQD_LOG" 2>&1 &
    SEQD_PID=$!
    until_ok 100 in_log "$SEQD_LOG" seqd.ready || bad "seqd starts" "$SEQD_LOG"
}
in_log() { grep -qE -- "$2" "$1" 2>/dev/null; } # FILE REGEX: the file may not be there yet

# Every later start of a program preloads the C code of stdin.
preload() { # PROGRAM [options of cc]
    local program=$1; shift
    ${CC:-cc} -shared -fPIC "$@" -o "$T/$program.so" -x c - -ldl 2>"$T/out" &&
        mv "$BIN/$program" "$BIN/$program-real" &&
        printf '#!/bin/sh\nLD_PRELOAD=%s exec %s "$@"\n' "$T/$program.so" "$BIN/$program-real" >"$BIN/$program" &&
        chmod +x "$BIN/$program" || bad "the library that $program preloads" "$T/out"
}

nothing_left() { [ -z "$(procs 'seq[dwgr]*')" ]; }
no_gang() { [ -z "$(procs seqgang)$(procs seqrank)" ]; }

# SIGINT, as Ctrl-C, or the SIGNAL given: seqd stops the agent and the gangs, and exits 0.
seqd_stop() { # [SIGNAL]
    local rc
    kill "-${1:-INT}" "$SEQD_PID" 2>/dev/null
    until_ok 150 gone "$SEQD_PID" || kill -9 "$SEQD_PID"
    wait "$SEQD_PID"; rc=$?
    SEQD_PID=
    return "$rc"
}
stops() { kill -TERM "$1" && wait "$1"; } # PID: SIGTERM, and it exits 0
crash() { kill -9 "$SEQD_PID"; wait "$SEQD_PID" 2>/dev/null; }
gone() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }

# Waits in the stream of metrics until step K of job ID was seen.
wait_step() {
    local line step
    while read -r line; do
        step=${line#*\"step\": }; step=${step%%[,\}]*}
        [ "$step" -ge "$2" ] 2>/dev/null && return 0
    done < <(seqctl metrics "$1" -f -o jsonl --timeout $((60 * PATIENCE)) 2>/dev/null)
    return 1
}
# Steps that a training takes MS for, by the fastest one of JOB, which was like it: a step that shared
# its core says nothing of the next run.
steps_for() { # JOB MS LEAST MOST
    seqctl metrics "$1" -o jsonl | grep -o '"step_ms": [0-9]*' | awk -v ms="$2" -v least="$3" -v most="$4" '
        NR > 5 && (quickest == "" || $2 < quickest) { quickest = $2 }
        END { n = NR > 5 ? int(ms / (quickest + 1)) : 0; print (n < least ? least : n > most ? most : n) }'
}
# Waits in the stream of events for the Nth event of a type.
wait_event() {
    local line n=0
    while read -r line; do
        case $line in *"\"type\": \"$2\""*) n=$((n + 1)); [ "$n" -ge "${3:-1}" ] && return 0 ;; esac
    done < <(seqctl events "$1" -f -o jsonl --timeout $((60 * PATIENCE)) 2>/dev/null)
    return 1
}

# Waits until a job ends, for as long as it gets further within a minute: on a machine that has other
# work it may take long. Fails unless it succeeded. The output of watch is in $T/watch.out.
succeeds() { # NAME ID
    local far before='' state
    while far="$(field "$2" epoch) $(field "$2" step) $(field "$2" progress.done)"; [ "$far" != "$before" ]; do
        before=$far
        "$BIN/seqctl" watch "$2" -q --timeout $((60 * PATIENCE)) >"$T/watch.out" 2>&1
        state=$(field "$2" state)
        case $state in succeeded) return ;; failed | cancelled) break ;; esac
    done
    seqctl events "$2" >>"$T/watch.out" 2>&1
    bad "$1: job $2 is $state" "$T/watch.out"
}

# check NAME COMMAND...: the command succeeds. Prints its output when it does not.
check() {
    local name=$1; shift
    if "$@" >"$T/out" 2>&1; then ok "$name"; else bad "$name (status $?)" "$T/out"; fi
}
# refuse NAME STATUS REGEX COMMAND...: the command exits with that status; its output matches.
refuse() {
    local name=$1 want=$2 re=$3 rc; shift 3
    "$@" >"$T/out" 2>&1; rc=$?
    if [ "$rc" -ne "$want" ]; then bad "$name (status $rc, want $want)" "$T/out"
    elif ! grep -qE -- "$re" "$T/out"; then bad "$name (does not say /$re/)" "$T/out"
    else ok "$name"; fi
}
says() { # NAME REGEX COMMAND...: it succeeds and its output matches
    local name=$1 re=$2; shift 2
    if ! "$@" >"$T/out" 2>&1; then bad "$name (failed)" "$T/out"
    elif ! grep -qE -- "$re" "$T/out"; then bad "$name (does not say /$re/)" "$T/out"
    else ok "$name"; fi
}
same() { # NAME GOT WANT
    if [ "$2" = "$3" ] && [ -n "$2" ]; then ok "$1"; else bad "$1: got \"$2\", want \"$3\""; fi
}

# One bit of the byte at OFFSET: whatever it was, it is another one now.
flip_bit() { # FILE OFFSET
    local byte; byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    printf "\\$(printf %o $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# $1 bytes of the text of tests/data, from its begin again where they are more: always the same.
make_text() {
    local n=$1 size
    size=$(cat tests/data/train/*.txt | wc -c)
    [ "$size" -gt 0 ] || return 1
    for ((; n > 0; n -= size)); do cat tests/data/train/*.txt | head -c "$n"; done
}
