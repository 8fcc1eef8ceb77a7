#!/usr/bin/env bash
# tests/scripts/tree.sh [PATH ...]: prints the files of the tree, or of these files and folders, a
# line each: those that git has and those that it would take; without git, all but build/.
# tests: not kept: it reads the whole tree
set -u
cd "$(dirname "$0")/../.." || exit 2
git ls-files --cached --others --exclude-standard -- "$@" 2>/dev/null ||
    find "${@:-.}" \( -path ./build -o -path ./.git \) -prune -o -type f -print | sed 's#^\./##'
