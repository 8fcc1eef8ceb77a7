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
    """The last line of a key counts: programs append."""
    return {x["key"]: x for x in map(json.loads, open(path)) if "key" in x}


def bars(key):
    return next(((need, aim) for start, need, aim in BARS if key.startswith(start)), (0.0, 0.0))


def verdict(ratio, need, aim):
    if ratio < need:
        return "UNDER what is required"
    return "reached" if ratio >= aim else "required is met"


def row(key, ours, theirs):
    """A line of the table, and whether it is under its bar."""
    why = ours.get("not_run") or theirs.get("not_run")
    if why:
        who = "ours" if "not_run" in ours else "PyTorch's"
        return f"| {key} | | | | | not run, {who}: {why} |", False
    need, aim = bars(key)
    ratio = ours["rate"] / theirs["rate"]
    by = f" ({theirs['by']})" if "by" in theirs else ""
    text = verdict(ratio, need, aim)
    return (
        f"| {key} | {ours['rate']:.4g} {ours['unit']} | {theirs['rate']:.4g}{by} | {ratio:.2f} "
        f"| {need:g} / {aim:g} | {text} |",
        ratio < need,
    )


def main():
    ours, theirs = read(sys.argv[1]), read(sys.argv[2])
    lines = ["| figure | ours | PyTorch | ratio | required / aim | |", "|---|---|---|---|---|---|"]
    under = 0
    for key in (k for k in ours if k in theirs):
        line, bad = row(key, ours[key], theirs[key])
        lines.append(line)
        under += bad
    with open(sys.argv[3], "w") as f:
        f.write("\n".join(lines) + "\n")
    print("\n".join(lines))
    print(f"{len(lines) - 2 - under} passed, {under} failed")
    return 1 if under else 0


if __name__ == "__main__":
    sys.exit(main())
