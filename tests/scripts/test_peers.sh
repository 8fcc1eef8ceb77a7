#!/usr/bin/env bash
# tests/bench/peers.py, with no peer installed and with programs that print canned lines: which it
# runs, in which order and under which conditions, its ratios and their spread, what it keeps.
# tests: needs bench @python3 @cc
set -u
cd "$(dirname "$0")/../.."
if ! command -v python3 >/dev/null || ! command -v cc >/dev/null; then
    echo "left out: there is no python3 or no cc here"
    echo "peers: 0 passed, 0 failed"
    exit 0
fi
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
export PYTHONDONTWRITEBYTECODE=1 T
unset PEERS_PYTHON LD_PRELOAD BENCH_CORES CC
export PEERS_ALLOCATOR=libc
passed=0 failed=0
is() { # NAME COMMAND...
    local name=$1; shift
    if "$@"; then passed=$((passed + 1)); echo "ok   $name"
    else failed=$((failed + 1)); echo "FAIL $name"; fi
}
says() { grep -qF -- "$1" "$T/out" || { cat "$T/out"; return 1; }; } # TEXT
# A program of ours: says in $T/order that it ran, in $T/seen under which conditions, and prints the
# next line of its own canned ones.
ours() { # NAME LINE...
    local name=$1; shift
    printf '%s\n' "$@" >"$T/$name.lines"
    cat >"$T/bench/$name" <<'EOF'
#!/bin/sh
name=$(basename "$0")
echo "$name $*" >>"$T/order"
cores=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
echo "ours cores=$cores BENCH_CORES=$BENCH_CORES BENCH_THREADS=$BENCH_THREADS preload=$LD_PRELOAD" >>"$T/seen"
sed -n "$(grep -c "^$name" "$T/order")p" "$T/$name.lines" | tr ';' '\n'
EOF
    chmod +x "$T/bench/$name"
}
# The peers' programs: the same in Python, by their first argument and those after the third.
peer() { # torch-FIRST-LAST... LINE...
    local name=$1; shift
    printf '%s\n' "$@" >"$T/$name.lines"
}
mkdir "$T/bench" "$T/peers" "$T/none"
cat >"$T/peers/peer_torch.py" <<'EOF'
import ctypes, os, sys
T, env = os.environ["T"], os.environ
name = "-".join(["torch", sys.argv[1], *(sys.argv[4:] or sys.argv[-1:])])
with open("/proc/self/status") as f: status = dict(line.split(":", 1) for line in f)
untied = getattr(ctypes.CDLL(None), "mkl_serv_intel_cpu_true", lambda: "no")()
with open(T + "/seen", "a") as f:
    print("peer cores=" + status["Cpus_allowed_list"].strip(), "BENCH_CORES=" + env["BENCH_CORES"],
          "GOMP=" + env["GOMP_CPU_AFFINITY"], f"untied={untied}",
          "preload=" + env.get("LD_PRELOAD", ""), file=f)
with open(T + "/order", "a") as f: print(name, file=f)
with open(T + "/order") as f: n = f.read().split("\n").count(name)
with open(f"{T}/{name}.lines") as f: print(f.read().split("\n")[n - 1].replace(";", "\n"))
EOF
echo "vendor_id	: GenuineIntel" >"$T/intel"
echo "vendor_id	: AuthenticAMD" >"$T/amd"
echo "CPU implementer	: 0x41" >"$T/arm"
cpu=intel
peers() {
    : >"$T/order"; : >"$T/seen"
    tests/bench/peers.py --cpuinfo "$T/$cpu" --bench "$T/bench" --peers "$T/peers" "$@" >"$T/out" 2>&1
}
order() { diff <(printf '%s\n' "$@") "$T/order"; }

# ---- nothing is installed ------------------------------------------------------------------------

