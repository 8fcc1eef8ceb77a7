#!/usr/bin/env python3
"""Our figures beside PyTorch's of the same key, as a table in Markdown, each with its bar.

    ratios.py OURS.jsonl THEIRS.jsonl OUT.md      status 1: something is under what is required
"""
import json
import sys

# (how a key begins, required, aimed at): our rate over PyTorch's. 0: nothing is required.
BARS = (
    ("attn_fwd", 0.6, 1.0),
    ("attn_bwd", 0.6, 1.0),
    ("linear_", 0.6, 1.0),
    ("train ", 0.6, 1.0),
    ("gemm", 0.0, 1.0),
    ("copy", 0.0, 1.0),
)


def read(path):
    """By key, and by what made the products: (key, by). The last line counts: programs append."""
    return {(x["key"], x.get("by", "")): x for x in map(json.loads, open(path)) if "key" in x}


def bars(key, spare):
    """spare: jobs have it only where the order of sums is fixed, and another way was measured."""
    need, aim = next(((n, a) for start, n, a in BARS if key.startswith(start)), (0.0, 0.0))
    return (0.0 if spare else need), aim


def verdict(ratio, need, aim):
    if ratio < need:
        return "UNDER what is required"
    return "reached" if ratio >= aim else "required is met"


def row(key, by, ours, theirs, spare):
    """A line of the table, and whether it is under its bar."""
    name = f"{key}, by {by}" if by else key
    why = ours.get("not_run") or theirs.get("not_run")
    if why:
        who = "ours" if "not_run" in ours else "PyTorch's"
        return f"| {name} | | | | | not run, {who}: {why} |", False
    need, aim = bars(key, spare)
    ratio = ours["rate"] / theirs["rate"]
    by = f" ({theirs['by']})" if "by" in theirs else ""
    text = verdict(ratio, need, aim)
    return (
        f"| {name} | {ours['rate']:.4g} {ours['unit']} | {theirs['rate']:.4g}{by} | {ratio:.2f} "
        f"| {need:g} / {aim:g} | {text} |",
        ratio < need,
    )


def main():
    ours = read(sys.argv[1])
    theirs = {key: x for (key, _), x in read(sys.argv[2]).items()}
    lines = ["| figure | ours | PyTorch | ratio | required / aim | |", "|---|---|---|---|---|---|"]
    under = 0
    for (key, by), own in ours.items():
        if key not in theirs:
            continue
        spare = by == "own kernels" and "rate" in ours.get((key, "cublasLt"), {})
        line, bad = row(key, by, own, theirs[key], spare)
        lines.append(line)
        under += bad
    with open(sys.argv[3], "w") as f:
        f.write("\n".join(lines) + "\n")
    print("\n".join(lines))
    print(f"{len(lines) - 2 - under} passed, {under} failed")
    return 1 if under else 0


if __name__ == "__main__":
    sys.exit(main())
