#!/usr/bin/env bash
# seqctl as people use it: progress, names, several jobs at once, templates, terminals.
#   BUILD=build/release   KEEP=1 keeps the state directory
# tests: needs client/examples @script
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/lib/lib.sh
lib_start people
EXAMPLES=$PWD/client/examples

RING='"parallel": {"strategy": "rsa", "sp": 2}, "resources": {"ranks": 2, "threads": 1}'
TRAIN="{\"kind\": \"train\", \"name\": \"people\", \"model\": {\"config\": $LLAMA}, \"data\": {\"train\": [{\"path\": \"text.txt\", \"format\": \"text\"}], \"seq_len\": 128}, $RING, \"train\": {\"steps\": 20}, \"checkpoint\": {\"every_steps\": 10}, \"seed\": 1}"
submit() { printf '%s' "$TRAIN" | seqctl submit - "$@"; }
on_terminal() { # COMMAND LINE: its output on a terminal of 80 columns
    env -C "$T/data" TERM=xterm script -qec "stty cols ${COLUMNS_OF:-80} rows 24; $1" /dev/null </dev/null
}
state_is() { [ "$(field "$1" state)" = "$2" ]; }

make_text 100000 >"$T/data/text.txt"
make_text 3000 >"$T/data/held.txt"
seqd_start || { lib_end; exit 1; }

# ---- one status line ----------------------------------------------------------------------------
: >"$T/waited"
submit --wait --set train.steps=100000 2>"$T/waited" >"$T/id" & waiting=$!
until_ok 600 grep -qE 'running  [0-9]+%  [0-9,]+ of 100,000 steps  .* (tokens|steps)/s  ETA .*  loss [0-9.]+$' "$T/waited" &&
    ok "submit --wait in a pipe: a training's line" || bad "submit --wait: no line" "$T/waited"
long=$(sed -n 's/^job \([0-9]*\) .*/\1/p' "$T/id" | head -n 1)
on_terminal "timeout -s INT 6 $BIN/seqctl watch $long" >"$T/watched" 2>&1
says "watch on a terminal: the same line, in place" 'done     [0-9]+%  [0-9,]+ of 100,000 steps  .*ETA .*loss' cat "$T/watched"
check "cancel it" seqctl cancel "$long" --wait --timeout $((60 * PATIENCE))
wait "$waiting"; same "submit --wait ends as the job does" $? 11

