#!/usr/bin/env python3
"""Loads a model directory of ours with the Python package transformers, as a user would.

usage: check_hf.py DIR [TEXT]      DIR: the hf/ directory of a checkpoint, or any model directory

Checks that the config means the same model, that every tensor arrives bit by bit with none missing or
left over, that the tokenizer encodes bytes as themselves, and that a forward pass and a greedy
generation work; prints the loss of TEXT. Not part of `make check`: it needs torch and transformers.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    path = pathlib.Path(sys.argv[1])
    text = sys.argv[2] if len(sys.argv) > 2 else "int main(void)\n{\n    return 0;\n}\n"
    config = json.loads((path / "config.json").read_text())
    model, info = AutoModelForCausalLM.from_pretrained(
        path, output_loading_info=True, attn_implementation="eager")
    assert type(model).__name__ == "LlamaForCausalLM", type(model)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[what], (what, info[what])
    assert model.dtype == torch.float32, model.dtype

    for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                "num_key_value_heads", "head_dim", "rms_norm_eps", "tie_word_embeddings",
                "max_position_embeddings"):
        assert getattr(model.config, key) == config[key], key
    theta = getattr(model.config, "rope_parameters", None)
    theta = theta["rope_theta"] if theta else model.config.rope_theta
    assert theta == config["rope_theta"], theta

    stored = load_file(path / "model.safetensors")
    loaded = model.state_dict()
    for name, tensor in stored.items():
        assert torch.equal(loaded[name], tensor), name
    left = set(loaded) - set(stored) - ({"lm_head.weight"} if config["tie_word_embeddings"] else set())
    assert not left, left

    tokenizer = AutoTokenizer.from_pretrained(path)
    assert tokenizer.eos_token_id == 256 and tokenizer.pad_token_id == 257
    sample = "a\u00e9\u4e2d\U0001f600 \t\r\n\0\x7f<|eod|>don't  1234"
    ids = tokenizer(sample, add_special_tokens=False)["input_ids"]
    head, tail = sample.split("<|eod|>")
    assert ids == list(head.encode()) + [256] + list(tail.encode()), ids
    assert tokenizer.decode(ids) == sample
    every = bytes(range(128)).decode()
    assert tokenizer(every, add_special_tokens=False)["input_ids"] == list(range(128))

    ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
    with torch.no_grad():
        loss = model(input_ids=ids, labels=ids).loss
        out = model.generate(ids, max_new_tokens=8, do_sample=False)
    assert torch.isfinite(loss) and out.shape[1] > ids.shape[1]
    print(f"{path}: {len(stored)} tensors, loss {loss.item():.6f}, says {tokenizer.decode(out[0][ids.shape[1]:])!r}")


main()
