#!/usr/bin/env python3
"""Writes dpo/NAME.safetensors, which has five steps of direct preference optimization in float64 of a model of
make_lm_golden.py, with torch.optim.AdamW and clip_grad_norm_. Each answer is computed alone, as the package trl does
it; check_dpo.py compares the files with trl.DPOTrainer, which has the same numbers in float64 to 1e-14, and says why
EPS is larger than usual. It is needed only to make the files again: pip install torch
transformers peft.

ids is int32 [samples, S]. answers is int32 [2 pairs, 4]: sample, first position, tokens, tokens of the prompt; the
chosen answer of a pair comes first. reference is float64 [2 pairs], of the first weights. WAY is "sigmoid", "ipo" or
"adapter", which is "sigmoid" with adapter/NAME: WAY.value is float64 [5, 5]: loss, rewards of the chosen and of the
rejected answer, margin and share of right pairs of each step; WAY.norm is [5]. WAY.eval is float64 [2, 5]: the same
numbers of the pairs of the samples 0 to 2, after the first step and after the last. grad:NAME is float32, the first step's
gradient of "sigmoid" before it is clipped. weight:NAME is float32, a tensor after five steps of it, in some of the
files. Step k trains on samples 2k and 2k + 1, modulo their number. To each reference 1.5 - k % 4 is added."""
import copy
import pathlib
import sys
import tempfile

import torch
import torch.nn.functional as F
from peft import PeftModel
from safetensors.torch import load_file, save_file

import make_lm_golden as lm

HERE = pathlib.Path(__file__).parent
STEPS, LR, BETAS, EPS, DECAY, CLIP, S = 5, 1e-3, (0.9, 0.95), 1e-4, 0.1, 0.5, 40
HELD = (0, 1, 2)
ADAPTED = ("qwen3", "qwen3_mixed")
WAYS = {"sigmoid": {"beta": 0.3, "smoothing": 0.1, "sft": 0.2}, "ipo": {"beta": 0.4, "smoothing": 0, "sft": 0}}
KEPT = {"qwen3": "all", "qwen3_mixed": "gradients", "mixtral": None}
# tokens of the prompt, of the chosen and of the rejected answer, for the pairs of each sample
SAMPLES = [[(5, 8, 13)], [(3, 4, 6), (0, 9, 5)], [(2, 1, 3), (1, 7, 2), (4, 5, 6)], [(9, 12, 10)]]


def documents():
    """Returns ids [samples, S] and the answers (sample, position, tokens, tokens of the prompt)."""
    draw = torch.Generator().manual_seed(7)
    ids, answers = torch.full((len(SAMPLES), S), 257), []
    for n, pairs in enumerate(SAMPLES):
        at = 0
        for given, *lengths in pairs:
            prompt = torch.randint(0, 256, (given,), generator=draw)
            for length in lengths:
                text = torch.cat([prompt, torch.randint(0, 256, (length,), generator=draw)])
                ids[n, at:at + len(text)] = text
                answers.append((n, at, len(text), given))
                at += len(text)
        assert at <= S
    return ids, answers


def log_prob(model, ids, answer):
    """Returns the log-probability of an answer and the number of its tokens that have one."""
    n, at, length, given = answer
    text = ids[n, at:at + length]
    logits = model(input_ids=text[None]).logits[0, :-1]
    learnt = torch.arange(1, length) >= given
    each = F.log_softmax(logits, -1).gather(-1, text[1:, None])[:, 0]
    return each[learnt].sum(), int(learnt.sum())


def pair_values(way, logps, refs, counts):
    """Returns loss, rewards, margin and accuracy of a pair."""
    nll = -logps[0] / counts[0]
    rewards = [way["beta"] * (p - r).detach() for p, r in zip(logps, refs)]
    if way is WAYS["ipo"]:
        logps, refs = [p / c for p, c in zip(logps, counts)], [r / c for r, c in zip(refs, counts)]
    h = (logps[0] - refs[0]) - (logps[1] - refs[1])
    if way is WAYS["ipo"]:
        loss = (h - 1 / (2 * way["beta"])) ** 2
    else:
        loss = -F.logsigmoid(way["beta"] * h) * (1 - way["smoothing"]) - F.logsigmoid(
            -way["beta"] * h) * way["smoothing"]
    return torch.stack([loss + way["sft"] * nll, rewards[0], rewards[1], rewards[0] - rewards[1],
                        (rewards[0] > rewards[1]).double()])


