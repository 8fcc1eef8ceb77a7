#!/usr/bin/env bash
# One gang over two nodes: two seqw in network namespaces, their ranks connected by a bad cable
# (tests/net/cable.c). Each reaches seqd over a network of its own.
#   BUILD=build/release   KEEP=1 keeps the state
# Needs unprivileged user and network namespaces, ip and nsenter (tests/scripts/nets.sh).
#
#   namespace of this script    seqd, seqctl, the cable between da0 and db0
#   namespace A                 seqw a: da1 10.8.0.1 (ranks), eth0 10.9.1.2 (to seqd at 10.9.1.1)
#   namespace B                 seqw b: db1 10.8.0.2 (ranks), eth0 10.9.2.2 (to seqd at 10.9.2.1)
# tests: needs net @ip
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
. tests/scripts/nets.sh
own_network nodes "$@"
lib_start nodes
CABLE=
trap 'kill $HOLDERS $CABLE 2>/dev/null; lib_clean' EXIT
HOP_S=2
STEPS=${STEPS:-40}

# ---- the network ------------------------------------------------------------------------------
in_a() { nsenter -t "$NS_A" -n "$@"; }
in_b() { nsenter -t "$NS_B" -n "$@"; }
network() {
    ip link set lo up || return 1
    namespace A && namespace B && connected A 1 && connected B 2 || return 1
    ip link add da0 type veth peer name da1 netns "$NS_A" || return 1
    ip link add db0 type veth peer name db1 netns "$NS_B" || return 1
    ip link set da0 addrgenmode none up && ip link set db0 addrgenmode none up || return 1
    in_a sh -c 'ip addr add 10.8.0.1/24 dev da1; ip link set da1 up' || return 1
    in_b sh -c 'ip addr add 10.8.0.2/24 dev db1; ip link set db1 up'
}
cable_says() { grep -q "^$1\$" "$T/cable.out"; }
cable_start() { # options of cable
    [ -z "$CABLE" ] || { kill "$CABLE"; wait "$CABLE"; cat "$T/cable.out" >>"$T/cables"; }
    "$T/cable" da0 db0 "$@" >"$T/cable.out" 2>&1 &
    CABLE=$!
    until_ok 50 cable_says up || bad "the cable" "$T/cable.out"
}
cable_cut() { kill -USR1 "$CABLE"; until_ok 50 cable_says cut; }
cable_mend() { kill -USR2 "$CABLE"; until_ok 50 cable_says mended; }

# ---- the programs -----------------------------------------------------------------------------
seqw_a() { seqw_run a A insecure:10.9.1.1:7434 --address 10.8.0.1; SEQW_A=$W; }
seqw_b() { seqw_run b B insecure:10.9.2.1:7434 --address 10.8.0.2; SEQW_B=$W; }
open_seqd() { seqd_run --node-address insecure:0.0.0.0:7434; }
cluster_start() {
    open_seqd
    seqw_a
    until_ok 200 n_up 1 || return 1 # a is first: it prepares the data and has rank 0
    seqw_b
    until_ok 200 n_up 2
}

RING='"sp": 4, "layout": "zigzag"'             # one ring over both nodes
RINGS='"sp": 2, "dp": 2, "layout": "zigzag"' # two rings, each on a node
spec() { # NAME [parallel]
    cat <<JSON
{"kind": "train", "name": "$1",
 "model": {"config": $LLAMA},
 "data": {"train": [{"path": "$T/data/text.txt", "format": "text"}], "seq_len": 512},
 "parallel": {"strategy": "rsa", ${2:-$RING}}, "determinism": "run",
 "train": {"steps": $STEPS, "global_batch": 2}, "optim": {"lr": 0.002}, "checkpoint": {"every_steps": 10},
 "limits": {"hop_timeout_s": $HOP_S, "restarts": 0},
 "resources": {"ranks": 4, "threads": 1}, "seed": 3}
JSON
}
submit() { spec "$@" | seqctl submit - -o name -q; }
check_end() { # NAME ID [weights]
    local name=$1 id=$2 want=${3:-$WANT} sha
    succeeds "$name" "$id" || return
    sha=$(field "$id" result.weights_sha256)
    [ "$sha" = "$want" ] || { bad "$name: weights $sha, on one host $want"; return; }
    until_ok 100 no_gang || { bad "$name: still running: $(procs seqgang) $(procs seqrank)"; return; }
    ok "$name"
}
events() { seqctl events "$1" -o jsonl 2>/dev/null; }
n_events() { events "$1" | grep -c "\"type\": \"$2\""; }

# ---- on one host --------------------------------------------------------------------------------
${CC:-cc} -O2 -Wall -Wextra -D_GNU_SOURCE -o "$T/cable" tests/net/cable.c || { bad "cable.c compiles"; lib_end; exit 1; }
make_text 200000 >"$T/data/text.txt"
check "namespaces" network || { lib_end; exit 1; }
seqd_start || { lib_end; exit 1; }
id=$(submit one-host) || { bad "one host: submit"; lib_end; exit 1; }
"$BIN/seqctl" watch "$id" -q --timeout $((60 * PATIENCE)) >"$T/watch.out" 2>&1
WANT=$(field "$id" result.weights_sha256)
[ -n "$WANT" ] || { bad "one host" "$T/watch.out"; lib_end; exit 1; }
ok "one host: $WANT"
id=$(submit rings-one-host "$RINGS") || bad "two rings on one host: submit"
"$BIN/seqctl" watch "$id" -q --timeout $((60 * PATIENCE)) >"$T/watch.out" 2>&1
WANT_RINGS=$(field "$id" result.weights_sha256)
[ -n "$WANT_RINGS" ] && ok "two rings on one host: $WANT_RINGS" || bad "two rings on one host" "$T/watch.out"
check "seqd --dev stops" seqd_stop

