#!/usr/bin/env bash
# Keeps the results of tests: a test that has passed is not run again while nothing that it depends on
# has changed. A test names the files of the tree that it reads in a line "tests: needs PATH...", and runs
# in a domain of Landlock in which it can read these alone (tests/confine.c). TEST is the name of a test
# program, or the path of a script of tests/scripts. A script may also need @NAME, a program of the system.
# A script with a line "tests: not kept: REASON" always runs, without a domain.
#   tests/kept.sh key MODE TEST [ARG...] prints a digest of all that the test depends on; exit 1: not kept
#   tests/kept.sh needs MODE TEST        prints the paths that it may read; exit 1: one is missing
#   tests/kept.sh take KEY               prints "UTC-SECONDS PASSED"; exit 1: there is none
#   tests/kept.sh keep KEY PASSED LOG MODE TEST SINCE
#                                        keeps a result, unless the log says that something was left out, or
#                                        a file that the test may read is newer than the file SINCE
#   tests/kept.sh drop KEY               forgets the result of a test that has failed
#   tests/kept.sh tidy                   removes results that are too old
#   tests/kept.sh system                 prints a digest of the machine: KEPT_SYSTEM for many keys
# Results lie in ${XDG_CACHE_HOME:-~/.cache}/seqd/passed for 14 days. FRESH=1: take finds none.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
folder=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/seqd/passed
days=14

# Prints the digest of a file or folder. A program or library counts without debug information and
# revision: a change of a comment does not change its digest.
digest() {
    local out rc=0 debug=--strip-all
    if [ -d "$1" ]; then find "$1" -type f ! -path '*/__pycache__/*' -print0 | LC_ALL=C sort -z | xargs -0r sha256sum | sha256sum; return; fi
    case $(head -c 4 "$1" | tr -d '\0') in ?ELF | '!<ar') ;; *) sha256sum <"$1"; return ;; esac
    out=$(mktemp) || return 1
    [ "${1%.a}" = "$1" ] || debug=--strip-debug
    objcopy $debug -R .note.gnu.build-id "$1" "$out" 2>/dev/null || rc=1
    if [ $debug = --strip-debug ]; then ar d "$out" version.o 2>/dev/null || rc=1 # version.o has the revision
    elif readelf -SW "$out" 2>/dev/null | grep ' \.seqd\.revision ' >/dev/null; then
        objcopy --update-section .seqd.revision=<(head -c 160 /dev/zero) "$out" 2>/dev/null || rc=1
    fi
    [ "$rc" -ne 0 ] || sha256sum <"$out" || rc=1
    rm -f "$out"
    return $rc
}

# Prints a script and the files that it sources.
scripts() { echo "$1"; sed -nE 's/^ *\. (tests\/[^ ]+\.sh).*/\1/p' "$1"; }
comment() { awk 'NR > 1 && !/^#/ { exit } 1' "$1"; } # prints the first comment of a script

declared() { # TEST: prints the needs that the test declares, with those of the files that it sources
    local file
    case $1 in
    tests/*) for file in $(scripts "$1"); do comment "$file" | sed -n 's/^# tests: needs //p'; done ;;
    *) cat tests/*/"$1.c" | sed -nE 's#^(/\*| \*) tests: needs ([^*]*).*#\2#p' ;;
    esac
}

