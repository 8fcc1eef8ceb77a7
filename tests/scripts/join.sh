#!/usr/bin/env bash
# Nodes that join over a network with certificates, and everything that must not: each is refused,
# and both sides say why. A capture shows no word of a job that runs on two of them.
#   BUILD=build/release   KEEP=1 keeps the state
# Needs unprivileged user and network namespaces, ip and nsenter (tests/scripts/nets.sh).
#
#   namespace of this script    seqd at 10.9.1.1 and 10.9.2.1, forwarding, the capture
#   namespaces A and B          nodes at 10.9.1.2 and 10.9.2.2
# tests: needs net libapi.a libcore.a api/core api/rpc.h api/wire.h api/pki.h @curl @openssl @ip
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
. tests/scripts/nets.sh
own_network join "$@"
lib_start join
OTHERS=
trap 'kill $HOLDERS $OTHERS 2>/dev/null; lib_clean' EXIT

# ---- the network ------------------------------------------------------------------------------
network() {
    ip link set lo up && namespace A && namespace B && connected A 1 && connected B 2 || return 1
    echo 1 >/proc/sys/net/ipv4/ip_forward && nsenter -t "$NS_A" -n ping -c 1 -W 5 10.9.2.2 >/dev/null 2>&1 || reach
}
reach() { [ "$(cat /proc/sys/net/ipv4/ip_forward)" = 1 ]; } # where there is no ping

# ---- the programs -----------------------------------------------------------------------------
open_seqd() { seqd_run --node-address 0.0.0.0:7434 "$@"; }
token() { seqctl nodes token -q "$@" >"$T/token" && [ -s "$T/token" ]; }
# Both sides say it within 20 seconds.
both_say() { # NAME, what the coordinator says, what the node says
    if ! until_ok 200 in_log "$SEQD_LOG" "$2"; then bad "$1: seqd does not say /$2/" "$SEQD_LOG"
    elif ! until_ok 200 in_log "$W_LOG" "$3"; then bad "$1: seqw does not say /$3/" "$W_LOG"
    else ok "$1"; fi
}
node_stops() { kill -TERM "$W" && wait "$W"; }
is_up() { seqctl nodes -o json | tr -d ' \n' | grep -q "\"name\":\"$1\",\"state\":\"up\""; }
up() { until_ok 200 is_up "$1"; }

libs="-lgrpc -lgpr -lprotobuf-c -lssl -lcrypto -lpthread"
build=${BUILD:-build/release}
check "capture.c compiles" ${CC:-cc} -O2 -Wall -Wextra -D_GNU_SOURCE -o "$T/capture" tests/net/capture.c
case $build in
    *asan) san=-fsanitize=address,undefined ;; *tsan) san=-fsanitize=thread ;; *) san= ;;
esac
check "thief.c compiles" ${CC:-cc} -O2 -std=c11 -D_GNU_SOURCE $san -I. -o "$T/thief" tests/net/thief.c "$build/libapi.a" "$build/libcore.a" $libs
check "namespaces" network || { lib_end; exit 1; }
make_text 100000 >"$T/data/text.txt"
AT_A=10.9.1.1:7434 AT_B=10.9.2.1:7434

# ---- certificates that have expired --------------------------------------------------------------
open_seqd --node-cert-ttl 4s
check "a token" token --names 'late' --ttl 10m
seqw_run late A "$AT_A" --join-token-file "$T/token"
check "a node joins" up late
says "its key is its own alone" '^600$' stat -c %a "$T/node-late/pki/node.key"
both_say "it renews its certificate" 'join.certificate node=late .* renewal=1' 'member.certificate node=late .* how=renewed'
check "it is still up" up late
kill -9 "$W"; wait "$W" 2>/dev/null
expired() { [ "$(date +%s)" -gt "$1" ]; }
until_ok 100 expired "$(($(date +%s) + 5))"
seqw_run late A "$AT_A" --join-token-file "$T/token"
both_say "an expired certificate" 'rpc.refused peer=ipv4:10.9.1.2:.*the certificate of node late expired at' 'rpc.down .*the certificate of node late expired at'
check "a new token" token --names 'late' --ttl 10m
check "the node takes it from the file" until_ok 200 in_log "$W_LOG" "member.certificate node=late .* how=joined"
node_stops
check "seqd stops" stops "$SEQD_PID"

