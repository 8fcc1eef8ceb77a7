#!/usr/bin/env bash
# How clients reach seqd: https with a certificate of its own authority, renewed while a job is
# watched, and the Unix socket; what is refused, and what it says.
#   BUILD=build/release   KEEP=1 keeps the state directory
# tests: needs @curl @openssl
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
. tests/scripts/nets.sh
lib_start tls
SPEC="{\"kind\": \"train\", \"model\": {\"config\": $LLAMA}, \"data\": {\"train\": [{\"path\": \"text.txt\", \"format\": \"text\"}], \"seq_len\": 256}, \"resources\": {\"ranks\": 1, \"threads\": 1}, \"train\": {\"steps\": 30}}"
make_text 100000 >"$T/data/text.txt"
printf '%s' "$SPEC" >"$T/data/job.json"

certificate() { # SERIAL NAMES: of the authority "ca", put where seqd has it, both at once
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=seqd -keyout "$T/next.key" -out "$T/next.csr" 2>/dev/null &&
        openssl x509 -req -in "$T/next.csr" -CA "$T/ca.pem" -CAkey "$T/ca.key" -set_serial "$1" -days 2 \
            -extfile <(echo "subjectAltName=$2") -out "$T/next.pem" 2>/dev/null &&
        mv "$T/next.key" "$T/tls/key.pem" && mv "$T/next.pem" "$T/tls/cert.pem"
}
serial() { openssl s_client -connect "$1" </dev/null 2>/dev/null | openssl x509 -noout -serial | cut -d = -f 2; }
is_served() { [ "$((16#$(serial "$1")))" -eq "$2" ]; }

mkdir "$T/tls"
authority ca && authority other && certificate 17 "DNS:localhost,IP:127.0.0.1" || { bad "certificates are made"; lib_end; exit 1; }

# ---- what does not start ----------------------------------------------------------------------
no_start() { refuse "$1" 1 "$2" timeout 20 "$BIN/seqd" --state "$T/other" "${@:3}"; }
no_start "every address, plain" 'tls-cert.*tls-by-proxy' --listen 0.0.0.0:0
no_start "a certificate without a key" 'tls-key' --listen 127.0.0.1:0 --tls-cert "$T/tls/cert.pem"
no_start "the key of another certificate" 'is not the key of' --listen 127.0.0.1:0 --tls-cert "$T/tls/cert.pem" --tls-key "$T/other.key"
no_start "a certificate that is not there" 'nowhere.pem' --listen 127.0.0.1:0 --tls-cert "$T/nowhere.pem" --tls-key "$T/tls/key.pem"
no_start "metrics at no address" '--metrics-listen: 127.0.0.1: write host:port' --listen 127.0.0.1:0 --metrics-listen 127.0.0.1

# ---- https ------------------------------------------------------------------------------------
seqd_start --metrics-listen 127.0.0.1:0 --tls-cert "$T/tls/cert.pem" --tls-key "$T/tls/key.pem" || { lib_end; exit 1; }
ok "seqd starts with TLS, and its state directory leads to the Unix socket"
url=$(cat "$STATE/address"); at=${url#https://}
says "address" '^https://127.0.0.1:' cat "$STATE/address"
refuse "a socket that is not there" 1 "unix:$STATE/none.sock" seqctl ls --url "unix:$STATE/none.sock"
export SEQD_URL=$url SEQD_TOKEN_FILE=$STATE/token
refuse "an authority that the system does not know" 1 'not trusted.*--ca FILE' seqctl ls
refuse "another authority" 1 'not trusted' seqctl ls --ca "$T/other.pem"
refuse "no authority at all" 1 'PEM' seqctl ls --ca "$T/tls/key.pem"
says "--ca" 'no jobs' seqctl ls --ca "$T/ca.pem"
export SEQD_CA=$T/ca.pem
says "SEQD_CA" 'no jobs' seqctl ls
check "login" sh -c '"$1" login "$2" --ca "$3" <"$4"' - "$BIN/seqctl" "$url" "$T/ca.pem" "$STATE/token"
says "it keeps the authority" 'no jobs' env -u SEQD_CA -u SEQD_TOKEN_FILE -u SEQD_URL "$BIN/seqctl" ls
says "servers as JSON lines" '"url": "https://.*"current": true' seqctl contexts -o jsonl
says "servers by name" '^https://' seqctl contexts -o name
refuse "http where https is spoken" 1 'https://' seqctl ls --url "http://$at"
# Metrics alone, without TLS and a token.
scrape=$(sed -nE 's/.* http.metrics url=([^ ]*) .*/\1/p' "$T"/seqd.*.log | head -n 1)
says "metrics for a monitoring system" '^seqd_nodes' curl -sS "$scrape"
same "and nothing else" "$(curl -sS -o /dev/null -w '%{http_code}' "${scrape%/metrics}/v1/jobs") $(curl -sS -o /dev/null -w '%{http_code}' "${scrape%/metrics}/livez") $(curl -sS -X POST -o /dev/null -w '%{http_code}' "$scrape")" "404 404 405"
same "a token opens nothing there" "$(curl -sS -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $(cat "$STATE/token")" "${scrape%/metrics}/v1/jobs")" 404
same "with a token where REST is" "$(curl -sS -o /dev/null -w '%{http_code}' --cacert "$T/ca.pem" "$url/metrics")" 401
says "curl" '"ok"' curl -sS --cacert "$T/ca.pem" "$url/livez"

