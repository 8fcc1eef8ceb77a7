#!/usr/bin/env bash
# The report in make check: it is written, every row has a kind and a result of that kind, the
# summary counts these rows, and no row passes with a count that is off by one.
set -u
cd "$(dirname "$0")/../.."
make -s build/release/paper || exit 1
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
fail() { echo "paper: $*"; exit 1; }
report() { # NAME [VARIABLE=VALUE]: the exit status; the rows in NAME.rows, as kind|result|claim
    mkdir -p "$out/$1"
    env SEQD_PAPER_QUICK=1 "${@:2}" build/release/paper "$out/$1" >"$out/$1.log"; local rc=$?
    awk -F ' [|] ' '/^## / { rest = /Neither run nor accounted for/ }
        /^\| / && !/^\| (kind|claim) / { sub(/^\| /, "", $1); sub(/ \|$/, "", $NF)
            if (rest) print NF "|" $1 "|" $2 "|" $3 "|" $4 >"'"$out/$1.rest"'"
            else print $1 "|" $8 "|" $2 }' "$out/$1/REPORT.md" >"$out/$1.rows"
    return $rc
}
rows() { grep -cE "$2" "$out/$1.rows"; } # NAME PATTERN
broken() { # NAME PATTERN: these rows are there as in the true report, and each is broken
    [ "$(rows true "$2")" -gt 0 ] && [ "$(rows "$1" "$2")" -eq "$(rows true "$2")" ] &&
        ! grep -E "$2" "$out/$1.rows" | grep -v BROKEN
}

report true & true=$!
report forward SEQD_PAPER_OFF_BY_ONE=0 & forward=$!
report backward SEQD_PAPER_OFF_BY_ONE=1 & backward=$!
wait $true || { cat "$out/true.log"; exit 1; }
for section in "memory of the weak scaling table" "the largest batch" \
    "bytes of a layer, counted" "Plan and high-water" "do not grow with the sequence" "The longest sequences" \
    "against each baseline" "Neither run nor accounted for"; do
    grep -q "^## .*$section" "$out/true/REPORT.md" || fail "no section \"$section\""
done

# Kinds: only counted and planned rows reproduce claims, and the summary counts no others.
any='^(counted|planned)\|(reproduced|different|holds)\||^account\|(agrees|different|no claim)\||^compared\|no claim\|'
! grep -vE "$any" "$out/true.rows" || fail "a row without a kind, or with a result of another kind"
for kind in counted planned; do
    line="$kind: $(rows true "^$kind") rows; $(rows true "^$kind.reproduced") reproduce a published claim,"
    line="$line $(rows true "^$kind.different") differ from one, $(rows true "^$kind.holds") hold"
    grep -qF -- "- $line" "$out/true/REPORT.md" || fail "the summary does not say \"$line\""
done
for line in "account: $(rows true '^account') rows; $(rows true '^account.agrees') agree with the published number within its precision, $(rows true '^account.different') differ" \
    "neither run nor accounted for: $(grep -c . "$out/true.rest") published claims" \
    "compared: $(rows true '^compared') rows, 0 broken"; do
    grep -qF -- "- $line" "$out/true/REPORT.md" || fail "the summary does not say \"$line\""
done
! grep -E '^\| account ' "$out/true/REPORT.md" | grep -vq '| fitted: ' || fail "an account without its constants"
[ "$(rows true '^counted')" -ge 60 ] && [ "$(rows true '^planned')" -ge 20 ] || fail "rows are missing"

# The longest sequences are found by search: LASP goes no farther than the ring, and no ratio is a
# power of two.
found() { # PATTERN: ours and the result of the row
    awk -F ' [|] ' -v row="$1" '/^\| planned / && index($2, row) { print $6, $8 }' "$out/true/REPORT.md"
}
[[ $(found "LASP to the blockwise ring") =~ ^0\.9[0-9]+" different"$ ]] ||
    fail "LASP to the blockwise ring: \"$(found "LASP to the blockwise ring")\""
[[ $(found "LASP to Ulysses") =~ ^5\.[0-9]+" different"$ ]] || fail "LASP to Ulysses: \"$(found "LASP to Ulysses")\""

# Baselines that tests and benches alone run.
[ "$(grep -c '^| counted | DSP to Megatron-SP,.*no job runs it' "$out/true/REPORT.md")" -eq \
    "$(rows true 'DSP to Megatron-SP,')" ] || fail "a row of Megatron-SP that passes for a job's"

# Claims without a row: each with a source, its words and the reason.
for claim in "2105.13120, abstract|27 times" "2403.10266, abstract|up to 10 times" "2404.02882, abstract|significantly faster"; do
    grep -qF "|$claim" "$out/true.rest" || fail "no row and no reason: $claim"
done
! grep -vE '^4(\|[^|]+){4}$' "$out/true.rest" || fail "a claim without its reason"

# Off by one. Forward: every count, and every number of switches. Backward: where it is counted.
! wait $forward || fail "counts that are off by one, and the report is good"
broken forward '^counted' || fail "a count that is off by one passes"
[ "$(rows forward '^planned.*BROKEN')" -eq 2 ] || fail "a number of switches that is off by one passes"
! wait $backward || fail "backward counts that are off by one, and the report is good"
broken backward 'sent by a rank for a layer' || fail "a backward count that is off by one passes"

# A section cannot make up evidence: the type is complete in evidence.c alone.
compiles() { printf '#include "tests/paper/report.h"\n%s\n' "$1" | ${CC:-cc} -std=gnu11 -I. -fsyntax-only -x c - 2>/dev/null; }
compiles 'extern struct evidence *e;' || fail "report.h does not compile alone"
! compiles 'struct evidence e = {COUNTED};' || fail "evidence can be made up"
[ "$(grep -lE 'struct evidence \{' tests/paper/*)" = tests/paper/evidence.c ] || fail "struct evidence is completed outside evidence.c"
