#!/usr/bin/env bash
# Checks the format of the sources with the version of clang-format that deploy/deps names: other
# versions break lines elsewhere. Tables between the comments "clang-format off" and "clang-format on"
# are exempt. It also checks that no line of a comment has more than 100 columns, which clang-format
# does not; exempt are a URL alone on its line and the "sources:" line of a fuzzer.
#   tests/format.sh           print the files that differ, exit 1 where there are any
#   tests/format.sh --write   format them
set -u
cd "$(dirname "$0")/.."
want=$(deploy/deps --format)
of_version() { "$1" --version 2>/dev/null | grep -qE "version $want\."; }
for tool in "clang-format-$want" clang-format ''; do of_version "$tool" && break; done
if [ -z "$tool" ]; then
    echo "format: clang-format $want is not installed: the format of the sources is not checked"
    [ -z "${1:-}" ]
    exit
fi
sources() { git ls-files -z '*.c' '*.h' '*.cu' '*.cuh' '*.cc' '*.inc'; }
if [ "${1:-}" = --write ]; then sources | xargs -0 "$tool" -i; exit; fi
bad=$(sources | xargs -0 -P "$(nproc)" -n 40 "$tool" --dry-run 2>&1 | sed -nE 's/^([^:]+):([0-9]+):.*/\1:\2/p' | sort -u -t: -k1,1)
wide=$(sources | xargs -0 awk '
    FNR == 1 { off = inside = 0 }
    /clang-format off/ { off = 1 }
    /clang-format on/ { off = 0 }
    { code = $0; gsub(/"([^"\\]|\\.)*"/, "", code); comment = inside || code ~ /\/\*|^ *\/\// }
    code ~ /\/\*/ { inside = 1 }
    code ~ /\*\// { inside = 0 }
    comment && !off && length > 100 && !/^[ *\/]*https?:[^ ]*$/ && !/^\/\* sources: / {
        print FILENAME ":" FNR
    }')
[ -z "$bad$wide" ] && exit 0
[ -n "$bad" ] && printf 'format: %s is not as `make format` writes it\n' $bad
[ -n "$wide" ] && printf 'format: %s is a comment of more than 100 columns\n' $wide
exit 1
