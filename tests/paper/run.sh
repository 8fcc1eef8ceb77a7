#!/usr/bin/env bash
# tests/paper/run.sh PROGRAM DIR: the report, and its pictures where gnuplot is. Exit status of PROGRAM.
set -u
program=$1 dir=$2
mkdir -p "$dir"
"$program" "$dir"; rc=$?
plots=$(cd "$(dirname "$0")" && pwd)/plots.gp
if command -v gnuplot >/dev/null 2>&1 && (cd "$dir" && gnuplot "$plots"); then
    echo "$dir/REPORT.md, with plots"
else
    sed -i '/^!\[.*\.png)$/d' "$dir/REPORT.md"
    echo "
No plots: gnuplot is not installed here. The numbers behind them are in the .dat files beside this." \
        >>"$dir/REPORT.md"
    echo "$dir/REPORT.md, without plots: gnuplot is not installed"
fi
exit "$rc"
