#!/usr/bin/env bash
# The units of systemd. How exposed each is, where systemd-analyze is installed. Then the command of
# each under a stand-in for systemd (tests/manager): ready, watchdog, reload, restart under a running
# job, stop. Real systemd is not used.
#   BUILD=build/release   KEEP=1 keeps the state directory
# tests: needs manager deploy/systemd @systemd-analyze @curl
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start units
export SEQD_URL=$T/lib/seqd
mkdir -p "$T/etc" "$T/run" "$T/lib/seqd" "$T/lib/seqw"
${CC:-cc} -D_GNU_SOURCE -O1 -o "$T/manager" tests/manager/manager.c 2>"$T/out" || { bad "the stand-in compiles" "$T/out"; lib_end; exit 1; }

# ---- the files
exposure() { # UNIT: tenths, or nothing
    sed "s#@PREFIX@#/usr#" "deploy/systemd/$1.service" >"$T/$1.service"
    systemd-analyze security --offline=true --no-pager "$T/$1.service" 2>/dev/null |
        sed -nE 's/.*Overall exposure level.*: ([0-9]+)\.([0-9]).*/\1\2/p'
}
at_most() { # UNIT LIMIT
    local got; got=$(exposure "$1")
    if [ -n "$got" ] && [ "$got" -le "$2" ]; then ok "$1.service: exposure $((10#$got)) of at most $2 tenths"
    else bad "$1.service: exposure \"$got\" tenths, at most $2"; fi
}
if systemd-analyze security --help 2>/dev/null | grep -q -- --offline; then
    at_most seqd 25
    at_most seqw 40
else echo "left out: the exposure of the units: there is no systemd-analyze with security --offline here"; fi
if [ "$(ps -o comm= 1 2>/dev/null)" != systemd ]; then echo "left out: real systemd: it is not PID 1 here"; fi

# Every key that a shipped file names, also those in comments, is an option; and the file is right.
for p in seqd seqw; do
    check "$p.toml is right" "$BIN/$p" --config "deploy/systemd/$p.toml" --check-config
    sed -E 's/^# ([a-z-]+ = )/\1/' "deploy/systemd/$p.toml" >"$T/all.toml"
    check "$p.toml names options" "$BIN/$p" --config "$T/all.toml" --check-config
    printf 'slost = 3\n' >>"$T/all.toml"
    refuse "$p.toml with a wrong key" $([ $p = seqd ] && echo 1 || echo 2) 'unknown key slost: did you mean slots' "$BIN/$p" --config "$T/all.toml" --check-config
done

# ---- the commands, in this directory instead of the root
move() { sed -e "s#/etc/seqd#$T/etc#g; s#/var/lib#$T/lib#g; s#/run/seqd#$T/run#g; s#/srv/seqd#$T/data#g; s#@PREFIX@/bin#$BIN#g" \
    -e "s#^WatchdogSec=.*#WatchdogSec=${WATCHDOG:-8}#; s#127.0.0.1:7433#127.0.0.1:0#" "$1"; }
for p in seqd seqw; do
    move "deploy/systemd/$p.service" >"$T/$p.service"
    move "deploy/systemd/$p.toml" >"$T/etc/$p.toml"
done
declare -A MANAGER
unit_start() { # seqd|seqw: $T/UNIT.said has what it says, $T/UNIT.log its log
    "$T/manager" "$T/$1.service" "$T/lib/$1" "$T/run" 60 >"$T/$1.said" 2>>"$T/$1.log" &
    MANAGER[$1]=$!
    until_ok 200 said "$1" READY=1
}
said() { grep -qx -- "$2" "$T/$1.said"; }
logged() { grep -q -- "$2" "$T/$1.log"; }
n_said() { [ "$(grep -cx -- "$2" "$T/$1.said")" -ge "$3" ]; }
main_pid() { sed -n 's/^started //p' "$T/$1.said"; }
unit_stop() { # UNIT SIGNAL WORDS: and the last line is WORDS
    kill "-$2" "${MANAGER[$1]}"
    wait "${MANAGER[$1]}"
    [ "$(tail -n 1 "$T/$1.said")" = "$3" ]
}