def tensors(model):
    """Returns the tensors of a model, under the names that they have in its file."""
    with tempfile.TemporaryDirectory() as d:
        copy.deepcopy(model).save_pretrained(d)
        return load_file(pathlib.Path(d) / "model.safetensors")


def gradients(model):
    was = copy.deepcopy(model)
    with torch.no_grad():
        for p, q in zip(was.parameters(), model.parameters()):
            p.copy_(torch.zeros_like(p) if q.grad is None else q.grad)
    return tensors(was)


def adamw(params):
    return torch.optim.AdamW([{"params": [p for p in params if p.dim() > 1], "weight_decay": DECAY},
                              {"params": [p for p in params if p.dim() == 1], "weight_decay": 0}],
                             lr=LR, betas=BETAS, eps=EPS, foreach=False)


def drawn_values(model, way, ids, answers, references, drawn):
    """Returns the means over the pairs of the drawn samples."""
    each = []
    for k in range(0, len(answers), 2):
        if answers[k][0] in drawn:
            got = [log_prob(model, ids, answers[k + i]) for i in range(2)]
            each.append(pair_values(way, [g[0] for g in got], references[k:k + 2], [g[1] for g in got]))
    return torch.stack(each).mean(0)


def train(model, way, ids, answers, references, keep, out):
    params = [p for p in model.parameters() if p.requires_grad]
    opt = adamw(params)
    values, norms = [], []
    held = []
    for step in range(STEPS):
        opt.zero_grad()
        drawn = {2 * step % len(SAMPLES), (2 * step + 1) % len(SAMPLES)}
        value = drawn_values(model, way, ids, answers, references, drawn)
        value[0].backward()
        values.append(value.detach())
        if step == 0 and keep:
            out.update({"grad:" + k: w.to(torch.float32).contiguous() for k, w in gradients(model).items()})
        norms.append(torch.nn.utils.clip_grad_norm_(params, CLIP).double())
        opt.step()
        if step in (0, STEPS - 1):
            held.append(drawn_values(model, way, ids, answers, references, HELD).detach())
    if keep == "all":
        out.update({"weight:" + k: w.to(torch.float32).contiguous() for k, w in tensors(model).items()})
    return {"value": torch.stack(values), "norm": torch.stack(norms), "eval": torch.stack(held)}


def make(name):
    torch.manual_seed(sum(name.encode()))
    torch.set_default_dtype(torch.float64)
    model = lm.CASES[name]()[0].model
    ids, answers = documents()
    with torch.no_grad():
        references = [log_prob(model, ids, a)[0] + (1.5 - k % 4) for k, a in enumerate(answers)]
    out = {"ids": ids.int(), "answers": torch.tensor(answers, dtype=torch.int32),
           "reference": torch.stack(references)}
    for word, way in WAYS.items():
        got = train(copy.deepcopy(model), way, ids, answers, references, KEPT[name] if word == "sigmoid" else None, out)
        out.update({f"{word}.{k}": x for k, x in got.items()})
        print(name, word, {k: x.tolist() for k, x in got.items()}, file=sys.stderr)
    if name in ADAPTED:
        model = PeftModel.from_pretrained(model, HERE / "adapter" / name, is_trainable=True,
                                          autocast_adapter_dtype=False).double()
        got = train(model, WAYS["sigmoid"], ids, answers, references, None, out)
        out.update({f"adapter.{k}": x for k, x in got.items()})
        print(name, "adapter", {k: x.tolist() for k, x in got.items()}, file=sys.stderr)
    (HERE / "dpo").mkdir(exist_ok=True)
    save_file(out, HERE / "dpo" / f"{name}.safetensors")


if __name__ == "__main__":
    for case in KEPT:
        make(case)