for module in torch transformers llama_cpp; do echo 'raise ImportError' >"$T/none/$module.py"; done
bare() { PYTHONPATH=$T/none tests/bench/peers.py --rounds 1 --cpuinfo "$T/intel" --bench "$T/bench" "$@" >"$T/out" 2>&1; }
is "without programs and peers it ends well" bare
is "without PyTorch it says that it is not installed" says 'peer_torch.py train 1024 fp32 plain eager: not installed'
is "likewise gloo, which is PyTorch's" says 'peer_torch.py gloo: not installed'
is "likewise transformers" says 'peer_infer.py transformers 2048 fp32: not installed'
is "likewise llama.cpp" says 'peer_infer.py llama.cpp 2048 bf16: not installed'
is "likewise ours" says 'bench_train 124m 1024 fp32: not installed'
refuses() { ! bare no-such-row && says 'no row has all of these words'; }
is "a word that no row has is an error" refuses
sources() {
    python3 - <<'EOF'
import os, sys
sys.path.insert(0, "tests/bench")
import peers
names = [row.name for row in peers.all_rows()]
assert len(names) == len(set(names)), "two rows have one name"
for row in peers.all_rows():
    ours = row.ours[0] if row.ours[0].endswith(".py") else row.ours[0] + ".c"
    for program in [ours] + [peer[0] for peer in row.peers]:
        assert os.path.exists("tests/bench/" + program), program
    if ours.endswith(".py"):
        continue  # a job: seqd binds its ranks
    with open("tests/bench/" + ours) as f:
        assert "pin_open();" in f.read(), row.ours[0] + " binds no threads"
EOF
}
is "every row has programs that are in the tree, and a name of its own" sources

# ---- canned lines --------------------------------------------------------------------------------

both() { # MS: the two lines of attention that its programs print
    echo "{\"bench\":\"kernels\",\"op\":\"attn_fwd\",\"dtype\":\"bf16\",\"shape\":\"$shape\",\"threads\":2,\"of_peak\":0.5,\"ms\":$1};{\"bench\":\"kernels\",\"op\":\"attn_both\",\"dtype\":\"bf16\",\"shape\":\"$shape\",\"threads\":2,\"of_peak\":0.$2,\"ms\":$1}"
}
shape="Tq 4096 S 4096 H 12/12 D 64 causal"
ours bench_kernels "$(both 10 60)" "$(both 8 70)" "$(both 12 65)"
peer torch-attention-64 "$(both 20 0)" "$(both 24 0)" "$(both 24 0)"
is "three rounds" peers --keep "$T/kept" bf16 attention "D 64"
is "ours and the peer take turns, once in a round for both rows" order \
    "bench_kernels attn bf16 $shape 2t" torch-attention-64 "bench_kernels attn bf16 $shape 2t" \
    torch-attention-64 "bench_kernels attn bf16 $shape 2t" torch-attention-64
is "a time's ratio is the peer's over ours: median, smallest and largest" says '2.00 (2.00 to 3.00)'
is "medians of both sides" says '"ours": {"median": 10, "low": 8, "high": 12}, "peer": {"median": 24, "low": 20, "high": 24}'
is "the share of the limit is that of the best rate" says '"share": 0.7,'
cp "$T/out" "$T/before"
again() { peers --keep "$T/kept" bf16 attention "D 64" && cmp -s "$T/out" "$T/before" && [ ! -s "$T/order" ]; }
is "what was kept is not run again, and the table is the same" again
cut_off() { # the last run is lost in the middle of its line
    head -c -20 "$T/kept" >"$T/cut"; peers --keep "$T/cut" bf16 attention "D 64"; }
peer torch-attention-64 "$(both 24 0)"
is "a run that was cut off" cut_off
is "continues with what it lacks" order torch-attention-64
is "and has the same table" cmp -s "$T/out" "$T/before"

step() { echo "{\"bench\":\"train\",\"seq_len\":1024,\"precision\":\"fp32\",\"way\":\"1 rank x 2 threads\",\"tokens_s\":$1}"; }
ours bench_train "$(step 300)" "$(step 330)"
peer torch-train-plain-eager "$(step 100)"
peer torch-train-plain-compile "$(step 150)" "$(step 200)"
is "two peers" peers --rounds 2 train fp32 1024
is "the slower one is not run again" order "bench_train 124m 1024 fp32" torch-train-plain-eager \
    torch-train-plain-compile "bench_train 124m 1024 fp32" torch-train-plain-compile
is "a rate's ratio is ours over the faster peer's" says '1.82 (1.65 to 2.00)'
is "which is named" says '"fastest": "peer_torch.py train 1024 fp32 plain compile"'
peer torch-train-plain-compile 'no line' 'no line'
is "a peer without lines" peers --rounds 2 train fp32 1024
is "is reported" says 'peer_torch.py train 1024 fp32 plain compile: failed'
is "and the other one counts" says '3.00 (3.00 to 3.00)'

