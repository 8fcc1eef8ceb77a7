#!/bin/sh
# Writes a man page from the text that a program prints with --help. For seqctl, adds the help of each verb.
#   deploy/man.sh PROGRAM PAGE      PAGE is seqctl.1, seqd.8 or seqw.8, and is written to stdout
set -eu
program=$1 page=$2
name=${page%.*} section=${page##*.}
case $name in
    seqctl) what='submit, plan, verify and watch jobs of seqd' ;;
    seqd) what='coordinator of jobs on long sequences' ;;
    seqw) what='agent of a node of seqd' ;;
    *) echo "man: no page is called $page" >&2; exit 2 ;;
esac
# Escapes text for roff, so that it is printed unchanged.
plain() { sed 's/\\/\\e/g; s/-/\\-/g; s/^\([.'"'"']\)/\\\&\1/'; }
block() { echo .nf; plain; echo .fi; }

echo ".\\\" Made by deploy/man.sh from the help of $name."
echo ".TH $(echo "$name" | tr a-z A-Z) $section \"\" \"$("$program" --version | sed -n 1p)\" seqd"
echo .SH NAME
echo "$name \\- $what"
echo .SH DESCRIPTION
"$program" --help | block
if [ "$name" = seqctl ]; then
    echo .SH VERBS
    "$program" help | sed -n 's/^  \([a-z]*\) .*/\1/p' | awk '!seen[$0]++' | while read -r verb; do
        "$program" help "$verb" >/dev/null 2>&1 || continue
        echo ".SS $verb"
        "$program" help "$verb" | block
    done
fi
if [ "$name" = seqd ]; then
    echo .SH RUN
    "$program" run --help | block
fi
echo .SH SEE ALSO
for other in seqctl.1 seqd.8 seqw.8; do
    [ "$other" = "$page" ] || printf '.BR %s (%s)\n' "${other%.*}" "${other##*.}"
done
