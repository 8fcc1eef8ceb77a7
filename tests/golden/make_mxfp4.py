#!/usr/bin/env python3
"""Writes gpt_oss_mxfp4: a directory whose experts are in MXFP4 as openai/gpt-oss-20b has them, and
plain.safetensors: what transformers makes of it, in bf16 (integrations/mxfp4.py). Needed only to make
the files again: pip install torch transformers."""
import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers import GptOssConfig, GptOssForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

PATH = pathlib.Path(__file__).parent / "gpt_oss_mxfp4"
torch.manual_seed(4)
config = GptOssConfig(vocab_size=258, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
                      num_key_value_heads=2, head_dim=8, intermediate_size=64, num_local_experts=3,
                      num_experts_per_tok=2, sliding_window=6, pad_token_id=257)
model = GptOssForCausalLM(config)
with torch.no_grad():
    for p in model.parameters():
        p.copy_(0.5 * torch.randn(p.shape))
plain = {k: v.bfloat16() for k, v in model.state_dict().items()}
packed = dict(plain)
for k in [k for k in plain if k.endswith(("gate_up_proj", "down_proj"))]:
    E, C, R = plain[k].shape
    blocks = torch.randint(0, 256, (E, R, C // 32, 16), dtype=torch.uint8)
    scales = torch.randint(120, 126, (E, R, C // 32), dtype=torch.uint8)
    blocks[0, 0, 0] = torch.arange(0, 256, 17)  # every value, in both halves of a byte
    scales[0, 1, 0], scales[0, 2, 0] = 3, 240
    plain[k] = convert_moe_packed_tensors(blocks, scales)
    assert plain[k].shape == (E, C, R)
    del packed[k]
    packed[k + "_blocks"], packed[k + "_scales"] = blocks, scales
PATH.mkdir(exist_ok=True)
save_file(packed, PATH / "model.safetensors", {"format": "pt"})
save_file({k: v.contiguous() for k, v in plain.items()}, PATH / "plain.safetensors", {"format": "pt"})
keys = {"architectures": ["GptOssForCausalLM"], **config.to_diff_dict(), "model_type": "gpt_oss",
        "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"],
                                "quant_method": "mxfp4"}}
(PATH / "config.json").write_text(json.dumps(keys, indent=1) + "\n")
for f in PATH.iterdir():
    f.chmod(0o644)