sized() { echo "{\"bench\":\"train\",\"seq_len\":1024,\"precision\":\"fp32\",\"way\":\"1 rank x 2 threads\",\"of_peak\":0.5,\"tokens_s\":$1,\"peak_mib\":$2}"; }
ours bench_train "$(sized 300 2000)"
peer torch-train-plain-eager "$(sized 100 4000)"
peer torch-train-plain-compile "$(sized 200 3000)"
is "memory" peers --rounds 1 memory fp32 1024
is "comes from the lines of the same trainings" order "bench_train 124m 1024 fp32" \
    torch-train-plain-eager torch-train-plain-compile
is "its ratio is that of the peer that has the least" says '1.50 (1.50 to 1.50)'
is "which is named, too" says '"fastest": "peer_torch.py train 1024 fp32 plain compile"'
is "it is no share of a limit" says '"share": null'
is "memory in rounds" peers --rounds 3 memory fp32 1024
is "has one" order "bench_train 124m 1024 fp32" torch-train-plain-eager torch-train-plain-compile

brain() { step "$1" | sed 's/fp32/bf16/'; }
ours bench_train "$(brain 300)" "$(brain 300)"
peer torch-train-autocast-eager "$(brain 100)"
peer torch-train-autocast-compile "$(brain 190)" "$(brain 180)"
peer torch-train-weights-eager "$(brain 120)"
peer torch-train-weights-compile "$(brain 200)" "$(brain 240)"
is "bf16" peers --rounds 2 train bf16 1024
is "has PyTorch's autocast and its bf16 weights, each eager and compiled" order \
    "bench_train 124m 1024 bf16" torch-train-autocast-eager torch-train-autocast-compile \
    torch-train-weights-eager torch-train-weights-compile "bench_train 124m 1024 bf16" \
    torch-train-autocast-compile torch-train-weights-compile
is "the fastest counts" says '"fastest": "peer_torch.py train 1024 bf16 weights compile"'
is "and is compared with" says '1.38 (1.25 to 1.50)'
figure() { grep -qE -- "^    $1 +$2 tokens/s +rounds: $3" "$T/out" || { cat "$T/out"; return 1; }; } # NAME FIGURE ROUNDS
is "each setting's figure is printed" figure 'peer_torch.py train 1024 bf16 autocast eager' 100 1
is "with its rounds" figure 'peer_torch.py train 1024 bf16 autocast compile' 185 2
is "the slow ones' too" figure 'peer_torch.py train 1024 bf16 weights eager' 120 1
is "and as JSON" says '"peer_torch.py train 1024 bf16 weights compile": {"median": 220'

# ---- turns ---------------------------------------------------------------------------------------

mkdir "$T/turns"
cat >"$T/turns/peer_torch.py" <<'EOF'
import os, sys
T, name = os.environ["T"], sys.argv[1] if sys.argv[1] == "bench_train" else sys.argv[-1]
def say(text):
    with open(T + "/order", "a") as f: print(text, file=f)
say("start " + name)
if name == os.environ.get("GONE"): sys.exit(77)
print('{"ready": 1}', flush=True)
with open(f"{T}/{name}.lines") as f: lines = f.read().split("\n")
for turn, _ in enumerate(sys.stdin):
    if not lines[turn]: sys.exit(3)
    say(name)
    print(lines[turn], flush=True)
say("end " + name)
EOF
printf '#!/bin/sh\nexec python3 "$T/turns/peer_torch.py" bench_train\n' >"$T/turns/bench_train"
chmod +x "$T/turns/bench_train"
gone() { GONE=compile turns "$@"; }
turns() { peers --bench "$T/turns" --peers "$T/turns" --turns "$@"; }
peer bench_train "$(step 300)" "$(step 330)" "$(step 400)"
peer eager "$(step 100)"
peer compile "$(step 150)" "$(step 200)" "$(step 400)"
is "in turns" turns --rounds 3 train fp32 1024
is "each program starts once, and the slower peer ends when it is left out" order "start bench_train" \
    bench_train "start eager" eager "start compile" compile "end eager" bench_train compile \
    bench_train compile "end bench_train" "end compile"
is "a round is a step of each" says '1.65 (1.00 to 2.00)'
peer bench_train "$(step 300)"
peer compile "$(step 150)"
is "a program that ends too early" turns --rounds 2 train fp32 1024
is "is reported" says 'bench_train 124m 1024 fp32: failed'
is "a peer that is not installed" gone --rounds 1 train fp32 1024
is "is reported, too" says 'peer_torch.py train 1024 fp32 plain compile: not installed'
is "sets of words" peers --list train 1024 , memory 1024 bf16
is "add their rows" diff <(printf '%s\n' "train 124M fp32 S 1024" "train 124M bf16 S 1024" "memory 124M bf16 S 1024") "$T/out"

