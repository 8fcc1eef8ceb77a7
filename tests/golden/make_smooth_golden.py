#!/usr/bin/env python3
"""Writes smooth/NAME.safetensors, which has five training steps in float64 of a model of make_lm_golden.py whose loss
has smoothed labels and a z-loss, with torch.optim.AdamW and clip_grad_norm_. The smoothed loss is
F.cross_entropy(label_smoothing); the z-loss is the mean over targets of the squared logsumexp of the logits. It is
needed only to make the files again: pip install torch transformers.

WAY is "smooth", "z" or "both". WAY.loss and WAY.norm are float64 [5]. both.grad:NAME is float32, the first step's
gradient of some tensors before it is clipped. Each step trains on both samples of NAME/."""
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
WAYS = {"smooth": (0.2, 0), "z": (0, 0.05), "both": (0.1, 0.02)}
KEPT = {"qwen3_mixed": ("lm_head", "embed_tokens", "model.norm", "layers.0.self_attn.q_proj"),
        "gemma2": ("embed_tokens", "model.norm"), "bert": ("predictions.bias", "transform")}


def tensors(model):
    """Returns the tensors of a model, under the names that they have in its file."""
    with tempfile.TemporaryDirectory() as d:
        copy.deepcopy(model).save_pretrained(d)
        return load_file(pathlib.Path(d) / "model.safetensors")


def loss_of(package, batch, smoothing, z):
    logits = torch.cat([package.logits(s) for s in batch])
    targets = torch.tensor([t for s in batch for t in s.targets])
    loss = F.cross_entropy(logits, targets, ignore_index=-1, label_smoothing=smoothing)
    return loss + z * (logits.logsumexp(-1)[targets >= 0] ** 2).mean()


def train(name, way, out):
    torch.manual_seed(sum(name.encode()))
    package, batch = lm.CASES[name]()
    model = package.model
    weights = list(model.parameters())
    opt = torch.optim.AdamW([{"params": [p for p in weights if p.dim() > 1], "weight_decay": DECAY},
                             {"params": [p for p in weights if p.dim() == 1], "weight_decay": 0}],
                            lr=LR, betas=BETAS, eps=EPS, foreach=False)
    losses, norms = [], []
    for step in range(STEPS):
        opt.zero_grad()
        loss = loss_of(package, batch, *WAYS[way])
        loss.backward()
        losses.append(loss.item())
        if step == 0 and way == "both":
            was = copy.deepcopy(model)
            with torch.no_grad():
                for p, q in zip(was.parameters(), weights):
                    p.copy_(torch.zeros_like(p) if q.grad is None else q.grad)
            for k, g in tensors(was).items():
                if any(part in k for part in KEPT[name]):
                    out[f"{way}.grad:{k}"] = g.to(torch.float32).contiguous()
        norms.append(torch.nn.utils.clip_grad_norm_(weights, CLIP).item())
        opt.step()
    out[way + ".loss"], out[way + ".norm"] = torch.tensor(losses), torch.tensor(norms)
    print(name, way, losses, norms, file=sys.stderr)


def make(name):
    torch.set_default_dtype(torch.float64)
    out = {}
    for way in WAYS:
        train(name, way, out)
    (HERE / "smooth").mkdir(exist_ok=True)
    save_file(out, HERE / "smooth" / f"{name}.safetensors")
    (HERE / "smooth" / f"{name}.safetensors").chmod(0o644)


for case in KEPT:
    make(case)
