#!/usr/bin/env bash
# check-layers finds every kind of fault: in a copy of the product's sources, one at a time.
# tests: not kept: it copies the sources of the product
set -u
cd "$(dirname "$0")/../.."
copy=$(mktemp -d); trap 'rm -rf "$copy"' EXIT
passed=0 failed=0
cp -r api daemon worker kernels client "$copy"

# fault NAME FILE LINE WORDS: with LINE at the top of FILE the check fails, and says WORDS.
fault() {
    local name=$1 file=$2 line=$3 words=$4
    cp "$copy/$file" "$copy.kept"
    printf '%s\n' "$line" | cat - "$copy.kept" >"$copy/$file"
    if said=$(tests/check_layers.sh "$copy"); then said="it passed"; fi
    mv "$copy.kept" "$copy/$file"
    case $said in
    *"$words"*) passed=$((passed + 1)); echo "ok   $name" ;;
    *) failed=$((failed + 1)); echo "FAIL $name: $said" ;;
    esac
}
if tests/check_layers.sh "$copy"; then passed=$((passed + 1)); echo "ok   the tree as it is"
else failed=$((failed + 1)); echo "FAIL the tree as it is"; fi
fault "an edge in a .c" worker/gang/proc.c '#include "daemon/state/jobs.h"' 'worker/gang may not include daemon/state/jobs.h'
fault "an edge in a header" api/core/job.h '#  include "worker/plan/plan.h"' 'api/core may not include worker/plan/plan.h'
fault "an edge in a .cu" kernels/cuda/attn.cu '#include "worker/comm/comm.h"' 'kernels may not include worker/comm/comm.h'
fault "an edge in a .cc" kernels/cuda/emu.cc '#include "worker/comm/comm.h"' 'kernels may not include worker/comm/comm.h'
fault "an edge in a .inc" kernels/cpu/attn.inc '#include "worker/comm/comm.h"' 'kernels may not include worker/comm/comm.h'
fault "a header that is none" daemon/state/node.c '#include "jobs.h"' 'does not exist'
fault "another project's header" daemon/state/node.c '#include <sqlite3.h>' 'may not include sqlite3.h'
fault "a cycle of headers" daemon/state/event.h '#include "daemon/state/jobs.h"' 'a cycle of includes'
sed -i 's/#include "api\/[a-z_]*.h"//' "$copy"/worker/agent/*.[ch]
case $(tests/check_layers.sh "$copy") in
*'no source of worker/agent includes from api any more'*) passed=$((passed + 1)); echo "ok   a rule that nothing uses" ;;
*) failed=$((failed + 1)); echo "FAIL a rule that nothing uses" ;;
esac
echo "layers: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
