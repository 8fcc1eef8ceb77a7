#!/usr/bin/env bash
# Faults under a job that serves, with 16 open streams, 4 long prompts and 4 requests that wait: each
# program is killed, a rank stands still, and a node is lost. Every request ends with an answer or an
# error, and the job serves again. Then readers that stop, and 256 connections at once. No prompt and
# no answer is in a file or in a core.
#   BUILD=build/release   KEEP=1 keeps the state directory
# tests: needs client/examples @curl
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start serve_faults
command -v curl >/dev/null || nothing_tested serve_faults "there is no curl"
C=$(mktemp -d "${TMPDIR:-/tmp}/seqd-clients.XXXXXX") # the files of clients, in which prompts are
trap 'rm -rf "$C"; lib_clean' EXIT
ulimit -c unlimited # where the kernel names it "core", it is in a directory beneath $T

cp -r client/examples/demo-model "$T/data/model"
STREAMS=16 # the job has a place for each and for the long prompts
cat >"$T/data/serve.json" <<END
{"kind": "serve", "name": "reader", "model": {"path": "model", "init": "random"}, "seed": 1,
 "data": {"seq_len": 2048}, "sampling": {"max_tokens": 2000}, "serve": {"max_requests": $((STREAMS + 4)), "queue": 300},
 "resources": {"ranks": 2, "threads": 1}}
END
SECRET=the-prompt-that-no-file-has
LONG=$(printf 'The ranks. %.0s' $(seq 150))

