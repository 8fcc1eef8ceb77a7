#!/usr/bin/env python3
"""Writes smooth/NAME.safetensors, which has five training steps in float64 of a model of make_lm_golden.py whose loss
has smoothed labels and a z-loss, with torch.optim.AdamW and clip_grad_norm_. The smoothed loss is
F.cross_entropy(label_smoothing); the z-loss is the mean over targets of the squared logsumexp of the logits. It is
needed only to make the files again: pip install torch transformers.

WAY is "smooth", "z", "both" or "noise", in which the embeddings have the noise of NEFTune (the hook of
transformers.integrations.neftune, with the random numbers of draw). WAY.loss and WAY.norm are float64 [5]. both.grad:NAME
and noise.grad:NAME are float32, the first step's gradient of some tensors before it is clipped. Each step trains on both samples of NAME/."""
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
WAYS = {"smooth": (0.2, 0), "z": (0, 0.05), "both": (0.1, 0.02), "noise": (0, 0)}
ALPHA, SEED = 15, 5
KEPT = {"qwen3_mixed": ("lm_head", "embed_tokens", "model.norm", "layers.0.self_attn.q_proj"),
        "gemma2": ("embed_tokens", "model.norm"), "bert": ("predictions.bias", "transform")}


def philox(key, counter):
    """Philox4x32-10: four words of 32 bits of two and four such words."""
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [b >> 32 ^ counter[1] ^ key[0], b & 0xFFFFFFFF, a >> 32 ^ counter[3] ^ key[1], a & 0xFFFFFFFF]
        key = [key[0] + 0x9E3779B9 & 0xFFFFFFFF, key[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return counter


def draw(step, sample, width):
    """Returns numbers in (-1, 1) for each position and column of a sample."""
    key = philox([SEED, 0], [step, 0, 0x64726F70, 0])[:2]
    words = [[w for c in range(0, width, 4) for w in philox(key, [pos, c // 4, 0xFFFFFFFF, sample])][:width]
             for pos in range(lm.S)]
    return (torch.tensor(words, dtype=torch.float64) + 0.5) / 2**31 - 1


def with_noise(package, sample, step, index):
    """Returns the logits of a sample whose embeddings have noise. The package runs its documents in their order."""
    table = package.model.get_input_embeddings()
    noise, at = draw(step, index, table.embedding_dim) * ALPHA / (lm.S * table.embedding_dim) ** 0.5, [0]

    def add(_module, _ids, out):
        at[0] += out.shape[1]
        return out + noise[at[0] - out.shape[1]:at[0]]

    hook = table.register_forward_hook(add)
    logits = package.logits(sample)
    hook.remove()
    assert at[0] == lm.S
    return logits


def tensors(model):
    """Returns the tensors of a model, under the names that they have in its file."""
    with tempfile.TemporaryDirectory() as d:
        copy.deepcopy(model).save_pretrained(d)
        return load_file(pathlib.Path(d) / "model.safetensors")


def loss_of(package, batch, way, step):
    smoothing, z = WAYS[way]
    if way == "noise":
        logits = torch.cat([with_noise(package, s, step, len(batch) * step + i) for i, s in enumerate(batch)])
    else:
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
        loss = loss_of(package, batch, way, step)
        loss.backward()
        losses.append(loss.item())
        if step == 0 and way in ("both", "noise"):
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
