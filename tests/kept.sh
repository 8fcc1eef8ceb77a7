#!/usr/bin/env bash
# Results that are kept: a test program that has passed is not run again while nothing that it depends
# on has changed. A test names the files of the tree that it reads in a line "tests: needs PATH...",
# and runs in a domain of Landlock in which it can read these alone (tests/confine.c).
#   tests/kept.sh key MODE PROGRAM       prints the digest of all of that; exit 1: no result is kept here
#   tests/kept.sh needs MODE PROGRAM     prints the paths that it may read; exit 1: one is missing
#   tests/kept.sh take KEY               prints "UTC-SECONDS PASSED"; exit 1: there is none
#   tests/kept.sh keep KEY PASSED LOG    keeps a result, unless the log says that something was left out
#   tests/kept.sh drop KEY               forgets it: the test has failed
#   tests/kept.sh tidy                   removes results that are too old
#   tests/kept.sh system                 prints a digest of the machine: KEPT_SYSTEM for many keys
# They lie in ${XDG_CACHE_HOME:-~/.cache}/seqd/passed, 14 days. FRESH=1: none is taken.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
folder=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/seqd/passed
days=14

# Prints the digest of a file; of a program only what is loaded: another revision or a comment, which
# moves debug information, is the same program.
digest() {
    local out rc=0
    if [ -d "$1" ]; then find "$1" -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum | sha256sum; return; fi
    if [ "$(head -c 4 "$1" | tail -c 3)" != ELF ]; then sha256sum <"$1"; return; fi
    out=$(mktemp) || return 1
    objcopy --strip-all -R .note.gnu.build-id "$1" "$out" 2>/dev/null || rc=1
    if readelf -SW "$out" 2>/dev/null | grep -q ' \.seqd\.revision '; then
        objcopy --update-section .seqd.revision=<(head -c 160 /dev/zero) "$out" 2>/dev/null || rc=1
    fi
    [ "$rc" -ne 0 ] || sha256sum <"$out" || rc=1
    rm -f "$out"
    return $rc
}

needs() { # MODE PROGRAM
    local word rc=0
    for word in $(cat tests/*/"$2.c" | sed -nE 's#^(/\*| \*) tests: needs ([^*]*).*#\2#p'); do
        if [ -e "tests/$word" ]; then echo "tests/$word"
        elif [ -e "build/$1/$word" ]; then echo "build/$1/$word"
        elif [ -e "$word" ]; then echo "$word"
        else echo "$2: tests: needs $word: it is not in tests/, build/$1/ or the tree" >&2; rc=1; fi
    done
    [ "$1" != tsan ] || echo tests/tsan.supp
    return $rc
}

system() {
    local limits=/sys/fs/cgroup
    { uname -srm; nproc; ulimit -a; cat $limits/memory.max $limits/cpu.max $limits/pids.max
      grep -m 1 -E '^(flags|Features)' /proc/cpuinfo; grep -m 1 'model name' /proc/cpuinfo
      sha256sum /var/lib/dpkg/status; ldconfig -p
      cat tests/run.sh tests/again.sh tests/kept.sh tests/confine.c; } 2>/dev/null | sha256sum | cut -d ' ' -f 1
}

# The libraries that a program loads: one that the system's list of packages does not know can change.
libraries() { { ldd "$1" 2>/dev/null | grep -oE '/[^ ]+' | xargs -r stat -L -c '%n %s %Y'; } || true; }

key() { # MODE PROGRAM
    local program=build/$1/tests/$2 paths path text
    case $PWD/ in /tmp/*) return 1 ;; esac # a test may read all of /tmp, where its scratch lies
    [ "$1" != mutants ] && [ -z "${SEQD_TEST_DEVICE:-}" ] && [ -x "build/$1/confine" ] && "build/$1/confine" || return 1
    command -v objcopy >/dev/null && paths=$(needs "$1" "$2" 2>/dev/null) || return 1
    text=$(
        echo "$1 $2"; echo "${KEPT_SYSTEM:-$(system)}"
        env | grep -E '^(SEQD_|NCCL_|[A-Z]*SAN_OPTIONS=|LC_|LANG|TZ|PATH=|USER=)' | sed "s#$PWD#.#g" | LC_ALL=C sort
        for path in "$program" $paths; do
            echo "${path#build/"$1"/}"; digest "$path" || exit 1
            [ ! -f "$path" ] || libraries "$path"
        done
    ) || return 1
    sha256sum <<<"$text" | cut -d ' ' -f 1
}

# A file of ours in a folder of ours: others could tell us that a test has passed.
ours() { [ -O "$folder" ] && [ -O "$folder/$1" ] && [ ! -L "$folder/$1" ] && [ -f "$folder/$1" ]; }

take() { # KEY
    local now then passed
    [ -z "${FRESH:-}" ] && ours "$1" && read -r then passed <"$folder/$1" || return 1
    [[ $then =~ ^[0-9]+$ && $passed =~ ^[1-9][0-9]*$ ]] || return 1
    now=$(date +%s)
    [ "$then" -le "$now" ] && [ $((now - then)) -lt $((days * 86400)) ] && echo "$then $passed"
}

keep() { # KEY PASSED LOG
    [ "$2" -gt 0 ] && ! grep -aqE 'left out|SKIPPED' "$3" || return 1
    (umask 077 && mkdir -p "$folder" && chmod 700 "$folder") && [ -O "$folder" ] || return 1
    echo "$(date +%s) $2" >"$folder/.$1.$$" && mv "$folder/.$1.$$" "$folder/$1"
}

tidy() { [ ! -O "$folder" ] || find "$folder" -type f -user "$(id -u)" -mtime +$days -delete; }
drop() { rm -f "$folder/$1"; } # KEY

case ${1:-} in
key | needs | take | keep | drop | tidy | system) "$@" ;;
*) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
