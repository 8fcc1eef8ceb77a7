#!/usr/bin/env python3
"""Writes adapter/NAME/, which has an adapter (LoRA) of a model of make_lm_golden.py with random A and B, as the
package peft saves it, and steps.safetensors, five training steps of the adapter in float64 by peft and
torch.optim.AdamW. It is needed only to make the files again: pip install torch transformers peft.

loss and norm are float64 [5]. grad:NAME is float32, the first step's gradient before it is clipped.
weight:NAME is float32, a tensor after five steps. Each step trains on both samples of NAME/. Modules that are
trained whole (modules_to_save) begin with changed weights, and have the rate LR_SAVED. A case with dropout has only
steps.safetensors: it begins with the adapter of its base's case, and drops what keyed_dropout.py tells."""
import copy
import json
import pathlib
import re
import sys

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from transformers.pytorch_utils import Conv1D

import keyed_dropout
import make_lm_golden as lm

HERE = pathlib.Path(__file__).parent
LR_SAVED = 4e-3
SEED = 5  # of the tests' trainings
STEPS, LR, BETAS, EPS, DECAY, CLIP = 5, 1e-3, (0.9, 0.95), 1e-4, 0.1, 0.5
CASES = {"llama3": {}, "qwen3": {"r": 3, "lora_alpha": 5}, "gemma3": {"use_rslora": True}, "gpt2": {},
         "phi3": {}, "qwen3_mixed": {}, "mixtral": {}, "qwen3_next": {"r": 2},
         "phi3_both": {"base": "phi3", "modules_to_save": ["embed_tokens", "lm_head"]},
         "mixtral_head": {"base": "mixtral", "modules_to_save": ["lm_head"]},
         "phi3_drop": {"base": "phi3", "lora_dropout": 0.2},
         "gemma3_drop": {"base": "gemma3", "use_rslora": True, "lora_dropout": 0.1}}


def targets(model):
    """Returns the products of layers, without routers and their gates, by the parts of their names that all
    layers have. In a model with experts these are attention's, because peft takes the names of others for those of
    experts."""
    found = []
    for name, m in model.named_modules():
        at = re.search(r"\.(layers|h)\.\d+\.", name)
        if not at or not isinstance(m, (torch.nn.Linear, Conv1D)) or name.endswith("gate"):
            continue
        if hasattr(model.config, "num_experts") and "attn" not in name:
            continue
        if name[at.end():] not in found:
            found.append(name[at.end():])
    return found


def save_adapter(model, state, out, base):
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    (out / "README.md").unlink(missing_ok=True)
    save_file(state, out / "adapter_model.safetensors", metadata={"format": "pt"})
    text = json.loads((out / "adapter_config.json").read_text())
    text["target_modules"] = sorted(text["target_modules"])
    text["base_model_name_or_path"] = base
    (out / "adapter_config.json").write_text(json.dumps(text, indent=2) + "\n")


def logits(package, sample, place, number):
    """Returns the logits of a sample. Tells the dropout the sample's number and where each document begins."""
    out, place.sample = [], number
    for begin, end in sample.docs:
        place.begin = begin
        part = copy.copy(sample)
        part.docs = [(begin, end)]
        out.append(package.logits(part))
    return torch.cat(out)


def make(name, options):
    base, dropout = options.pop("base", name), options.get("lora_dropout", 0)
    torch.manual_seed(sum(base.encode()))
    torch.set_default_dtype(torch.float64)
    package, batch = lm.CASES[base]()
    names = targets(package.model)
    config = LoraConfig(**{"r": 4, "lora_alpha": 6, "lora_dropout": 0.0, **options}, target_modules=names,
                        fan_in_fan_out=name == "gpt2", task_type="CAUSAL_LM")
    model = get_peft_model(package.model, config, autocast_adapter_dtype=False)
    trained = [p for p in model.parameters() if p.requires_grad]
    saved = [p for k, p in model.named_parameters() if p.requires_grad and "modules_to_save" in k]
    adapters = [p for k, p in model.named_parameters() if p.requires_grad and "lora_" in k]
    with torch.no_grad():
        for p in adapters:
            p.copy_((torch.randn_like(p) * 0.2).to(torch.float32))
        for p in saved:
            p.copy_((p + torch.randn_like(p) * 0.02).to(torch.float32))
    place = keyed_dropout.Place(SEED)
    out = HERE / "adapter" / name
    state = {k: v.to(torch.float32).contiguous() for k, v in get_peft_model_state_dict(model).items()}
    if dropout:
        keyed_dropout.install(model, place, dropout)
        first = load_file(HERE / "adapter" / base / "adapter_model.safetensors")
        assert state.keys() == first.keys() and all(torch.equal(first[k], v) for k, v in state.items())
        out.mkdir(exist_ok=True)
    else:
        save_adapter(model, state, out, base)
    groups = [{"params": adapters}, {"params": saved, "lr": LR_SAVED}]
    opt = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY, foreach=False)
    n = sum(t >= 0 for s in batch for t in s.targets)
    losses, norms, result = [], [], {}
    for step in range(STEPS):
        opt.zero_grad()
        place.step = step
        loss = sum(F.cross_entropy(logits(package, s, place, step * len(batch) + i), torch.tensor(s.targets),
                                   ignore_index=-1, reduction="sum") for i, s in enumerate(batch)) / n
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            short = {k: p.grad for k, p in model.named_parameters() if p.requires_grad}
            for k, g in short.items():
                result["grad:" + k.replace(".modules_to_save.default", "").replace(".default", "")] = g.to(torch.float32).contiguous()
        norms.append(torch.nn.utils.clip_grad_norm_(trained, CLIP).item())
        opt.step()
    for k, w in get_peft_model_state_dict(model).items():
        result["weight:" + k] = w.to(torch.float32).contiguous()
    if dropout:
        keyed_dropout.check_masks(place, dropout)
    result["loss"], result["norm"] = torch.tensor(losses), torch.tensor(norms)
    save_file(result, out / "steps.safetensors")
    print(name, losses, norms, len(trained), names, file=sys.stderr)


for case, more in CASES.items():
    if case in sys.argv[1:] or len(sys.argv) == 1:
        make(case, more)