# ---- a job, and certificates that change meanwhile --------------------------------------------
id=$(seqctl submit job.json -o name -q)
check "submit over TLS" test "$id" -gt 0
(cd "$T/data" && exec "$BIN/seqctl" watch "$id" --timeout $((100 * PATIENCE))) >"$T/watched" 2>&1 &
watch=$!
certificate 18 "DNS:localhost,IP:127.0.0.1"
check "a new certificate is served" until_ok 100 is_served "$at" 18
echo nonsense >"$T/tls/cert.pem"
lib_said() { grep -q "$1" "$SEQD_LOG"; }
check "a file that is no certificate is named" until_ok 100 lib_said 'http.certificate.*error='
check "the one before it is served" is_served "$at" 18
certificate 19 "DNS:localhost,IP:127.0.0.1"
check "the next one is served" until_ok 100 is_served "$at" 19
check "the job is watched to its end" wait "$watch"
says "watch, a line a step" 'step 30  loss' cat "$T/watched"
says "logs over TLS" '.' seqctl logs "$id"
says "the job through the socket" '^succeeded' "$BIN/seqctl" show "$id" --field state --url "unix:$STATE/seqd.sock"

certificate 20 DNS:seqd.example
check "one for another name is served" until_ok 100 is_served "$at" 20
refuse "a name that the certificate lacks" 1 'not trusted' seqctl ls

# SIGHUP, which ends seqd --dev as its terminal's end does.
"$BIN/seqd" --state "$T/other" --listen 127.0.0.1:0 --tls-cert "$T/tls/cert.pem" --tls-key "$T/tls/key.pem" >"$T/other.log" 2>&1 &
other=$!
check "seqd without --dev" until_ok 100 grep -q seqd.ready "$T/other.log"
kill -HUP "$other"
check "reads the files on SIGHUP, though nothing has changed" until_ok 100 sh -c 'test "$(grep -c "http.certificate.*expires" "$1")" -eq 2' - "$T/other.log"
check "and serves" curl -sSk "$(cat "$T/other/address")/livez"
check "until it is stopped" stops "$other"

# ---- the socket -------------------------------------------------------------------------------
crash
check "kill -9 leaves the socket" test -S "$STATE/seqd.sock"
export SEQD_URL=$STATE; unset SEQD_TOKEN_FILE
seqd_start --socket "$T/r.sock" && ok "another path"
says "it answers there" 'succeeded' "$BIN/seqctl" ls --url "unix:$T/r.sock"
check "every user may open it" test "$(stat -c %a "$T/r.sock")" = 666
refuse "a path in use" 1 'another seqd' timeout 20 "$BIN/seqd" --state "$T/other" --listen 127.0.0.1:0 --socket "$T/r.sock"
check "it still answers" "$BIN/seqctl" ls --url "unix:$T/r.sock"
crash
seqd_start --socket "$T/r.sock" && ok "what a dead seqd left is replaced"
check "seqd stops" seqd_stop
check "and removes it" test ! -e "$T/r.sock"
lib_end
