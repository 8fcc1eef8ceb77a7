#!/usr/bin/env bash
# make check's part of the report: it can be made, nothing in it is broken, and it has every section.
set -u
cd "$(dirname "$0")/../.."
make -s build/release/paper || exit 1
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
SEQD_PAPER_QUICK=1 build/release/paper "$out" >"$out/log" || { cat "$out/log"; exit 1; }
for section in "memory of the weak scaling table" "the largest batch" "bytes of a layer, counted" \
    "Plan and high-water" "do not grow with the sequence" "against each baseline" "Not reproducible"; do
    grep -q "^## .*$section" "$out/REPORT.md" || { echo "paper: no section \"$section\""; exit 1; }
done
[ "$(grep -c '| reproduced |' "$out/REPORT.md")" -ge 40 ]