# ---- tokens --------------------------------------------------------------------------------------
open_seqd
check "a token for two names" token --names '[ab]' --uses 2 --ttl 10m
says "it is listed without its secret" '0 of 2' seqctl nodes tokens
seqw_run c A "$AT_A" --join-token-file "$T/token"
both_say "a name that the glob does not match" 'join.refused node=c peer=ipv4:10.9.1.2:.*is for nodes named \[ab\], not for c' 'join.refused .*is for nodes named \[ab\], not for c'
node_stops
seqw_run a A "$AT_A" --join-token-file "$T/token"; A=$W A_LOG=$W_LOG
check "node a joins" up a
seqw_run b B "$AT_B" --join-token-file "$T/token"; B=$W B_LOG=$W_LOG
check "node b joins" up b
check "one use" token --names '*' --ttl 10m
seqw_run c A "$AT_A" --join-token-file "$T/token"
check "node c uses it" up c
node_stops
seqw_run d A "$AT_A" --join-token-file "$T/token"
both_say "a used-up token" 'join.refused node=d .*is used up: 1 of 1 uses' 'join.refused .*is used up: 1 of 1 uses'
node_stops
check "a token for a second" token --names '*' --ttl 1s
until_ok 50 expired "$(($(date +%s) + 2))"
seqw_run d A "$AT_A" --join-token-file "$T/token"
both_say "an expired token" 'join.refused node=d .*the join token [0-9a-f]+ expired at' 'join.refused .*the join token [0-9a-f]+ expired at'
node_stops
token --names '*' --ttl 10m
seqctl nodes tokens revoke "$(cut -c 6-17 "$T/token")" >/dev/null || bad "a token is revoked"
seqw_run d A "$AT_A" --join-token-file "$T/token"
both_say "a revoked token" 'join.refused node=d .*knows no such join token' 'join.refused .*knows no such join token'
node_stops
echo nonsense >"$T/nonsense"
refuse "a file without a token" 1 'there is no join token in it' "$BIN/seqw" --connect "$AT_A" --name x --state "$T/node-x" --join-token-file "$T/nonsense"
refuse "neither a certificate nor a token" 1 'node x has no certificate in' "$BIN/seqw" --connect "$AT_A" --name x --state "$T/node-x"

# ---- names ---------------------------------------------------------------------------------------
token --names '*' --uses 9 --ttl 10m
mkdir -p "$T/other"
W_N=$((W_N + 1)) W_LOG=$T/seqw.$W_N.log
nsenter -t "$NS_B" -n "$BIN/seqw" --connect "$AT_B" --name a --state "$T/other/a" --join-token-file "$T/token" >"$W_LOG" 2>&1 &
W=$!
both_say "a name of another key, with a good token" 'join.refused node=a peer=ipv4:10.9.2.2:.*the name a belongs to another key until' 'join.refused .*the name a belongs to another key until'
node_stops
W_LOG=$T/thief.log
nsenter -t "$NS_B" -n "$T/thief" "$AT_B" a "$T/node-b/pki" >"$W_LOG" 2>&1
both_say "a stolen name, with the certificate of another" 'link.refused node=a peer=ipv4:10.9.2.2:.*the certificate is of node b, and the session is said to be of a' '^refused: the certificate is of node b'
check "node a did not notice" is_up a
if curl --version | grep -q HTTP2; then
    W_LOG=$T/curl.log
    nsenter -t "$NS_B" -n curl -sk -i --http2 --max-time 10 -X POST -H 'Content-Type: application/grpc' -H 'TE: trailers' "https://$AT_B/seqd.Cluster/Session" >"$W_LOG" 2>&1
    both_say "a stranger without a certificate" 'rpc.refused peer=ipv4:10.9.2.2:.*a session needs the certificate of a node, and there is none' 'grpc-status: 16'
