#!/usr/bin/env python3
"""Writes llama_untied.bin and llama_tied.bin: 20 training steps of a tiny decoder in float64.

An oracle that shares no code with the engine: plain PyTorch operations, autograd, torch.optim.AdamW
and clip_grad_norm_. Needed only to make the files again: pip install torch; python3 make_golden.py

File, little endian: 8 bytes "SEQDGOLD"; int64[14]: n_layers, width, n_heads, n_kv_heads, head_dim,
ffn_width, vocab, tied, seq_len, global_batch, steps, warmup_steps, n_params, n_tensors;
double[9]: norm_eps, rope_theta, lr, beta1, beta2, eps, weight_decay, max_grad_norm, min_lr_ratio;
then per sample (steps * global_batch of them) int32 ids[S], targets[S], pos[S], lo[S] (a row i sees
keys lo[i] .. i); double loss[steps], grad_norm[steps]; float32 initial[n_params], final[n_params]:
the tensors one after another, without gaps, in the order of worker/plan/param.c."""
import math
import random
import struct
import sys

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


class Case:
    def __init__(self, **kw):
        self.__dict__.update(kw)


UNTIED = Case(file="llama_untied.bin", L=2, C=36, H=3, Hk=1, D=12, I=50, V=258, tied=0, S=61, B=2,
              steps=20, warmup=3, norm_eps=1e-5, theta=10000.0, lr=3e-3, beta1=0.9, beta2=0.95,
              eps=1e-8, wd=0.1, clip=1.0, min_lr=0.1, reset=True, mask=True, seed=11)
TIED = Case(file="llama_tied.bin", L=1, C=72, H=9, Hk=3, D=8, I=56, V=258, tied=1, S=40, B=3,
            steps=20, warmup=4, norm_eps=1e-6, theta=500000.0, lr=2e-3, beta1=0.9, beta2=0.999,
            eps=1e-8, wd=0.05, clip=0.7, min_lr=0.0, reset=False, mask=True, seed=12)


def shapes(c):
    out = [("embed", (c.V, c.C))]
    for i in range(c.L):
        out += [(f"{i}.in_norm", (c.C,)), (f"{i}.q", (c.H * c.D, c.C)), (f"{i}.k", (c.Hk * c.D, c.C)),
                (f"{i}.v", (c.Hk * c.D, c.C)), (f"{i}.o", (c.C, c.H * c.D)),
                (f"{i}.post_norm", (c.C,)), (f"{i}.gate", (c.I, c.C)), (f"{i}.up", (c.I, c.C)),
                (f"{i}.down", (c.C, c.I))]
    out.append(("norm", (c.C,)))
    if not c.tied:
        out.append(("head", (c.V, c.C)))
    return out


def sample(c, rng):
    """Documents of random length ending with id 256; the last token of a document has no target."""
    ids, doc = [], []
    while len(ids) < c.S:
        n = rng.choice([1, 3, 8, 17, 40])
        word = [rng.randrange(97, 123) for _ in range(rng.randrange(1, 5))]
        body = [word[j % len(word)] for j in range(n)] + [256]
        doc += [len(ids)] * len(body)
        ids += body
    ids, doc = ids[:c.S], doc[:c.S]
    targets = [ids[i + 1] if i + 1 < c.S and doc[i + 1] == doc[i] else -1 for i in range(c.S)]
    pos = [i - doc[i] if c.reset else i for i in range(c.S)]
    lo = [doc[i] if c.mask else 0 for i in range(c.S)]
    return ids, targets, pos, lo


