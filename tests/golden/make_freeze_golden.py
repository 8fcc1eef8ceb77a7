#!/usr/bin/env python3
"""Writes freeze/NAME.safetensors, which has five training steps in float64 of a model of make_lm_golden.py
in which some tensors are frozen (requires_grad is False), with torch.optim.AdamW and clip_grad_norm_. It is
needed only to make the files again: pip install torch transformers.

loss and norm are float64 [5]. grad:NAME is float32, the first step's gradient of a trained tensor before it
is clipped. weight:NAME is float32, a tensor after five steps. Each step trains on both samples of NAME/."""
import copy
import pathlib
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import make_lm_golden as lm

HERE = pathlib.Path(__file__).parent
STEPS, LR, BETAS, EPS, DECAY, CLIP = 5, 1e-3, (0.9, 0.95), 1e-4, 0.1, 0.5
FROZEN = {"qwen3": ("embed_tokens", ".layers.0."), "mixtral": (".gate.", "self_attn")}


def tensors(model):
    """Returns the tensors of a model, under the names that they have in its file."""
    with tempfile.TemporaryDirectory() as d:
        copy.deepcopy(model).save_pretrained(d)
        return load_file(pathlib.Path(d) / "model.safetensors")


def make(name):
    torch.manual_seed(sum(name.encode()))
    torch.set_default_dtype(torch.float64)
    package, batch = lm.CASES[name]()
    model = package.model
    stays = [n for n, p in model.named_parameters() if any(f in n for f in FROZEN[name])]
    for n, p in model.named_parameters():
        p.requires_grad_(n not in stays)
    trained = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW([{"params": [p for p in trained if p.dim() > 1], "weight_decay": DECAY},
                             {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0}],
                            lr=LR, betas=BETAS, eps=EPS, foreach=False)
    n = sum(t >= 0 for s in batch for t in s.targets)
    losses, norms, out = [], [], {}
    first = tensors(model)
    for step in range(STEPS):
        opt.zero_grad()
        loss = sum(F.cross_entropy(package.logits(s), torch.tensor(s.targets), ignore_index=-1,
                                   reduction="sum") for s in batch) / n
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            was = copy.deepcopy(model)
            with torch.no_grad():
                for p, q in zip(was.parameters(), model.parameters()):
                    p.copy_(torch.zeros_like(p) if q.grad is None else q.grad)
            grads = tensors(was)
        norms.append(torch.nn.utils.clip_grad_norm_(trained, CLIP).item())
        opt.step()
    final = tensors(model)
    for k, w in final.items():
        same = torch.equal(w, first[k])
        assert same == (not grads[k].any()), k
        out["weight:" + k] = w.to(torch.float32).contiguous()
        if not same:
            out["grad:" + k] = grads[k].to(torch.float32).contiguous()
    out["loss"], out["norm"] = torch.tensor(losses), torch.tensor(norms)
    (HERE / "freeze").mkdir(exist_ok=True)
    save_file(out, HERE / "freeze" / f"{name}.safetensors")
    print(name, losses, norms, len(stays), "frozen", file=sys.stderr)


for case in FROZEN:
    make(case)
