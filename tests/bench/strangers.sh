#!/usr/bin/env bash
# Calls of seqctl while strangers hold all connections of seqd, and connect again as fast as they are closed
# (bench_strangers.c). Prints the calls that were served by each door, and the longest.
#   tests/bench/strangers.sh [STRANGERS FILES CALLS]     7200 4608 100; BUILD=build/release
# FILES is the hard limit of open files of seqd. needs: build/release/bench/bench_strangers
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start strangers
N=${1:-7200} FILES=${2:-4608} CALLS=${3:-100} BENCH=${BUILD:-build/release}/bench/bench_strangers
mv "$BIN/seqd" "$BIN/seqd-real"
printf '#!/bin/sh\nulimit -n %s\nexec %s "$@"\n' "$FILES" "$BIN/seqd-real" >"$BIN/seqd"
chmod +x "$BIN/seqd"
seqd_start || { lib_end; exit 1; }
URL=$(cat "$STATE/address") PORT=${URL##*:}
grep http.connections "$SEQD_LOG"
"$BENCH" "$PORT" "$N" >"$T/strangers" & STRANGERS=$!
n_tcp() { ss -Htn state established "sport = :$PORT" 2>/dev/null | wc -l; }
full() { [ "$(n_tcp)" -ge "$(((FILES - 512 < 10000 ? FILES - 512 : 10000) - 200))" ]; }
until_ok 200 full || echo "not full: $(n_tcp) connections"

calls() { # DOOR URL
    local k from us most=0 served=0 late=0
    for ((k = 0; k < CALLS; k++)); do
        from=${EPOCHREALTIME/./}
        SEQD_URL=$2 "$BIN/seqctl" ls -q >/dev/null 2>>"$T/err" && served=$((served + 1))
        us=$((${EPOCHREALTIME/./} - from))
        [ "$us" -le "$most" ] || most=$us
        [ "$us" -le 2000000 ] || late=$((late + 1))
    done
    echo "{\"bench\":\"strangers\",\"door\":\"$1\",\"calls\":$CALLS,\"served\":$served,\"late\":$late,\"longest_ms\":$((most / 1000))}"
    check "$1: $served of $CALLS calls served, $late later than 2 s" test "$served" -eq "$CALLS" -a "$late" -eq 0
}
export SEQD_TOKEN_FILE=$STATE/token
calls tcp "$URL"
unset SEQD_TOKEN_FILE
calls unix "$STATE"
echo "established: $(n_tcp); load: $(cut -d ' ' -f 1-3 /proc/loadavg); seqd's files: $(find "/proc/$SEQD_PID/fd" 2>/dev/null | wc -l)"
sort "$T/err" | uniq -c | head -n 5
kill "$STRANGERS"; wait "$STRANGERS"; cat "$T/strangers"
check "seqd ends" seqd_stop
lib_end