else echo "left out: a stranger without a certificate needs a curl with HTTP/2"; fi
seqw_run plain A "insecure:$AT_A"
until_ok 100 in_log "$W_LOG" rpc.down || bad "a plain session" "$W_LOG"
says "it is warned of" 'session.insecure .*neither encrypted nor authenticated' cat "$W_LOG"
if is_up plain; then bad "a plain session: it is up"; else ok "a plain session does not open"; fi
node_stops

# ---- coordinators --------------------------------------------------------------------------------
OTHER_LOG=$T/other.log
"$BIN/seqd" --state "$T/other/state" --listen 127.0.0.1:0 --node-address 0.0.0.0:7435 >"$OTHER_LOG" 2>&1 &
OTHER=$!
until_ok 100 grep -q seqd.ready "$OTHER_LOG" || bad "another coordinator starts" "$OTHER_LOG"
SEQD_URL=$T/other/state seqctl nodes token --names '*' --ttl 10m -q >"$T/token-other" || bad "a token of it"
seqw_run d A "$AT_A" --join-token-file "$T/token-other"
both_say "a token of another coordinator" 'seqd.ready' 'join.refused .*shows an authority with the fingerprint [0-9a-f]{64} and the join token is for [0-9a-f]{64}.*nothing was sent'
node_stops
printf '%s.%s\n' "$(sed 's/\..*//' "$T/token-other")" "$(sed 's/.*\.//' "$T/token")" >"$T/mixed"
seqw_run d A "$AT_A" --join-token-file "$T/mixed"
both_say "its secret with our fingerprint" 'join.refused node=d .*knows no such join token' 'join.refused .*knows no such join token'
node_stops
seqw_run d A 10.9.1.1:7435 --join-token-file "$T/token"
both_say "a false coordinator, before the node joins" 'seqd.ready' 'join.refused .*is another coordinator, or a machine between'
node_stops
kill -9 "$A"; wait "$A" 2>/dev/null
seqw_run a A 10.9.1.1:7435
both_say "a false coordinator, to a node that has joined" 'seqd.ready' 'rpc.down .*certificate verify failed'
node_stops
stops "$OTHER" || bad "the other coordinator stops"
grep -q 'node=[ad]' "$OTHER_LOG" && bad "the other coordinator was told something" "$OTHER_LOG"
# A machine between that shows the right authority, and has no certificate of it.
if command -v openssl >/dev/null; then
    sed -n '/BEGIN CERT/,$p' "$STATE/pki/ca.pem" >"$T/ca.pem"
    authority mitm -subj /CN=seqd -addext 'subjectAltName=DNS:seqd'
    openssl s_server -accept 7436 -cert "$T/mitm.pem" -key "$T/mitm.key" -cert_chain "$T/ca.pem" -alpn h2 -quiet >"$T/mitm.out" 2>&1 &
    OTHERS=$!
    listens() { (: <"/dev/tcp/127.0.0.1/7436") 2>/dev/null; }
    until_ok 50 listens
    seqw_run d A 10.9.1.1:7436 --join-token-file "$T/token"
    both_say "a machine between that shows our authority" 'seqd.ready' 'rpc.down .*certificate verify failed'
    node_stops
    if grep -qa seqj_ "$T/mitm.out"; then bad "it was told the token" "$T/mitm.out"; else ok "it was not told the token"; fi
    kill $OTHERS; wait $OTHERS 2>/dev/null; OTHERS=
else echo "left out: a machine between needs the program openssl"; fi