product() { echo "{\"bench\":\"kernels\",\"op\":\"gemm_$1\",\"dtype\":\"fp32\",\"shape\":\"$2\",\"threads\":2,\"of_peak\":$3,\"ms\":$4}"; }
a="M 4096 N 2048 K 768" b="M 4096 N 768 K 2048"
ours bench_kernels "$(product y "$a" 0.9 10);$(product dx "$b" 0.4 10)"
peer torch-products-fp32 "$(product y "$a" 0 40);$(product dx "$b" 0 10)"
is "products" peers --rounds 1 product fp32
is "have a geometric mean of ratios and of shares" says 'products fp32: geometric mean of 2: ratio 2.00 (goal 1.05), share of limit 0.6'
is "a shape that no program has is named" says 'bench_kernels ten fp32 2t: no such line'

decode() { # TOKENS_S LIMIT_RATE SHARE; 500 MB a token
    echo "{\"bench\":\"decode\",\"seq_len\":2048,\"way\":\"1 rank x 2 threads\",\"precision\":\"fp32\",\"threads\":2,\"tokens_s\":$1,\"rate\":$(($1 / 2)),\"unit\":\"GB/s\",\"limit\":\"DRAM\",\"limit_rate\":$2,\"of_limit\":$3}"
}
ours bench_infer "$(decode 60 50 0.6)" "$(decode 64 40 0.8)" "$(decode 50 60 0.417)"
sed 's/\["torch", .*\]/["infer", sys.argv[1]]/' "$T/peers/peer_torch.py" >"$T/peers/peer_infer.py"
peer infer-transformers "$(decode 30 0 0)" "$(decode 32 0 0)" "$(decode 50 0 0)"
peer infer-llama.cpp '' '' ''
is "decode" peers decode fp32
is "is compared in each round" says '2.00 (1.00 to 2.00)'
is "its limit is printed with the threads that measured it" says 'beside each round by 2 threads: 60.0 GB/s of DRAM (40.0 to 60.0); ours 32.0'
is "its share is that of the largest limit of all rounds, not of a round's" grep -qE 'to 2\.00\) +0\.53 ' "$T/out"
is "and as JSON" says '"limit": {"of": "DRAM", "unit": "GB/s", "threads": 2, "median": 50, "low": 40, "high": 60, "ours": 32}'
is "a row whose lines do not have their limit's rate prints none" grep -q '"limit": null' "$T/before"

# ---- conditions of both sides --------------------------------------------------------------------

