#!/usr/bin/env bash
# make help lists every public target; the README names both checks, and CI runs them.
# tests: not kept: it runs make
set -u
cd "$(dirname "$0")/../.."
copy=$(mktemp -d); trap 'rm -rf "$copy"' EXIT
passed=0 failed=0
is() { # NAME COMMAND...
    local name=$1; shift
    if "$@"; then passed=$((passed + 1)); echo "ok   $name"
    else failed=$((failed + 1)); echo "FAIL $name"; fi
}
# The first .PHONY of the Makefile has the public targets, the second those of rules and scripts.
asked() { sed -n '/^\.PHONY:/{:more; /\\$/{N; b more}; s/\\\n//g; s/^\.PHONY://p; q}' "$1" | xargs -n 1 | sort; }
listed() { make -s -f "$1" help | sed -nE 's/^  make ([a-z-]+) +.+/\1/p' | sort; }
complete() { diff <(asked "$1") <(listed "$1"); }
names() { grep -qE "make $2([^a-z-]|$)" "$1"; }

is "help lists what is asked for" complete Makefile
for target in check check-all; do
    is "help lists $target" grep -qx "$target" <(listed Makefile)
    is "README names make $target" names README.md "$target"
    is "CI runs make $target" names .ci/run "$target"
    sed "/^## $target: /d" Makefile >"$copy/Makefile"
    not_complete() { ! complete "$copy/Makefile" >/dev/null; }
    is "help without $target is found out" not_complete
done
echo "help: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