check "seqd.service is ready" unit_start seqd
check "seqd.service tells its status" grep -q '^STATUS=http://127.0.0.1:' "$T/seqd.said"
check "the socket of nodes is its group's" [ "$(stat -c %a "$T/run/node.sock")" = 660 ]
check "seqw.service is ready" unit_start seqw
# The first token: of the socket, where the kernel says who asks.
curl -s --unix-socket "$T/run/seqd.sock" -H 'Content-Type: application/json' -d '{"user": "test", "role": "admin"}' \
    http://localhost/v1/tokens | sed -n 's/.*"token":"\([^"]*\)".*/\1/p' >"$T/token"
chmod 600 "$T/token"
export SEQD_TOKEN_FILE=$T/token
check "its session is up" until_ok 100 ready
check "seqd.service feeds its watchdog" until_ok 100 n_said seqd WATCHDOG=1 2
check "seqw.service feeds its watchdog" until_ok 100 n_said seqw WATCHDOG=1 2
check "seqw.service tells of its session" until_ok 100 grep -q '^STATUS=session with unix:' "$T/seqw.said"

# ---- reload
echo 'log = "debug"' >>"$T/etc/seqd.toml"
sed -i 's/^listen = .*/listen = "127.0.0.1:1"/' "$T/etc/seqd.toml"
kill -HUP "${MANAGER[seqd]}"
check "reload: it says that it reloads" until_ok 50 said seqd RELOADING=1
check "reload: and that it is ready again" until_ok 50 n_said seqd READY=1 2
check "reload: what may change has changed" logged seqd 'settings.changed key=log'
check "reload: what needs a restart is logged" logged seqd 'settings.restart key=listen'
check "reload: and nothing else" [ "$(grep -c 'settings\.\(changed\|restart\)' "$T/seqd.log")" -eq 2 ]
echo 'log = ' >>"$T/etc/seqd.toml"
kill -HUP "${MANAGER[seqd]}"
check "a broken file changes nothing, and it is logged" until_ok 50 logged seqd 'settings.kept.*seqd.toml:.*stay as they were'
check "and seqd is ready still" until_ok 50 n_said seqd READY=1 3
move deploy/systemd/seqd.toml >"$T/etc/seqd.toml"
echo 'orphan-ms = 5000' >>"$T/etc/seqw.toml"
kill -HUP "${MANAGER[seqw]}"
check "seqw reloads" until_ok 50 n_said seqw READY=1 2
check "seqw takes what may change" logged seqw 'settings.changed key=orphan-ms'

# ---- a restart of each under the running job
make_text 20000 >"$T/data/text.txt"
cat >"$T/data/job.json" <<JSON
{"kind": "train", "model": {"config": $LLAMA}, "data": {"train": [{"path": "text.txt", "format": "text"}], "seq_len": 256},
 "train": {"steps": 1500}, "resources": {"ranks": 2}}
JSON
ID=$(seqctl submit job.json -o name -q)
check "a job runs" wait_step "$ID" 2
gang=$(procs seqgang) epoch=$(field "$ID" epoch)
check "restart: seqw leaves" unit_stop seqw USR1 "exit 0"
same "restart: its gang runs on" "$(procs seqgang)" "$gang"
check "restart: seqd leaves" unit_stop seqd TERM "exit 0"
check "seqd said that it stops" said seqd STOPPING=1
check "restart: seqd is ready" unit_start seqd
check "restart: seqw is ready" unit_start seqw
check "the job ends well" succeeds restart "$ID"
same "in one attempt" "$(field "$ID" epoch)" "$epoch"

# ---- the watchdog
kill -STOP "$(main_pid seqd)"
check "a seqd that stands still is ended" until_ok 300 said seqd watchdog
wait "${MANAGER[seqd]}"
same "by SIGABRT" "$(tail -n 1 "$T/seqd.said")" "signal 6"
check "and starts again" unit_start seqd

# ---- stop
check "seqd.service stops" unit_stop seqd TERM "exit 0"
check "seqw.service stops" unit_stop seqw TERM "exit 0"
check "nothing is left" until_ok 50 nothing_left
lib_end