def rms(x, g, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * g


def rotate(x, cos, sin):  # [S, heads, D], half-split
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def forward(c, w, s):
    ids, targets, pos, lo = (torch.tensor(v) for v in s)
    inv = c.theta ** (-torch.arange(0, c.D, 2) / c.D)
    angle = pos[:, None, None] * inv
    cos, sin = angle.cos(), angle.sin()
    j = torch.arange(c.S)
    seen = (j[None, :] >= lo[:, None]) & (j[None, :] <= j[:, None])
    x = w["embed"][ids]
    for i in range(c.L):
        h = rms(x, w[f"{i}.in_norm"], c.norm_eps)
        q = rotate((h @ w[f"{i}.q"].T).view(c.S, c.H, c.D), cos, sin)
        k = rotate((h @ w[f"{i}.k"].T).view(c.S, c.Hk, c.D), cos, sin)
        v = (h @ w[f"{i}.v"].T).view(c.S, c.Hk, c.D)
        k, v = (t.repeat_interleave(c.H // c.Hk, 1) for t in (k, v))
        score = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(c.D)
        p = score.masked_fill(~seen, -math.inf).softmax(-1)
        o = torch.einsum("hij,jhd->ihd", p, v).reshape(c.S, c.H * c.D)
        x = x + o @ w[f"{i}.o"].T
        h = rms(x, w[f"{i}.post_norm"], c.norm_eps)
        x = x + (F.silu(h @ w[f"{i}.gate"].T) * (h @ w[f"{i}.up"].T)) @ w[f"{i}.down"].T
    logits = rms(x, w["norm"], c.norm_eps) @ w["embed" if c.tied else "head"].T
    return F.cross_entropy(logits, targets, ignore_index=-1, reduction="sum")


def rate(c, step):
    if step < c.warmup:
        return c.lr * (step + 1) / c.warmup
    low = c.min_lr * c.lr
    return low + 0.5 * (c.lr - low) * (1 + math.cos(math.pi * (step - c.warmup) / (c.steps - c.warmup)))


def train(c):
    rng = random.Random(c.seed)
    torch.manual_seed(c.seed)
    w = {}
    for name, shape in shapes(c):
        t = 1 + 0.1 * torch.randn(shape) if len(shape) == 1 else 0.08 * torch.randn(shape)
        w[name] = t.float().double().requires_grad_(True)  # exactly what the file holds
    initial = [w[n].detach().clone() for n, _ in shapes(c)]
    opt = torch.optim.AdamW([{"params": [w[n] for n, s in shapes(c) if len(s) == 2], "weight_decay": c.wd},
                             {"params": [w[n] for n, s in shapes(c) if len(s) == 1], "weight_decay": 0.0}],
                            lr=c.lr, betas=(c.beta1, c.beta2), eps=c.eps, foreach=False)
    samples = [sample(c, rng) for _ in range(c.steps * c.B)]
    losses, norms = [], []
    for step in range(c.steps):
        batch = samples[step * c.B:(step + 1) * c.B]
        n = sum(t >= 0 for s in batch for t in s[1])
        opt.zero_grad()
        loss = sum(forward(c, w, s) for s in batch) / n
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(list(w.values()), c.clip, foreach=False)))
        for g in opt.param_groups:
            g["lr"] = rate(c, step)
        opt.step()
        losses.append(loss.item())
    return samples, losses, norms, initial, [w[n].detach() for n, _ in shapes(c)]


def write(c, samples, losses, norms, initial, final):
    def flat(ts):
        return torch.cat([t.reshape(-1) for t in ts]).float()
    n = flat(initial).numel()
    with open(c.file, "wb") as f:
        f.write(b"SEQDGOLD")
        f.write(struct.pack("<14q", c.L, c.C, c.H, c.Hk, c.D, c.I, c.V, c.tied, c.S, c.B, c.steps,
                            c.warmup, n, len(initial)))
        f.write(struct.pack("<9d", c.norm_eps, c.theta, c.lr, c.beta1, c.beta2, c.eps, c.wd, c.clip,
                            c.min_lr))
        for s in samples:
            for part in s:
                f.write(struct.pack(f"<{c.S}i", *part))
        f.write(struct.pack(f"<{c.steps}d", *losses))
        f.write(struct.pack(f"<{c.steps}d", *norms))
        for ts in (initial, final):
            f.write(struct.pack(f"<{n}f", *flat(ts).tolist()))


for case in (UNTIED, TIED):
    result = train(case)
    write(case, *result)
    print(case.file, "loss", result[1][0], "->", result[1][-1], "norms", result[2][0], result[2][-1],
          file=sys.stderr)
