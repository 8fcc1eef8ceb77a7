#!/usr/bin/env bash
# tests/paper/run.sh PROGRAM DIR: the report, with plots where there is gnuplot. PROGRAM's status.
set -u
program=$1 dir=$2
mkdir -p "$dir"
"$program" "$dir"; rc=$?
plots=$(cd "$(dirname "$0")" && pwd)/plots.gp
why=
if ! command -v gnuplot >/dev/null 2>&1; then why="gnuplot is not installed"
elif ! (cd "$dir" && gnuplot "$plots"); then why="gnuplot failed"; fi
if [ -z "$why" ]; then echo "$dir/REPORT.md, with plots"
else
    sed -i '/^!\[.*\.png)$/d' "$dir/REPORT.md"
    printf '\nNo plots: %s. The numbers for them are in the .dat files beside this.\n' "$why" >>"$dir/REPORT.md"
    echo "$dir/REPORT.md, without plots: $why"
fi
exit "$rc"
