#!/usr/bin/env python3
"""peers.py: seqd's benchmarks beside PyTorch, transformers, llama.cpp and gloo, in turn.

    tests/bench/peers.py [--rounds N] [--turns] [--keep FILE] [--list] [word ... [, word ...]]

Rows whose name has every word; a comma begins other words, whose rows are added; without words all.
A row compares lines of JSON: of one of our
programs in build/MODE/bench, or of a whole job (peer_embed.py), and of peer_*.py beside this file,
which prints the same fields. A round runs ours, then the peer's, so that what else the machine does
meets both; a program that has lines for several rows runs once in a round. The ratio of a row is
the median of those of its rounds (above 1: ours is faster, or smaller), with the smallest and the
largest. The fastest of several peers counts; one that is slower by a tenth in the first round is
not run again. A line of JSON follows each row,
then each peer's own figure. The share of a row is its best rate over the largest limit of all
rounds: a limit that was measured in a disturbed moment raises no share.

Both sides have the same cores, threads bound to them, and allocator (conditions.py). Peers need
packages that seqd does not (tests/README.md); a missing one is "not installed".

--rounds N     of each row, 3; memory has one, which all rounds would repeat
--turns        programs of a training stay loaded, and each waits while another one computes a step,
               so that a round is a step of each, without their starts and first steps (turns.h)
--keep FILE    lines are read from FILE and appended to it: a later run continues where one stopped;
               lines of other conditions are left aside
--bench DIR    our programs, build/release/bench
--peers DIR    peer_*.py, the folder of this file
--cpuinfo FILE names the processor's vendor, /proc/cpuinfo
PEERS_PYTHON   the Python that has the peers' packages, by default the one that runs this file
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

from conditions import CORES, Conditions

HERE = os.path.dirname(os.path.abspath(__file__))
NOT_INSTALLED = 77  # the exit status of a peer that lacks its packages
SLOWER = 0.9        # of the fastest peer's speed: not run again

# ---- rows ----------------------------------------------------------------------------------------


class Row:
    """what: fields of a line, of ours and of a peer's; field: the figure, as a key of the line;
    ours and peers: programs and their arguments; ours_only: fields that ours alone has."""

    def __init__(self, name, what, field, ours, peers, ours_only=None, goal=None, group=None):
        self.name, self.what, self.field, self.ours, self.peers = name, what, field, ours, peers
        self.ours_only, self.goal, self.group = ours_only or {}, goal, group

    def programs(self):
        """The side and the command of each."""
        return [("ours", self.ours)] + [(" ".join(p), p) for p in self.peers]


# Settings of PyTorch for a training: how it comes to the precision, and how it runs.
WAYS = {"fp32": ("plain",), "bf16": ("autocast", "weights")}
MODES = ("eager", "compile")


def train_rows():
    goals = {("fp32", 1024): 1.25, ("fp32", 4096): 1.25, ("fp32", 8192): 1.4,
             ("bf16", 1024): 1.4, ("bf16", 4096): 1.6, ("bf16", 8192): None}
    for (precision, n), goal in goals.items():
        args = [str(n), precision]
        yield Row(f"train 124M {precision} S {n}",
                  {"bench": "train", "seq_len": n, "precision": precision}, "tokens_s",
                  ["bench_train", "124m", *args],
                  [["peer_torch.py", "train", *args, way, mode]
                   for way in WAYS[precision] for mode in MODES],
                  {"way": "1 rank x 2 threads"}, goal)


def memory_rows():
    """The memory of the same trainings, resident at most: the peer that has the least counts."""
    for row in train_rows():
        if row.what["seq_len"] <= 4096:
            yield Row(row.name.replace("train", "memory"), row.what, "peak_mib", row.ours, row.peers,
                      row.ours_only)


def product_rows():
    shapes = [("gemm_y", 4096, 2048, 768), ("gemm_dx", 4096, 768, 2048),
              ("gemm_dw", 2048, 768, 4096), ("gemm_y", 4096, 768, 3072),
              ("gemm_dx", 4096, 3072, 768), ("gemm_dw", 768, 3072, 4096),
              ("gemm_y", 4096, 4096, 4096), ("gemm_y", 1024, 50257, 768),
              ("gemm_dx", 1024, 768, 50257), ("gemm_dw", 50257, 768, 1024)]
    for dtype, goal in (("bf16", 1.15), ("fp32", 1.05)):
        for op, m, n, k in shapes:
            shape = f"M {m} N {n} K {k}"
            yield Row(f"product {dtype} {op[5:]} {shape}",
                      {"bench": "kernels", "op": op, "dtype": dtype, "shape": shape}, "ms",
                      ["bench_kernels", "ten", dtype, f"{CORES}t"],
                      [["peer_torch.py", "products", dtype]],
                      {"threads": CORES}, goal, f"products {dtype}")


def attention_rows():
    goals = {"fp32": {"attn_both": 1.7, "attn_fwd": None},
             "bf16": {"attn_both": 2.5, "attn_fwd": 1.3}}
    for dtype in goals:
        for heads, size in ((12, 64), (6, 128)):
            shape = f"Tq 4096 S 4096 H {heads}/{heads} D {size} causal"
            for op in goals[dtype]:
                yield Row(f"attention {dtype} {op[5:]} D {size} causal 4096",
                          {"bench": "kernels", "op": op, "dtype": dtype, "shape": shape}, "ms",
                          ["bench_kernels", "attn", dtype, shape, f"{CORES}t"],
                          [["peer_torch.py", "attention", dtype, str(heads), str(size)]],
                          {"threads": CORES}, goals[dtype][op])


def infer_rows():
    goals = {("prefill", "fp32"): 1.25, ("prefill", "bf16"): 1.25, ("decode", "bf16"): 1.25}
    for precision in ("fp32", "bf16"):
        for what in ("prefill", "decode", "score"):
            peers = [["peer_infer.py", "transformers", "2048", precision]]
            if what != "score":
                peers.append(["peer_infer.py", "llama.cpp", "2048", precision])
            yield Row(f"{what} 124M {precision} 2048",
                      {"bench": what, "seq_len": 2048, "precision": precision}, "tokens_s",
                      ["bench_infer", "2048"], peers,
                      {"way": "1 rank x 2 threads"}, goals.get((what, precision)))


def block_rows():
    """Decode and prefill of weights in blocks, beside the same format of llama.cpp; and the model in
    bf16, for the gain over it."""
    formats = {"bf16": ("model", None), "q8_0": ("int8", 1.1), "q4_0": ("int4", 1.0)}
    for peer, (weights, decode) in formats.items():
        for what in ("decode", "prefill"):
            yield Row(f"{what} 1.24B {weights} 512", {"bench": what, "seq_len": 512, "model": "1b"},
                      "tokens_s", ["bench_infer", "512", "1b", weights],
                      [["peer_infer.py", "llama.cpp", "512", peer, "1b"]],
                      {"weights": weights, "precision": "bf16"},
                      decode if what == "decode" else None)


def embed_rows():
    for precision in ("fp32", "bf16"):
        yield Row(f"embed 600 documents of 30 tokens {precision}",
                  {"bench": "embed", "precision": precision}, "tokens_s",
                  ["peer_embed.py", "seqd", precision],
                  [["peer_embed.py", "transformers", precision]], goal=1.5)


def load_rows():
    for stored in ("fp32", "bf16"):
        yield Row(f"load 124M {stored}",
                  {"bench": "setup", "name": f"load {stored} as {stored}, {CORES} threads"}, "s",
                  ["bench_setup", "load"], [["peer_infer.py", "load", stored]])


def exchange_rows():
    ours, gloo = ["bench_ring", "hops", "steps", "sums"], [["peer_torch.py", "gloo"]]
    for size in (65536, 1 << 20):
        yield Row(f"exchange of 2 ranks, {size >> 10} KiB", {"bench": "hop", "bytes": size}, "us",
                  ours, gloo, {"transport": "shm"})
    for size in (64 << 10, 4 << 20):
        yield Row(f"ring step of 4 ranks, {size >> 10} KiB",
                  {"bench": "ring_step", "ranks": 4, "bytes": size}, "median_us",
                  ours, gloo, {"transport": "shm"})
    for ranks in (2, 4):
        yield Row(f"sum of 5 M gradients, {ranks} ranks", {"bench": "sum_f32", "ranks": ranks},
                  "ms", ours, gloo)


def all_rows():
    for rows in (train_rows, memory_rows, product_rows, attention_rows, infer_rows, block_rows,
                 embed_rows, load_rows, exchange_rows):
        yield from rows()


# ---- programs ------------------------------------------------------------------------------------


def json_lines(text):
    lines = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                lines.append(json.loads(line))
            except ValueError:
                pass  # cut off
    return lines


def takes_turns(command):
    """Whether a program has turns.h, or the same in Python."""
    return command[0] == "bench_train" or command[:2] == ["peer_torch.py", "train"]


class Loaded:
    """A program that waits for its turns, after its start and its first step."""

    def __init__(self, arguments, env, n_rounds):
        self.process = subprocess.Popen(arguments, env=dict(env, BENCH_TURNS=str(n_rounds)),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.next_line("ready")

    def next_line(self, key):
        """The next line of JSON that has the key; none: the program has ended."""
        for text in self.process.stdout:
            for line in json_lines(text):
                if key in line:
                    return [line]
        return []

    def turn(self):
        """Its line, and its exit status if it has printed none."""
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended
        lines = self.next_line("bench")
        return lines, 0 if lines else self.process.wait()

    def close(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass
        self.process.stdout.close()
        self.process.wait()


class Runs:
    """Runs programs, each once in a round, and keeps what they print. turns: the rounds, if loaded
    programs take turns, else 0."""

    def __init__(self, bench, peers, keep, conditions, turns=0):
        self.bench, self.peers, self.keep, self.kept = bench, peers, keep, {}
        self.conditions, self.turns, self.loaded = conditions, turns, {}
        self.facts = dict(conditions.facts(), **({"turns": True} if turns else {}))
        if keep and os.path.exists(keep):
            with open(keep) as f:
                for run in json_lines(f.read()):
                    if run.get("conditions") == self.facts:
                        self.kept[run["round"], tuple(run["command"])] = run

    def arguments(self, command):
        if command[0].endswith(".py"):
            python = os.environ.get("PEERS_PYTHON", sys.executable)
            return [python, os.path.join(self.peers, command[0]), *command[1:]]
        return [os.path.join(self.bench, command[0]), *command[1:]]

    def run(self, number, command):
        """{"lines": what it printed, "missing": why it printed none, else None}"""
        key = number, tuple(command)
        if key not in self.kept:
            try:
                lines, status = self.start(command)
            except OSError:
                lines, status = [], NOT_INSTALLED
            missing = None if status == 0 and lines else f"failed, status {status}"
            if status == NOT_INSTALLED:
                missing = "not installed"
            self.kept[key] = {"round": number, "command": command, "lines": lines,
                              "missing": missing, "conditions": self.facts}
            if self.keep and missing is None:
                with open(self.keep, "a") as f:
                    print(json.dumps(self.kept[key]), file=f)
        return self.kept[key]

    def start(self, command):
        """The lines of a round, and the exit status."""
        env = dict(os.environ, **self.conditions.environment())
        if self.turns and takes_turns(command):
            name = tuple(command)
            if name not in self.loaded:
                self.loaded[name] = Loaded(self.arguments(command), env, self.turns)
            return self.loaded[name].turn()
        done = subprocess.run(self.arguments(command), env=env, stdout=subprocess.PIPE, text=True)
        return json_lines(done.stdout), done.returncode

    def close(self, command):
        """Ends a program that waits for its turns, if it does."""
        if tuple(command) in self.loaded:
            self.loaded.pop(tuple(command)).close()


def pick(lines, what):
    """The first line that has these fields."""
    for line in lines:
        if all(line.get(key) == value for key, value in what.items()):
            return line
    return None


# ---- a row's figures -----------------------------------------------------------------------------


def speed(field, line):
    """Larger is better: a rate as it is, a time or a size inverted."""
    return line[field] if field == "tokens_s" else 1 / line[field]


def slower(row, found):
    """The peers that a faster one leaves out."""
    best = max((speed(row.field, line) for line in found.values()), default=0)
    return {name for name, line in found.items() if speed(row.field, line) < SLOWER * best}


def measure(row, runs, n_rounds):
    """One side's lines by round: [(ours, {peer's name: its line})], and why a side has none."""
    rounds, missing, left_out = [], {}, set()
    for number in range(1 if row.field == "peak_mib" else n_rounds):
        found = {}
        for side, command in row.programs():
            if side in left_out or side in missing:
                continue
            got = runs.run(number, command)
            what = dict(row.what, **(row.ours_only if side == "ours" else {}))
            line = pick(got["lines"], what)
            if line is None or row.field not in line:
                missing[side] = got["missing"] or "no such line"
            else:
                found[side] = line
            if number == 0:
                left_out = slower(row, {n: line for n, line in found.items() if n != "ours"})
                for name, waits in row.programs():
                    if name in left_out or name in missing:
                        runs.close(waits)  # its memory is for those that stay
        rounds.append((found.pop("ours", None), found))
    for _, command in row.programs():
        runs.close(command)
    return rounds, missing


def spread(values):
    """{"median", "low", "high"} of them."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def compare(row, rounds):
    """The row's figures; None where no round has both sides."""
    both = [(ours, found) for ours, found in rounds if ours and found]
    if not both:
        return None
    fastest = [max(found.items(), key=lambda item: speed(row.field, item[1]))
               for _, found in both]
    ratios = [speed(row.field, ours) / speed(row.field, line)
              for (ours, _), (_, line) in zip(both, fastest)]
    every = {name for _, found in both for name in found}
    return {"ours": spread([ours[row.field] for ours, _ in both]),
            "peer": spread([line[row.field] for _, line in fastest]),
            "ratio": spread(ratios),
            "rounds": len(ratios),
            "fastest": statistics.mode(name for name, _ in fastest),
            "share": share_of(row, [ours for ours, _ in both]),
            "limit": limit_of([ours for ours, _ in both]),
            "peers": {name: own_figure(row, [found[name] for _, found in both if name in found])
                      for name in sorted(every)}}