mkdir -p "$T/data/client/examples"; cp "$EXAMPLES"/*.jsonl "$T/data/client/examples"
# Every kind of job counts, and ends at 100 %.
done_job=$(submit -q -o name) && succeeds "train" "$done_job"
hf=$(field "$done_job" result.hf)
for kind in train verify score generate embed batch sample; do
    case $kind in
        train) spec=$TRAIN ;;
        verify) spec=${TRAIN/\"kind\": \"train\"/\"kind\": \"verify\"} ;;
        score | embed) spec="{\"kind\": \"$kind\", \"model\": {\"path\": \"$hf\"}, \"input\": {\"path\": \"held.txt\", \"format\": \"text\"}, \"data\": {\"seq_len\": 4096}, $RING}" ;;
        batch) spec=$(cat "$EXAMPLES/generate-batch.json") ;;
        generate) spec="{\"kind\": \"generate\", \"model\": {\"path\": \"$hf\"}, \"input\": {\"prompt\": \"static int \"}, \"sampling\": {\"temperature\": 0, \"max_tokens\": 8}, $RING}" ;;
        sample) spec=$(cat "$EXAMPLES/sample-tiny.json") ;;
    esac
    one=$(printf '%s' "$spec" | seqctl submit - -q -o name --wait --timeout $((120 * PATIENCE)) 2>"$T/out")
    says "$kind ends at 100 %" '^progress +100%  [0-9]' seqctl show "${one:-0}"
done

# ---- names, filters -----------------------------------------------------------------------------
for k in 1 2 3; do printf '%s' "$TRAIN" | seqctl submit - -q -o name --name "night run" --set 'labels={"team": "x"}' --set train.steps=100000 --set resources.ranks=8 --set parallel.sp=8 >"$T/id.$k"; done
one=$(cat "$T/id.1") two=$(cat "$T/id.2") three=$(cat "$T/id.3")
refuse "a name of several live jobs" 4 "several live jobs: $three .*, $one" seqctl show "night run"
check "two ids" seqctl cancel "$one" "$two" --wait --timeout $((60 * PATIENCE))
same "the name is the last one's" "$(field "night run" id)" "$three"
same "ls --name" "$(seqctl ls --name "night run" -o name | tr '\n' ' ')" "$three $two $one "
same "ls --label and --state" "$(seqctl ls -l team=x --state cancelled -o name | tr '\n' ' ')" "$two $one "
says "ls of another label" 'no jobs' seqctl ls -l team=y
submit -q --name "night run" --set 'labels={"team": "x"}' --set train.steps=100000 >/dev/null
refuse "a filter takes two, and there is no terminal" 2 '2 jobs match: add --yes' seqctl cancel -l team=x </dev/null
says "with --yes" 'cancelled 2 of 2' seqctl cancel -l team=x --yes
team_ended() { [ -z "$(seqctl ls -l team=x --state running,starting,stopping -o name -q)" ]; }
check "both have ended" until_ok 300 team_ended
says "the newest that ended" "^job +$((three + 1)) " seqctl show "night run"

# ---- specs --------------------------------------------------------------------------------------
mkdir -p "$T/data/data"; cp "$T/data/text.txt" "$T/data/data/a.txt"; cp "$T/data/held.txt" "$T/data/data/held-out.txt"
cp "$EXAMPLES/documents.jsonl" "$T/data/data/documents.jsonl"
for kind in train score generate embed verify; do
    check "init $kind" seqctl init "$kind" "$kind.yaml"
    [ "$kind" = generate ] || says "init says what to fill in: $kind" 'path: data/.*# fill in: ' seqctl init "$kind"
    made=$(seqctl submit "$kind.yaml" --wait -q -o name --timeout $((120 * PATIENCE)) 2>"$T/out") && ok "submit takes it as it is: $kind" || bad "submit $kind.yaml" "$T/out"
done
says "ls has the result of a score" 'score +succeeded .*loss [0-9.]+, perplexity [0-9.]+' seqctl ls
says "ls has the result of a verify" 'verify +succeeded .*[0-9]+ ranks == 1 rank' seqctl ls
says "ls has the result of a training" 'train +succeeded .*loss [0-9.]+, .*tokens/s' seqctl ls
says "ls has the result of an embed" 'embed +succeeded .*vectors of [0-9]+ numbers' seqctl ls
refuse "init does not replace a file" 1 'train\.yaml cannot be made: File exists' seqctl init train train.yaml
refuse "init of a merge" 2 'seqctl merge ID' seqctl init merge
refuse "init of no kind" 2 'did you mean train' seqctl init tran
says "YAML from stdin, --unset" '"seq_len": 512' sh -c "cd '$T/data' && '$BIN/seqctl' init train | '$BIN/seqctl' submit - --dry-run --unset labels --unset schedule.type -o json"
refuse "--unset of nothing" 1 '^seqctl: --unset train\.stps: there is no such field' seqctl plan train.yaml --unset train.stps
printf 'kind: train\nkind: score\n' >"$T/data/twice.yaml"
refuse "line and column" 1 'twice\.yaml: line 2, column 1: "kind" is there twice' seqctl plan twice.yaml
says "-o yaml of a job" '^state: succeeded$' seqctl show "$made" -o yaml
says "-o yaml of a list" '^- id: [0-9]+$' seqctl ls -o yaml
same "a job in YAML is a spec again" "$(seqctl show "$made" -o json --field spec_effective | seqctl plan - -o yaml | grep -c '^plan:')" 1
same "-o csv of a list" "$(seqctl ls --limit 3 -o csv | sed -n '1s/,.*//p;$=' | tr '\n' ' ')" "id 4 "
same "metrics --last" "$(seqctl metrics my-training --last 3 -o jsonl | grep -o '"step": [0-9]*' | tr '\n' ' ')" '"step": 198 "step": 199 "step": 200 '
same "metrics --last beyond all" "$(seqctl metrics my-training --last 1000 -o name | wc -l)" 200
same "metrics as a table" "$(seqctl metrics my-training -o csv | sed -n '1s/,.*//p;$=' | tr '\n' ' ')" "step 201 "

# ---- terminals ----------------------------------------------------------------------------------
submit -q --name "日本語のとても長い名前です、ほんとうに長い" --set train.steps=1 >/dev/null
COLUMNS_OF=60 on_terminal "env -u NO_COLOR LC_ALL=C.UTF-8 $BIN/seqctl ls" >"$T/ls" 2>&1
says "ls on a terminal colours states" $'\033\\[32msucceeded\033\\[0m' cat "$T/ls"
width() { sed 's/\x1b\[[0-9;]*m//g; s/\r$//' "$T/ls" | LC_ALL=C.UTF-8 wc -L; }
same "ls is cut to the terminal" "$(width)" 60
on_terminal "env -u NO_COLOR LC_ALL=C.UTF-8 $BIN/seqctl ls" >"$T/ls" 2>&1
says "ls on 80 columns has WHY" ' AGE +WHY' cat "$T/ls"
same "and is 80 wide at most" "$(test "$(width)" -le 80 && echo yes)" yes
says "show has the outcome in a line" '^result       [0-9]+ ranks == 1 rank over [0-9]+ tokens$' seqctl show "$made"
says "of a training its loss and rate" '^result       loss [0-9.]+(, evaluation [0-9.]+)?, [0-9,.]+[kM]? tokens/s$' seqctl show my-training
says "-o wide is not cut" 'PRIORITY' seqctl ls -o wide
says "no colour in a pipe" '^ID +NAME' sh -c "'$BIN/seqctl' ls | grep -v \$'\\033'"