# ---- clients -------------------------------------------------------------------------------------
asks() { # [options of curl]: the request of a body that -d gives
    curl -sN -m $((60 * PATIENCE)) -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
        "$@" "$URL/openai/v1/completions"
}
body() { # TOKENS MEMBERS [PROMPT]
    echo "{\"model\": \"reader\", \"prompt\": \"$SECRET ${3:-}\", \"max_tokens\": $1, \"ignore_eos\": true$2}"
}
open_one() { # NAME BODY: its end is in NAME.end
    { asks -o "$C/$1.body" -D "$C/$1.head" -w '%{http_code}\n' -d "$2" >"$C/$1.code" 2>/dev/null
      echo $? >"$C/$1.rc"; mv "$C/$1.rc" "$C/$1.end"; } &
}
begun() { grep -qs '^data: {' "$C/$1.body"; }
all_begun() { for i in $(seq $STREAMS); do begun "stream$i" || return 1; done; }
ended() { [ "$(ls "$C"/*.end 2>/dev/null | wc -l)" -eq "$1" ]; }
# Opens the requests. The long prompts begin last, so that the fault comes at their prefill.
open_all() { # NAME
    rm -f "$C"/*
    for i in $(seq $STREAMS); do open_one "stream$i" "$(body 2000 ', "stream": true')"; done
    until_ok 300 all_begun || bad "$1: the streams begin"
    for i in $(seq 4); do open_one "long$i" "$(body 8 '' "$LONG")"; done
    for i in $(seq 4); do open_one "waits$i" "$(body 8 '')"; done
}
# Tells whether a request has a whole answer or an error in the API's form. If seqd was killed, its
# connection may also have ended.
is_good() { # NAME FAULT
    local code; code=$(cat "$C/$1.code")
    if [ "$2" = seqd ] && [ "$(cat "$C/$1.end")" -ne 0 ]; then return 0; fi
    case $code in
    200) grep -qE '^data: \[DONE\]|"usage"|^data: \{"error"' "$C/$1.body" ;;
    503) grep -q '"error"' "$C/$1.body" && grep -qi '^retry-after: ' "$C/$1.head" ;;
    *) false ;;
    esac
}
check_all() { # FAULT: within 10 s all requests end well
    local name wrong=
    until_ok 100 ended $((STREAMS + 8)) || { bad "$1: all requests end within 10 s, not $(ls "$C"/*.end | wc -l)"; return; }
    for name in $(basename -s .end "$C"/*.end); do
        is_good "$name" "$1" || wrong="$wrong $name:$(cat "$C/$name.code"):$(cat "$C/$name.end")"
    done
    if [ -z "$wrong" ]; then ok "$1: every request gets an answer or an error"; else bad "$1: $wrong"; fi
}
# The job is away or serves: any other answer is noted in $C/other.
serves() {
    local code
    code=$(asks -o "$C/body" -D "$C/head" -w '%{http_code}' -d "$(body 1 '')")
    case $code in
    200) return 0 ;;
    503) grep -qi '^retry-after: ' "$C/head" || echo "503 without Retry-After" >>"$C/other" ;;
    000) [ -z "${DOWN:-}" ] && echo "no answer" >>"$C/other" ;;
    *) echo "$code $(cat "$C/body")" >>"$C/other" ;;
    esac
    return 1
}
# The bound is 10 s and one load, of which LOAD is the time in tenths of seconds.
serves_again() { # FAULT [further tenths]
    until_ok $((100 + LOAD + ${2:-0})) serves && ok "$1: the job serves again" || bad "$1: the job serves again" "$C/body"
    [ ! -s "$C/other" ] && ok "$1: until then it is 503 with Retry-After" || bad "$1: until then" "$C/other"
    rm -f "$C/other"
}
submit() { # starts the job, and measures its load
    local begin=$SECONDS
    id=$(seqctl submit serve.json -o name -q 2>"$T/out") || bad "submit" "$T/out"
    until_ok 1200 serves && ok "the job serves" || { bad "the job serves" "$C/body"; lib_end; exit 1; }
    LOAD=$((10 * (SECONDS - begin + 1))); rm -f "$C/other"
}
door() { URL=$(cat "$STATE/address") TOKEN=$(cat "$STATE/token" 2>/dev/null || seqctl tokens create --user "$(id -un)" -q); }
no_secret() { ! grep -rqsa "$SECRET" "$T"; }

# ---- kill -9 of each program ---------------------------------------------------------------------
seqd_start || { lib_end; exit 1; }
door; submit
for program in seqrank seqgang seqw; do
    open_all $program
    kill -9 "$(procs $program | head -1)"
    check_all $program
    serves_again $program
done
open_all segv
kill -SEGV "$(procs seqrank | tail -1)"
check_all segv; serves_again segv
check "no prompt is in a core" no_secret

# A rank that stands still: clients have their errors long before the watchdog ends the attempt.
open_all stop
rank=$(procs seqrank | tail -1)
kill -STOP "$rank"
check_all stop
same "stop: none is taken in the meantime" "$(asks -o "$C/body" -w '%{http_code}' -d "$(body 1 '')")" 503
kill -CONT "$rank"
serves_again stop

open_all seqd
crash
check_all seqd
seqd_start; door
serves_again seqd

# ---- readers that stop ---------------------------------------------------------------------------
# Each stopped curl has 64 KiB at seqd; the rest of its answer is on the node.
resident() { awk '/^VmRSS/ { print $2 }' "/proc/$SEQD_PID/status"; }
rm -f "$C"/*; readers=
before=$(resident)
for i in $(seq 16); do
    asks -o "$C/slow$i.body" -d "$(body 2000 ', "stream": true, "logprobs": 5')" & readers="$readers $!"
done
slow_begun() { for i in $(seq 16); do begun "slow$i" || return 1; done; }
until_ok 300 slow_begun && ok "16 readers begin" || bad "16 readers begin"
kill -STOP $readers
check "others are answered beside readers that stop" serves
grown=$(($(resident) - before))
[ $grown -lt $((16 * 64 + 8192)) ] && ok "readers that stop cost seqd little ($grown KiB)" || bad "seqd has grown by $grown KiB"
kill -CONT $readers
# shellcheck disable=SC2086
check "they get their whole answers" wait $readers
complete() { for i in $(seq 16); do grep -q '^data: \[DONE\]' "$C/slow$i.body" || return 1; done; }
check "to the end" complete

# ---- 256 connections -----------------------------------------------------------------------------
rm -f "$C"/*
for i in $(seq 256); do
    [ "$i" -eq 1 ] || echo next
    printf 'url = "%s/openai/v1/completions"\nheader = "Authorization: Bearer %s"\nheader = "Content-Type: application/json"\n' "$URL" "$TOKEN"
    printf 'data = "%s"\noutput = "%s"\nwrite-out = "%%{http_code}\\n"\nmax-time = %d\n' \
        "$(body 4 '' | sed 's/"/\\"/g')" "$C/many$i" $((120 * PATIENCE))
done >"$C/many"
curl -sZ --parallel-immediate --parallel-max 256 -K "$C/many" >"$C/codes" 2>/dev/null
n_200=$(grep -c '^200$' "$C/codes") n_429=$(grep -c '^429$' "$C/codes")
check "256 requests at once: a user's 250 are answered" test "$n_200" -ge 250
same "the others are to come again" "$((n_200 + n_429))" 256
seqd_stop; check "nothing is left running" until_ok 100 nothing_left

# ---- a node is lost ------------------------------------------------------------------------------
rm -rf "$STATE"; mkdir -m 755 "$STATE"
seqw_run() { # NAME
    "$BIN/seqw" --connect "unix:$STATE/node.sock" --name "$1" --state "$T/$1" --slots 2 --root "$T/data" >>"$T/seqw.log" 2>&1 &
    eval "SEQW_$1=$!"
}
seqd_run --node-lost 2s
seqw_run a; seqw_run b
until_ok 200 n_up 2 || bad "two nodes join" "$SEQD_LOG"
door; submit
node=$(field "$id" node)
open_all node
# The ranks die with their gang.
gang=$(for p in $(procs seqgang); do grep -qsa "$T/$node" "/proc/$p/cmdline" && echo "$p"; done)
agent=SEQW_$node
kill -9 "${!agent}" ${gang:?}
check_all node
serves_again node 20
[ "$(field "$id" node)" != "$node" ] && ok "on the other node" || bad "on the other node"
check "cancel" seqctl cancel "$id" --wait --timeout $((60 * PATIENCE))
seqd_stop
check "no prompt is in a file" no_secret
lib_end