def share_of(row, lines):
    """Our best rate over the largest limit of all rounds; None: lines have no share of a limit."""
    if row.field == "peak_mib":
        return None
    both = [(speed(row.field, line), line.get("of_peak", line.get("of_limit"))) for line in lines]
    both = [(rate, share) for rate, share in both if share]
    if not both:
        return None
    return max(rate for rate, _ in both) / max(rate / share for rate, share in both)


def limit_of(lines):
    """The limit that lines were measured beside, in all rounds; None: they do not have it."""
    lines = [line for line in lines if "limit_rate" in line]
    if not lines:
        return None
    return {"of": lines[0]["limit"], "unit": lines[0]["unit"], "threads": lines[0]["threads"],
            **spread([line["limit_rate"] for line in lines]),
            "ours": max(line["rate"] for line in lines)}


def own_figure(row, lines):
    """A peer's own figure, of the rounds in which it ran."""
    return dict(spread([line[row.field] for line in lines]), rounds=len(lines))


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


# ---- the table -----------------------------------------------------------------------------------


def unit_of(row):
    return {"tokens_s": "tokens/s", "median_us": "us", "peak_mib": "MiB"}.get(row.field, row.field)


def print_row(row, figures):
    ours, peer, ratio = figures["ours"], figures["peer"], figures["ratio"]
    unit = unit_of(row)
    share = "" if figures["share"] is None else f"{figures['share']:.2f}"
    goal = "" if row.goal is None else f"{row.goal:.2f}"
    print(f"{row.name:<38} {ours['median']:>9.4g} {peer['median']:>9.4g} {unit:<8} "
          f"{ratio['median']:>5.2f} ({ratio['low']:.2f} to {ratio['high']:.2f}) "
          f"{share:>5} {goal:>5}  {figures['fastest']}")
    print(json.dumps({"bench": "peers", "row": row.name, "field": row.field, "goal": row.goal,
                      **figures}), flush=True)


