#!/usr/bin/env bash
# Refuses the phrases of tests/words.txt in every document, in openapi.yaml, and in the sources of
# the folders below. A folder joins the list when it is clean and never leaves it.
#   tests/scripts/words.sh            the check
#   tests/scripts/words.sh FOLDER     what a folder would have to change
set -u
cd "$(dirname "$0")/../.." || exit 2
clean='api client deploy kernels tests/agent tests/api tests/bench tests/client tests/core tests/device tests/engine tests/fuzz tests/lib tests/mutants tests/nccl tests/net tests/nvml worker/agent worker/ckpt worker/comm worker/data worker/family worker/gang worker/hf worker/infer worker/model worker/plan worker/program worker/rank worker/sp worker/train worker/verify'

files() {
    if [ $# -gt 0 ]; then find "$@" -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cc' -o -name '*.inc' -o -name '*.sh' -o -name '*.proto' -o -name '*.sql' \); return; fi
    find . -path ./build -prune -o -path ./.git -prune -o -name '*.md' -print | sed 's#^\./##'
    echo api/openapi.yaml
    # shellcheck disable=SC2086
    files $clean
}

found=0 n=0
list=$(files "$@" | sort)
while IFS=$(printf '\t') read -r phrase use; do
    case $phrase in '#'* | '') continue ;; esac
    n=$((n + 1))
    # shellcheck disable=SC2086
    if hits=$(grep -nHiE -- "$phrase" $list); then
        printf '%s\n' "$hits" | cut -c 1-180
        echo "     instead: $use"
        found=$((found + $(printf '%s\n' "$hits" | wc -l)))
    fi
done <tests/words.txt
echo "words: $n phrases, $found found in $(printf '%s\n' "$list" | wc -l) files"
[ "$found" -eq 0 ]
