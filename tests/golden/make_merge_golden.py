#!/usr/bin/env python3
"""Writes adapter/NAME/merged.safetensors, which has parts of the model that merge_and_unload of the package peft makes
from a model of make_lm_golden.py and its adapter of make_adapter_golden.py. It is needed only to make the files again:
pip install torch transformers peft.

Each tensor has the name that save_pretrained gives it. It is float64 [n]: elements 0, s, 2 s ... of the merged tensor
in float64, where s is count / 64 rounded up and made odd, so that the elements are of many columns."""
import pathlib
import sys
import tempfile

import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
BASES = {"phi3_both": "phi3", "mixtral_head": "mixtral", "llama3": "llama3", "gpt2": "gpt2", "gemma3": "gemma3"}
PARTS = 64


def make(name, base):
    model = AutoModelForCausalLM.from_pretrained(HERE / base, dtype=torch.float64)
    model = PeftModel.from_pretrained(model, HERE / "adapter" / name, autocast_adapter_dtype=False)
    for k, p in model.named_parameters():
        assert p.dtype == torch.float64, k
    with tempfile.TemporaryDirectory() as folder:
        model.merge_and_unload().save_pretrained(folder)
        merged = load_file(pathlib.Path(folder) / "model.safetensors")
    out = {}
    for k, w in merged.items():
        step = (w.numel() + PARTS - 1) // PARTS | 1
        out[k] = w.flatten()[::step].contiguous()
    save_file(out, HERE / "adapter" / name / "merged.safetensors")
    print(name, len(out), sum(w.numel() for w in out.values()), file=sys.stderr)


for case, of in BASES.items():
    if case in sys.argv[1:] or len(sys.argv) == 1:
        make(case, of)