def print_limit(limit):
    print(f"    limit, measured beside each round by {limit['threads']} threads: {limit['high']:.1f} "
          f"{limit['unit']} of {limit['of']} ({limit['low']:.1f} to {limit['high']:.1f}); "
          f"ours {limit['ours']:.1f}")


def print_peers(row, figures, settings, said):
    """Each peer's own figure, and its settings where they have not been said."""
    for name, own in figures["peers"].items():
        text, new = f"rounds: {own['rounds']}", (name, settings[name])
        if settings[name] and new not in said:
            text += f"; {settings[name]}"
        said.add(new)
        print(f"    {name:<44} {own['median']:>9.4g} {unit_of(row):<8} {text}", flush=True)


def print_group(group, members):
    """members: [(row, figures)] of one group."""
    ratio = geometric_mean([figures["ratio"]["median"] for _, figures in members])
    shares = [figures["share"] for _, figures in members if figures["share"]]
    share = geometric_mean(shares) if shares else None
    goal = members[0][0].goal
    print(f"{group}: geometric mean of {len(members)}: ratio {ratio:.2f} (goal {goal}), share of "
          f"limit {share if share is None else round(share, 2)}")
    print(json.dumps({"bench": "peers", "group": group, "rows": len(members), "ratio": ratio,
                      "share": share, "goal": goal}), flush=True)


