#!/usr/bin/env bash
# Runs the command blocks of the documents, in their order, in a copy of the tree, against the seqd
# --dev that they start themselves, and compares what they print with the text below them.
#
#   tests/scripts/docs.sh        the blocks marked ```sh, and every ```json as a plan
#   tests/scripts/docs.sh all    those marked ```sh slow as well
#                                make demo trains 60 steps, with FRESH=1 its 100
#   tests/scripts/docs.sh [all] FILE ...    of these documents only
#   tests/scripts/docs.sh --matches WANT GOT    the comparison alone
#
# ```sh by-hand is not run: it needs root, a GPU, several machines, a program of
# others, or is this check itself.
# `by_hand` below lists all such blocks. A ```text block that follows is what the commands print:
# `...` stands for any text, alone on a line for any lines; a number with a decimal point or an
# exponent, for any such number.
#   BUILD=build/release   KEEP=1 keeps the copy
# tests: not kept: it copies the whole tree
set -u
cd "$(dirname "$0")/../.." || exit 2
# Compares the output of a block with the text below it.
matches() { # WANT GOT
    awk '
        function plain(s) {
            gsub(/[0-9]+\.[0-9]+(e[-+]?[0-9]+)?|[0-9]+e[-+]?[0-9]+/, "#", s)
            gsub(/[ \t]+/, " ", s); sub(/ $/, "", s)
            return s
        }
        function fits(want, got,   re) {
            re = want
            gsub(/[][\\^$.*+?(){}|\/]/, "\\\\&", re)
            gsub(/\\\.\\\.\\\./, ".*", re)
            return got ~ ("^" re "$")
        }
        NR == FNR { want[++w] = plain($0); next }
        { got[++g] = plain($0) }
        END {
            at = 1 # the first line of got that is not used
            for (i = 1; i <= w; i = e + 1) {
                loose = 0
                while (i <= w && want[i] == "...") { loose = 1; i++ }
                for (e = i; e < w && want[e + 1] != "..."; ) e++
                if (i > w) { at = g + 1; break }
                last = e == w
                for (s = at; s <= g - (e - i); s++) {
                    if (last && s + e - i != g) { if (!loose) break; continue }
                    for (k = 0; k <= e - i && fits(want[i + k], got[s + k]); ) k++
                    if (k > e - i) break
                    if (k > best) { best = k; missed = want[i + k] }
                    if (!loose) { s = g + 1; break }
                }
                if (s > g - (e - i) || (last && s + e - i != g)) {
                    print "does not print: " (best ? missed : want[i]); exit 1
                }
                at = s + e - i + 1
            }
            if (at <= g && w && want[w] != "...") { print "prints as well: " got[at]; exit 1 }
        }' "$1" "$2"
}

if [ "${1:-}" = --matches ]; then matches "$2" "$3"; exit; fi