# ---- over two -----------------------------------------------------------------------------------
STATE=$T/cluster SEQD_URL=$T/cluster
mkdir -p "$STATE"
cable_start
cluster_start || { bad "the cluster starts" "$SEQD_LOG"; lib_end; exit 1; }
ok "two nodes join"
says "nodes show their addresses" '10\.8\.0\.2' seqctl nodes -o json

id=$(submit two-nodes)
check_end "2 + 2 ranks: the same weights" "$id"
same "it ran on two nodes" "$(seqctl show "$id" -o json | tr -d ' \n' | grep -o '"nodes":\[[^]]*\]')" \
    '"nodes":[{"node":"a","first_rank":0,"ranks":2},{"node":"b","first_rank":2,"ranks":2}]'
check "node b made the data itself" test -d "$T/node-b/prepared/$(field "$id" prepared_id)"
says "the log of a rank on node b" 'rank=3' seqctl logs "$id" --rank 3
same "bytes == formula" "$(field "$id" last_metrics.ledger_ok)" true

id=$(submit two-rings "$RINGS")
check_end "a ring on each node: the same weights" "$id" "$WANT_RINGS"

cable_start --delay-us 200 1500 --loss 3 --seed 5
id=$(submit delay-and-loss)
check_end "delay and loss: the same weights" "$id"
same "without a restart" "$(field "$id" attempts)" 1
cable_start

# Shorter than the timeout: only TCP notices.
id=$(submit short-cut)
wait_event "$id" checkpoint || bad "no checkpoint"
cable_cut; sleep 0.8; cable_mend
check_end "cut for less than the timeout: the same weights" "$id"
same "without a restart" "$(field "$id" attempts)" 1

# Longer: the ranks find it and name a peer; the job resumes from the checkpoint.
cable_start
id=$(submit long-cut)
wait_event "$id" checkpoint || bad "no checkpoint"
cable_cut
before=$(date +%s%N)
wait_event "$id" rank_exit || bad "a cut cable: no rank_exit event"
took=$((($(date +%s%N) - before) / 1000000))
# Twice the timeout to find it, a second in which seqd waits for a better report of the other node,
# and the tick of a second.
if [ "$took" -lt $((2 * HOP_S * 1000 + 2500)) ]; then ok "a cut cable is found after $took ms"; else bad "a cut cable was found after $took ms"; fi
says "the event names a silent peer" '"class": "infrastructure".*rank [0-3].*silent for [0-9]+ ms' events "$id"
cable_mend
check_end "cut for longer: the same weights" "$id"
[ "$(field "$id" attempts)" -ge 2 ] && ok "with a restart" || bad "with a restart: attempts $(field "$id" attempts)"
same "which limits.restarts does not count" "$(field "$id" restarts)" 0

# A rank dies: it is named, whichever rank reports first.
ranks_of_b() { local p; for p in $(procs seqrank); do [ "$(readlink "/proc/$p/ns/net")" = "$(readlink "/proc/$NS_B/ns/net")" ] && echo "$p"; done; }
id=$(submit rank-dies)
wait_event "$id" checkpoint || bad "no checkpoint"
kill -9 $(ranks_of_b | tail -n 1) || bad "nothing to kill"
wait_event "$id" rank_exit || bad "a killed rank: no rank_exit event"
says "the rank that died is named, with its node" '"node": "b".*"rank": [23].*killed by signal 9' events "$id"
check_end "a rank dies: the same weights" "$id"

# seqd dies: the ranks on both nodes do not notice.
id=$(submit seqd-dies)
wait_event "$id" checkpoint || bad "no checkpoint"
before=$(procs seqrank | tr '\n' ' ')
crash
open_seqd
until_ok 200 n_up 2 || bad "seqd starts again" "$SEQD_LOG"
after=$(procs seqrank | tr '\n' ' ')
[ "$before" = "$after" ] || [ -z "$after" ] || bad "ranks were $before, are $after"
check_end "seqd dies: the same weights" "$id"
same "without a restart" "$(field "$id" attempts)" 1

# The agent, the gang and the ranks of a node die together; the agent is started again.
gang_of_b() { local p; for p in $(procs seqgang); do tr '\0' ' ' <"/proc/$p/cmdline" | grep -q "$T/node-b/" && echo "$p"; done; }
id=$(submit node-dies)
wait_event "$id" checkpoint || bad "no checkpoint"
kill -9 "$SEQW_B" $(gang_of_b) || bad "nothing to kill"
wait "$SEQW_B" 2>/dev/null
until_ok 50 n_up 1
seqw_b
check_end "agent and gang of a node die: the same weights" "$id"
[ "$(field "$id" attempts)" -ge 2 ] && ok "with a restart" || bad "with a restart: attempts $(field "$id" attempts)"
same "which limits.restarts does not count" "$(field "$id" restarts)" 0

# ---- the end ------------------------------------------------------------------------------------
check "seqw a stops" stops "$SEQW_A"
check "seqw b stops" stops "$SEQW_B"
check "seqd stops" stops "$SEQD_PID"
SEQD_PID=
check "nothing is left running" until_ok 50 nothing_left
lib_end