def print_conditions(conditions):
    for line in conditions.lines():
        print(line)
    print(json.dumps({"bench": "peers", "conditions": conditions.facts()}))


def report(rows, runs, n_rounds):
    print_conditions(runs.conditions)
    print(f"{'row':<38} {'ours':>9} {'peer':>9} {'':<8} ratio (of all rounds) {'share':>7} "
          f"{'goal':>5}  peer")
    groups, said = {}, set()
    for row in rows:
        rounds, missing = measure(row, runs, n_rounds)
        for side, why in missing.items():
            program = " ".join(row.ours) if side == "ours" else side
            print(f"{row.name:<38} {program}: {why}", flush=True)
        figures = compare(row, rounds)
        if figures is None:
            continue
        print_row(row, figures)
        if figures["limit"]:
            print_limit(figures["limit"])
        print_peers(row, figures, {name: line.get("settings") for _, found in rounds
                                   for name, line in found.items()}, said)
        if row.group:
            groups.setdefault(row.group, []).append((row, figures))
    for group, members in groups.items():
        print_group(group, members)


def chosen_rows(words):
    """The rows that have all words of one of the sets, which commas divide."""
    sets = " ".join(words).split(",")
    return [row for row in all_rows()
            if any(all(f" {w} " in f" {row.name} " for w in some.split()) for some in sets)]


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--turns", action="store_true")
    p.add_argument("--keep")
    p.add_argument("--bench", default=os.path.join(HERE, "../../build/release/bench"))
    p.add_argument("--peers", default=HERE)
    p.add_argument("--cpuinfo", default="/proc/cpuinfo")
    p.add_argument("--list", action="store_true")
    p.add_argument("word", nargs="*")
    a = p.parse_args()
    rows = chosen_rows(a.word)
    if not rows:
        p.error("no row has all of these words")
    if a.list:
        print("\n".join(row.name for row in rows))
        return
    with tempfile.TemporaryDirectory() as scratch:
        conditions = Conditions(scratch, a.cpuinfo)
        conditions.confine()
        runs = Runs(a.bench, a.peers, a.keep, conditions, a.rounds if a.turns else 0)
        report(rows, runs, a.rounds)


if __name__ == "__main__":
    main()