needs() { # MODE TEST
    local word rc=0
    for word in $(declared "$2"); do
        case $word in @*) continue ;; esac
        if [ -e "tests/$word" ]; then echo "tests/$word"
        elif [ -e "build/$1/$word" ]; then echo "build/$1/$word"
        elif [ -e "$word" ]; then echo "$word"
        else echo "$2: tests: needs $word: it is not in tests/, build/$1/ or the tree" >&2; rc=1; fi
    done
    case $2 in tests/*) scripts "$2" ;; esac
    [ "$1" != tsan ] || echo tests/tsan.supp
    return $rc
}

system() {
    local limits=/sys/fs/cgroup
    { uname -srm; id -u; nproc; ulimit -a; cat $limits/memory.max $limits/cpu.max $limits/pids.max
      grep -m 1 -E '^(flags|Features)' /proc/cpuinfo; grep -m 1 'model name' /proc/cpuinfo
      sha256sum /var/lib/dpkg/status; ldconfig -p
      cat tests/run.sh tests/script.sh tests/again.sh tests/kept.sh tests/confine.c; } 2>/dev/null | sha256sum | cut -d ' ' -f 1
}

# Prints the libraries that a program loads: a library outside the system's packages can change, too.
libraries() { { ldd "$1" 2>/dev/null | grep -oE '/[^ ]+' | xargs -r stat -L -c '%n %s %Y'; } || true; }

program() { # NAME: prints path, size and time of a program of the system and of its libraries
    local path
    path=$(command -v "$1") || { echo "no $1"; return; }
    stat -L -c '%n %s %Y' "$path"; libraries "$path"
}

# programs prints the programs of the system that a script needs. at_home tells whether one lies in the
# user's home, which cannot be read in the domain.
programs() { declared "$1" | xargs -n 1 | sed -n 's/^@//p'; } # TEST
at_home() { # TEST
    local word path
    for word in $(programs "$1"); do
        path=$(command -v "$word") && case $(readlink -f "$path") in "${HOME:-/nonexistent}"/*) return 0 ;; esac
    done
    return 1
}

kept_here() { # MODE TEST
    local scratch
    case $PWD/ in /tmp/* | "${TMPDIR:-/tmp}"/*) return 1 ;; esac # a test may read all of /tmp, where its scratch lies
    scratch=$(realpath "${TMPDIR:-/tmp}")/ || return 1
    case $scratch in "/$(cut -d / -f 2 <<<"$PWD")/"* | /home/* | /root/* | "${HOME:-/nonexistent}"/*) return 1 ;; esac # a test may not read these
    case $2 in tests/scripts/*) ! comment "$2" | grep '^# tests: not kept: ' >/dev/null && ! at_home "$2" || return 1 ;; tests/*) return 1 ;; esac
    [ "$1" != mutants ] && [ -z "${SEQD_TEST_DEVICE:-}" ] && [ -x "build/$1/confine" ] && "build/$1/confine"
}

key() { # MODE TEST [ARG...]
    local tested='' paths path text word
    kept_here "$1" "$2" && command -v objcopy >/dev/null && paths=$(needs "$1" "$2" 2>/dev/null) || return 1
    case $2 in tests/*) ;; *) tested=build/$1/tests/$2 ;; esac
    text=$(
        echo "$*"; echo "${KEPT_SYSTEM:-$(system)}"
        env | grep -E '^(SEQD_|NCCL_|[A-Z]*SAN_OPTIONS=|LC_|LANG|TZ|PATH=|USER=|CC=|PATIENCE=|KILL_ROUNDS=|JOBS_BEFORE=|STEPS=|SLURM_|CUDA_|PICTURES=|WATCHDOG=|[a-zA-Z]*_(proxy|PROXY)=)' | sed "s#$PWD#.#g" | LC_ALL=C sort
        for path in $tested $paths; do
            echo "${path#build/"$1"/}"; digest "$path" || exit 1
            [ ! -f "$path" ] || libraries "$path"
        done
        for word in $(programs "$2"); do program "$word"; done
    ) || return 1
    sha256sum <<<"$text" | cut -d ' ' -f 1
}

# Tells whether the file and its folder belong to this user: another user could claim that a test has passed.
ours() { [ -O "$folder" ] && [ -O "$folder/$1" ] && [ ! -L "$folder/$1" ] && [ -f "$folder/$1" ]; }

take() { # KEY
    local now then passed
    [ -z "${FRESH:-}" ] && ours "$1" && read -r then passed <"$folder/$1" || return 1
    [[ $then =~ ^[0-9]+$ && $passed =~ ^[1-9][0-9]*$ ]] || return 1
    now=$(date +%s)
    [ "$then" -le "$now" ] && [ $((now - then)) -lt $((days * 86400)) ] && echo "$then $passed"
}

keep() { # KEY PASSED LOG MODE TEST SINCE
    local tested=build/$4/tests/$5
    [ -e "$tested" ] || tested=
    [ -z "$(find $tested $(needs "$4" "$5") -newer "$6" -print -quit 2>&1)" ] || return 1
    [ "$2" -gt 0 ] && ! grep -av '^ok ' "$3" | grep -E 'left out|SKIPPED|NOT RUN' >/dev/null || return 1
    (umask 077 && mkdir -p "$folder" && chmod 700 "$folder") && [ -O "$folder" ] || return 1
    echo "$(date +%s) $2" >"$folder/.$1.$$" && mv "$folder/.$1.$$" "$folder/$1"
}

tidy() { [ ! -O "$folder" ] || find "$folder" -type f -user "$(id -u)" -mtime +$days -delete; }
drop() { rm -f "$folder/$1"; } # KEY

case ${1:-} in
key | needs | take | keep | drop | tidy | system) "$@" ;;
*) sed -n '2,17s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