. tests/lib/lib.sh 2>/dev/null || . tests/lib.sh
all=
[ "${1:-}" != all ] || { all=all; shift; }
[ $# -gt 0 ] || set -- README.md api/JOBS.md deploy/README.md
# Document and first command.
by_hand='README.md make check
api/JOBS.md lm_eval --model local-completions --tasks arc_easy \
api/JOBS.md llama-quantize --allow-requantize --pure IN.gguf OUT.gguf Q8_0
deploy/README.md make
deploy/README.md seqd --state /var/lib/seqd --node-address 10.0.0.1:7434
deploy/README.md seqd --state /var/lib/seqd --listen 0.0.0.0:7433 --tls-cert /etc/seqd/cert.pem --tls-key /etc/seqd/key.pem
deploy/README.md seqctl submit job.json --wait
deploy/README.md (umask 077; head -c 32 /dev/urandom >key)
deploy/README.md seqctl nodes
deploy/README.md systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload
deploy/README.md seqctl tokens create --user ann --ttl 30d >ann.token
deploy/README.md seqctl backup seqd-monday.db
deploy/README.md seqctl --url unix:/run/seqd/seqd.sock tokens create --user ann >ann.token
deploy/README.md docker build -f deploy/container/Containerfile --target coordinator -t seqd:0.3.0 .
deploy/README.md seqctl nodes; seqctl usage; seqctl usage users
deploy/README.md seqctl nodes drain b --reason "memory errors"
deploy/README.md seqctl explain 7
deploy/README.md seqw --connect 10.0.0.1:7434 --state /var/lib/seqw --name gpu-1 --root /data --shared /mnt/lustre/seqd
deploy/README.md sbatch --nodes=2 --gpus-per-node=8 --cpus-per-task=32 --time=12:00:00 deploy/slurm/oneshot.sbatch train.json --root /data'
lib_start docs
mkdir -p "$T/tree/build" "$T/doc"
tests/scripts/tree.sh | grep -v '^tests/golden/' | tar -cf - -T - 2>/dev/null | tar -xf - -C "$T/tree"
ln -s "$BIN" "$T/tree/build/release"
free_port() {
    local p
    for p in $(shuf -i 20000-30000 -n 50); do (: <"/dev/tcp/127.0.0.1/$p") 2>/dev/null || { echo "$p"; return; }; done
}
PORT=$(free_port)
unset SEQD_URL
# make demo kills a rank at step 25; after 40 steps its loss is less than 1 % below the one that it asks for.
[ -n "${FRESH:-}" ] || export STEPS=60

# The blocks of a document: $T/doc/N.{sh,json}, N.kind ("sh", "sh slow" ...), N.at (line), N.want.
blocks() {
    rm -f "$T"/doc/*
    awk -v dir="$T/doc" '
        function put(name, text) { print text >(dir "/" n "." name) }
        /^```/ && !inside { inside = 1; word = substr($0, 4); body = ""; at = FNR; next }
        /^```/ {
            inside = 0
            if (word == "text" && follows) { printf "%s", body >(dir "/" n ".want"); close(dir "/" n ".want") }
            follows = word ~ /^sh/
            if (word !~ /^(sh|json)/) next
            n = sprintf("%03d", n + 1)
            put("kind", word); put("at", at)
            file = dir "/" n (word ~ /^sh/ ? ".sh" : ".json")
            printf "%s", body >file; close(file)
            next
        }
        inside { body = body $0 "\n"; next }
        NF { follows = 0 }' "$1"
}

# Runs block after block in one shell; a command that fails ends it.
play() { # the blocks' shell
    cd "$T/tree" || exit 1
    export TMPDIR=$T PATH=$BIN:$PATH XDG_CONFIG_HOME=$T/config
    trap '{ kill -INT $(jobs -p) && wait; } 2>/dev/null || true' EXIT
    set -e
    find "$T/doc" -name '*.sh' -o -name '*.json' | sort >"$T/list"
    while read -r f <&9; do
        n=${f%.*}
        [ -f "$n.skip" ] && continue
        case $f in
            *.json) "$BIN/seqctl" --url "http://127.0.0.1:$PORT" plan "$f" >"$n.out" 2>&1 ;;
            *) sed "s#/tmp/seqd#$T/state#g; s#localhost:7433#127.0.0.1:$PORT#g; s#^make demo#make -C $REPO -n demo >/dev/null \&\& (cd $REPO \&\& deploy/demo.sh)#
                s#/tmp/tiny#$T/tiny#g; s#^make\b#make -C $REPO#
                s#\(seqd --dev[^&]*\)&#\1 --listen 127.0.0.1:$PORT >$T/seqd.log 2>\&1 \&#" "$f" >"$n.run"
                # shellcheck disable=SC1090
                . "$n.run" >"$n.out" 2>&1 9<&- ;;
        esac
        echo done >"$n.done"
    done 9<"$T/list"
}

document() { # FILE
    local f n name kind
    rm -rf "$T/state"
    blocks "$1"
    for f in "$T"/doc/*.kind; do
        n=${f%.kind} kind=$(cat "$f")
        name="$1:$(cat "$n.at") $(grep -v '^export\|^ *#' "$n".[sj][hs]* | head -n 1 | sed 's/  *#.*//' | cut -c 1-60)"
        echo "$name" >"$n.name"
        case $kind in
            sh | json) ;;
            "sh slow") [ -n "$all" ] || { echo "left out of make check: $name"; : >"$n.skip"; } ;;
            "sh by-hand")
                : >"$n.skip"
                if printf '%s\n' "$by_hand" | grep -qxF "$1 $(head -n 1 "$n.sh" | sed 's/  *#.*//')"
                then echo "by hand: $name"; else bad "$name is by hand, and not in the list of this script"; fi ;;
            *) bad "$name: a block is \"sh\", \"sh slow\", \"sh by-hand\" or \"json\", not \"$kind\"" ;;
        esac
    done
    SEQD_URL="http://127.0.0.1:$PORT" NO_COLOR=1 bash -c "$(declare -f play); T=$T BIN=$BIN PORT=$PORT REPO=$PWD; play"
    for f in "$T"/doc/*.name; do
        n=${f%.name} name=$(cat "$f")
        [ -f "$n.skip" ] && continue
        if [ ! -f "$n.out" ]; then bad "$name: an earlier block failed"
        elif [ ! -f "$n.done" ]; then bad "$name: a command failed" "$n.out"
        elif [ -f "$n.want" ] && ! matches "$n.want" "$n.out" >"$T/out"; then cut -c 1-300 "$n.out" >>"$T/out"; bad "$name: $(head -n 1 "$T/out")" "$T/out"
        else ok "$name"; fi
    done
    until_ok 150 nothing_left || bad "$1: programs are left running"
}

for doc; do document "$doc"; done
check "README.md has at most 700 words" test "$(wc -w <README.md)" -le 700
lib_end