ours bench_train "$(step 300)"
peer torch-train-plain-eager "$(step 100)"
peer torch-train-plain-compile "$(step 100)"
one() { peers --rounds 1 "$@" train fp32 1024; }
seen() { [ "$(grep -c "^$1 .*$2" "$T/seen")" -eq "$3" ] || { cat "$T/seen"; return 1; }; } # SIDE EXPRESSION COUNT
printf '#!/bin/sh\ntouch "$T/compiled"\nexec cc "$@"\n' >"$T/compiler"; chmod +x "$T/compiler"
export CC=$T/compiler
is "on a processor of Intel's" one
is "MKL is as it is" seen peer 'untied=no' 2
is "and no library is built" test ! -e "$T/compiled"
is "which the table says" says 'MKL of peers: as it is, on this processor (GenuineIntel)'
cpu=arm
is "on a processor that is not x86" one
is "likewise" test ! -e "$T/compiled"
cpu=amd
is "on a processor of AMD's" one
is "a library is built" test -e "$T/compiled"
is "which tells MKL in every setting that it is Intel's" seen peer 'untied=1' 2
is "and is removed" test ! -e "$(sed -n '/^peer/{s/.*preload=//p;q}' "$T/seen")"
is "which the table says" says 'MKL of peers: untied; a preloaded library answers that this processor (AuthenticAMD) is Intel'
is "and a line of JSON" says '"untied": true, "vendor": "AuthenticAMD"'
export CC=false
is "without a compiler" one
is "MKL is tied" seen peer 'untied=no' 2
is "and the table says that ratios are too good" says 'MKL of peers: TIED, so that ratios are too good'
unset CC
cpu=intel
echo 'int fake_allocator(void) { return 1; }' >"$T/a.c"; cc -shared -fPIC -o "$T/a.so" "$T/a.c"
export PEERS_ALLOCATOR=$T/a.so
is "with an allocator" one
is "ours has it" seen ours "preload=$T/a.so" 1
is "every peer has it" seen peer "preload=$T/a.so" 2
is "and the table names it" says "both sides: allocator $T/a.so"
lacks() { ! PEERS_ALLOCATOR=$T/none.so one && says "PEERS_ALLOCATOR: $T/none.so does not exist"; }
is "one that does not exist is an error" lacks
export PEERS_ALLOCATOR=libc
is "with that of libc" one
is "neither side has another" seen '[a-z]*' 'preload=$' 3
cores=$(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0))[:2])')
is "threads of ours have these cores" seen ours "BENCH_CORES=$cores BENCH_THREADS=2" 1
is "threads of peers have the same" seen peer "BENCH_CORES=$cores GOMP=$cores" 2
confined() {
    python3 - "$T/seen" $cores <<'EOF'
import re, sys
want = set(map(int, sys.argv[2:]))
for line in open(sys.argv[1]):
    got = set()
    for part in re.search("cores=([0-9,-]+)", line)[1].split(","):
        low, _, high = part.partition("-")
        got |= set(range(int(low), int(high or low) + 1))
    assert got == want, line
EOF
}
is "both sides have no other core" confined
alone() { # as above, of one core
    : >"$T/order"; : >"$T/seen"
    python3 - --cpuinfo "$T/intel" --bench "$T/bench" --peers "$T/peers" --rounds 1 train fp32 1024 >"$T/out" <<'EOF'
import sys
sys.path.insert(0, "tests/bench")
import conditions
conditions.CORES = 1
import peers
peers.main()
EOF
    seen '[a-z]*' "cores=${cores%% *} BENCH_CORES=${cores%% *} " 3
}
is "nor where a machine has more" alone
bound() {
    BENCH_CORES=$cores python3 - <<'EOF'
import os, sys
from unittest.mock import MagicMock
sys.modules.update({name: MagicMock() for name in ("torch", "torch.nn", "torch.nn.functional")})
sys.path.insert(0, "tests/bench")
import peer_torch
peer_torch.rounds_of, peer_torch.report = lambda run, n: [1.0], lambda *line: None
cores = [int(core) for core in os.environ["BENCH_CORES"].split()]
for rank in range(4):
    peer_torch.exchange(rank, 4, 0)
    assert os.sched_getaffinity(0) == {cores[rank % len(cores)]}, rank
EOF
}
is "a rank of gloo has one of them" bound
twice() { one --keep "$T/conditions" && one --keep "$T/conditions" && [ ! -s "$T/order" ]; }
is "results are kept" twice
PEERS_ALLOCATOR=$T/a.so one --keep "$T/conditions"
is "and are not taken for those of another allocator" order "bench_train 124m 1024 fp32" \
    torch-train-plain-eager torch-train-plain-compile

# ---- threads of ours -----------------------------------------------------------------------------

cat >"$T/pin.c" <<'EOF'
#include "tests/bench/pin.h"
/* Prints the core that a thread is bound to; -1: several. */
static void *show(void *arg)
{
    cpu_set_t set;
    int core = -1;
    sched_getaffinity(0, sizeof set, &set);
    if (CPU_COUNT(&set) == 1)
        while (!CPU_ISSET(++core, &set)) {}
    printf("%s %d\n", (const char *)arg, core);
    return NULL;
}
static void start(void)
{
    pthread_t id;
    if (pthread_create(&id, NULL, show, "worker")) exit(2);
    pthread_join(id, NULL);
}
int main(void)
{
    pin_open();
    for (int rank = 0; rank < 2; rank++) {
        pin_rank(rank);
        show("rank");
        start(), start();
    }
    return 0;
}
EOF
pins() { BENCH_CORES=$1 "$T/pin" >"$T/out" 2>&1; }
at() { diff <(printf '%s\n' "$@") "$T/out"; }
two() { pins "$1 $2" && at "rank $1" "worker $2" "worker $2" "rank $2" "worker $1" "worker $1"; }
is "a program with pin.h" cc -std=c11 -D_GNU_SOURCE -I. -Wall -Werror -Wno-unused-function -o "$T/pin" "$T/pin.c" -lpthread
set -- $cores
if [ $# -eq 2 ]; then is "a rank and its pool have a core each" two "$1" "$2"; fi
wrong() { ! pins "$1 4000" && says 'BENCH_CORES: "4000" is not a list of cores'; }
is "a core that cannot be is an error" wrong "$1"
echo "peers: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