# ---- revocation ----------------------------------------------------------------------------------
seqw_run c A "$AT_A"
check "node c is back without a token" up c
check "a token of before" token --names c --uses 9 --ttl 10m
cp "$T/token" "$T/token-before"
check "its certificate is revoked" seqctl nodes revoke c
both_say "its session ends at once" 'node.down node=c text="its certificate was revoked"' 'session.down'
says "seqctl nodes shows it" '^c +revoked .*its certificate is revoked: a new token' seqctl nodes
both_say "a revoked certificate" 'link.refused node=c .*\(serial [0-9a-f]+\) was revoked' 'session.refused .*\(serial [0-9a-f]+\) was revoked'
node_stops
crash
open_seqd
seqw_run c A "$AT_A"
both_say "also after kill -9 of seqd" 'link.refused node=c .*was revoked' 'session.refused .*was revoked'
node_stops
seqw_run c A "$AT_A" --join-token-file "$T/token-before"
both_say "a token that was made before the revocation" 'join.refused node=c .*was revoked at .*was made before that' 'join.refused .*was revoked at .*was made before that'
node_stops
refuse "there is nothing left to revoke" 3 'node c has no certificate' seqctl nodes revoke c
token --names c --ttl 10m
seqw_run c A "$AT_A" --join-token-file "$T/token"
check "a new token lets the name join again" up c
node_stops

# ---- a job over two nodes, and what is seen of it -----------------------------------------------
says_word() { grep -qaF -- "$1" "$T/packets"; }
capture_start() {
    "$T/capture" "$T/packets" >"$T/capture.out" 2>&1 &
    OTHERS=$!
    until_ok 50 grep -qx up "$T/capture.out" || bad "the capture" "$T/capture.out"
}
capture_end() { kill -TERM $OTHERS; wait $OTHERS; OTHERS=; }
seqw_run a A "$AT_A"; A=$W
check "both nodes are up again" up a
check "node b came back by itself" up b
capture_start
cat >"$T/spec.json" <<JSON
{"kind": "train", "name": "quincunx-name", "labels": {"team": "marzipan-label"},
 "model": {"config": $LLAMA},
 "data": {"train": [{"path": "$T/data/text.txt", "format": "text"}], "seq_len": 256},
 "parallel": {"strategy": "rsa", "sp": 4}, "train": {"steps": 10, "global_batch": 2},
 "optim": {"lr": 0.002}, "limits": {"restarts": 0}, "resources": {"ranks": 4, "threads": 1}, "seed": 3}
JSON
id=$(seqctl submit "$T/spec.json" -o name -q) || bad "a job is taken"
succeeds "a job over two nodes" "$id" && ok "a job over two nodes"
same "it ran on both" "$(seqctl show "$id" -o json | tr -d ' \n' | grep -o '"node":"[ab]","first_rank"' | sort -u | wc -l)" 2
same "the effective spec says that ranks encrypt" "$(field "$id" spec_effective.parallel.tls)" true
seqctl logs "$id" >/dev/null
capture_end
[ "$(stat -c %s "$T/packets")" -gt 100000 ] && ok "the capture has $(stat -c %s "$T/packets") bytes" || bad "the capture is too small"
seen=
for word in quincunx marzipan hidden_size global_batch optim.lr text.txt "$T" 'struct ' include rank= seqj_; do
    says_word "$word" && seen="$seen $word"
done
[ -z "$seen" ] && ok "no word of it was seen" || bad "seen:$seen"
# The same eyes see a plain one.
kill -TERM "$A" "$B"; wait "$A" "$B" 2>/dev/null
stops "$SEQD_PID" || bad "seqd stops"
capture_start
seqd_run --node-address insecure:0.0.0.0:7434
says "seqd warns of it" 'seqd.insecure .*can take any node' cat "$SEQD_LOG"
seqw_run a A "insecure:$AT_A"; A=$W
seqw_run b B "insecure:$AT_B"; B=$W
until_ok 200 n_up 2 || bad "plain nodes"
id=$(seqctl submit "$T/spec.json" -o name -q) && succeeds "a plain job" "$id"
capture_end
says_word quincunx-name && ok "a plain session is seen" || bad "the capture sees nothing"

# ---- the end -------------------------------------------------------------------------------------
kill -TERM "$A" "$B"; wait "$A" "$B" 2>/dev/null
check "seqd stops" stops "$SEQD_PID"
SEQD_PID=
check "nothing is left running" until_ok 50 nothing_left
lib_end