# ---- continue, retry ----------------------------------------------------------------------------
first=$(submit -q -o name) && succeeds "a training of 20 steps" "$first"
refuse "nothing is left to do" 2 'checkpoint of step 20, and train\.steps is 20' seqctl continue "$first"
cp "$T/data/held.txt" "$T/data/other.txt"
seqctl continue "$first" --set train.steps=30 --set optim.lr=0.0005 --set data.train.0.path=other.txt -o name --wait --timeout $((120 * PATIENCE)) >"$T/id" 2>"$T/said" && ok "continue with more steps, another rate and data" || bad "continue" "$T/said"
says "what changes is said" 'train\.steps +20 -> 30' cat "$T/said"
more=$(cat "$T/id")
same "it begins after the checkpoint" "$(seqctl metrics "$more" -o jsonl | head -n 1 | grep -o '"step": [0-9]*')" '"step": 21'
same "and ends" "$(field "$more" step)" 30
refuse "another model is refused at submit" 1 'model\.config\.num_attention_heads is 2, .*job:[0-9]*/step-20, .* which it is 4: leave it as it was' seqctl continue "$first" --set train.steps=30 --set model.config.num_attention_heads=2 --set model.config.num_key_value_heads=2 --wait --timeout $((120 * PATIENCE))
long=$(submit -q -o name --set train.steps=60 --set checkpoint.every_steps=2)
wait_event "$long" checkpoint 2; seqctl cancel "$long" --wait --timeout $((60 * PATIENCE)) >/dev/null 2>&1
again=$(seqctl retry "$long" -q -o name --wait --timeout $((120 * PATIENCE)) 2>"$T/out") && ok "retry a cancelled training" || bad "retry" "$T/out"
same "to its end" "$(field "$again" step)" 60
check "from its checkpoint" test "$(seqctl metrics "$again" -o jsonl | head -n 1 | grep -o '"step": [0-9]*' | grep -o '[0-9]*')" -gt 2
whole=$(submit -q -o name --set train.steps=60 --set checkpoint.every_steps=2) && succeeds "the same at once" "$whole"
same "the same weights" "$(field "$again" result.weights_sha256)" "$(field "$whole" result.weights_sha256)"
refuse "retry of a success" 4 'only one that failed' seqctl retry "$again"

# ---- several at once ----------------------------------------------------------------------------
printf '\037\213\010' >"$T/data/gz.txt"
printf '%s\n' "${TRAIN/text.txt/nowhere.txt}" "$TRAIN" >"$T/data/two.jsonl"
refuse "submit of two, one of which names no file" 1 'jobs\[0\]: data.train.0.path: .*nowhere.txt matches no file' seqctl submit two.jsonl
printf '%s\n' "${TRAIN/text.txt/gz.txt}" "$TRAIN" >"$T/data/two.jsonl"
seqctl submit two.jsonl --wait --timeout $((120 * PATIENCE)) -o jsonl >"$T/two" 2>"$T/said"
same "submit --wait of two: the exit code of the one that failed" $? 10
same "both have ended, in their order" "$(grep -o '"state": "[a-z]*"' "$T/two" | tr '\n' ' ')" '"state": "failed" "state": "succeeded" '
says "and each is said" '^job [0-9]+ succeeded' cat "$T/said"
refuse "--timeout is for both together" 124 'runs on' seqctl submit two.jsonl --wait --timeout 0
check "a --timeout with a unit" seqctl watch "$whole" -q --timeout 1m

# ---- completion ---------------------------------------------------------------------------------
same "ids that begin so" "$(seqctl completion words -- show 1 | head -n 1 | cut -c 1)" 1
same "names that begin so" "$(seqctl completion words -- show my-tr | sort -u)" my-training
same "a job to pull is no file" "$(seqctl completion words -- pull "" | grep -c :files)" 0
same "where it goes is one" "$(seqctl completion words -- pull 1 "")" :files
same "times that begin so" "$(seqctl completion words -- submit --timeout 3)" 30m
same "actions on nodes" "$(seqctl completion words -- nodes dr)" drain

seqd_stop; same "seqd ends well" $? 0
check "no program is left" until_ok 100 nothing_left
lib_end
