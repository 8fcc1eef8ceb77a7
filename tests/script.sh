#!/usr/bin/env bash
# Runs a script of tests/scripts in a domain of Landlock, where it can read only the files that it
# declares. If its result is kept (tests/kept.sh), prints that instead.
#   tests/script.sh tests/scripts/NAME.sh [ARG...]
#   BUILD=build/release
#   ALONE=1        the script runs, and no result is kept
#   SCRIPTS=FILE   gets a line: UTC-SECONDS of the kept result, or 0 when the script ran
set -u
cd "$(dirname "$0")/.." || exit 2
mode=${BUILD:-build/release}
mode=${mode#build/} name=${1##*/} name=${name%.sh}
note() { echo "$1" >>"${SCRIPTS:-/dev/null}"; }

! grep -qs " ${PART:-$name} " tests/unstable.txt || ALONE=1
since=$(mktemp)
log=$(mktemp)
trap 'rm -f "$log" "$since"' EXIT
if ! key=$(tests/kept.sh key "$mode" "$@"); then note 0; "$@"; exit; fi
if [ -z "${ALONE:-}" ] && kept=$(tests/kept.sh take "$key"); then
    note "${kept% *}"
    echo "$name: ${kept#* } passed, 0 failed (kept from $(date -d "@${kept% *}" '+%F %H:%M'))"
    exit 0
fi
note 0
# The domain cannot read programs in the user's home: take them out of PATH, so that the system's are found.
PATH=$(tr : '\n' <<<"$PATH" | grep -vE "^(${HOME:-/nonexistent}|/home|/root)(/|\$)" | paste -sd :)
"build/$mode/confine" . $(tests/kept.sh needs "$mode" "$1") -- "$@" 2>&1 | tee "$log"; rc=${PIPESTATUS[0]}
line=$(grep -aoE '[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
if [ "$rc" -eq 0 ] && [ "${line##*, }" = "0 failed" ]; then
    [ -n "${ALONE:-}" ] || tests/kept.sh keep "$key" "${line%% *}" "$log" "$mode" "$1" "$since"
else
    tests/kept.sh drop "$key"
    ! grep -aq 'Permission denied' "$log" ||
        echo "$1 could read no file of the tree but those of its line \"tests: needs ...\" (tests/README.md)"
fi
exit "$rc"
