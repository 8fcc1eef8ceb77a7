#!/usr/bin/env python3
"""Writes tests/golden/configs.txt: what the Python package transformers makes of config.json files, whole and
with one key left out after the other: tests/golden/make_configs.py >tests/golden/configs.txt

    make_configs.py --check FILE...   compares configs of published models, each FILE an object of them by name,
                                      or one config.json: the number of parameters, names and shapes on the
                                      meta device against what seqd says; prints one line for each

A block begins with "config NAME" and has the lines of the object that are not refused, "key "hidden_size": 384".
Then "case KEY PARAMETERS DIGEST {..}": without that key ("-": whole), the digest is of the sorted lines "name
dim,dim", and the object has what differs from the whole one, by the names of model.config. Needs torch and
transformers; builds tests/golden/describe_configs.c."""
import glob
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MASKED = ("bert", "roberta", "xlm-roberta", "modernbert")
CLASSES = {"minimax_text_01": "minimax", "minimax_m1": "minimax"}

LLAMA = {"hidden_size": 384, "num_hidden_layers": 5, "num_attention_heads": 64, "num_key_value_heads": 4,
         "intermediate_size": 80, "vocab_size": 300, "max_position_embeddings": 777, "rms_norm_eps": 1e-3,
         "rope_theta": 5000.0}
SHORT = {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}
WINDOW = {"sliding_window": 7}
QWEN = {"use_sliding_window": True, "max_window_layers": 2, **WINDOW}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 3}
GEMMA = {"head_dim": 8, "query_pre_attn_scalar": 10, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0,
         "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": False, **WINDOW}
DELTA = {"head_dim": 16, "full_attention_interval": 3, "partial_rotary_factor": 0.5, "linear_conv_kernel_dim": 3,
         "linear_key_head_dim": 6, "linear_value_head_dim": 10, "linear_num_key_heads": 4,
         "linear_num_value_heads": 16, "tie_word_embeddings": True}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
BASES = {
    "llama": {**LLAMA, "head_dim": 16, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True,
              "hidden_act": "silu", "rope_scaling": LLAMA3},
    "mistral": {**LLAMA, **WINDOW, "head_dim": 16, "tie_word_embeddings": True},
    "ministral": {**LLAMA, **WINDOW, "head_dim": 16, "tie_word_embeddings": True},
    "qwen2": {**LLAMA, **QWEN, "tie_word_embeddings": True},
    "qwen3": {**LLAMA, **QWEN, "head_dim": 16, "tie_word_embeddings": True, "attention_bias": True},
    "smollm3": {**LLAMA, "no_rope_layer_interval": 2, "attention_bias": True, "mlp_bias": True,
                "tie_word_embeddings": False},
    "olmo2": {**LLAMA, "attention_bias": True, "tie_word_embeddings": True},
    "phi3": {**LLAMA, **WINDOW, "tie_word_embeddings": True},
    "granite": {**LLAMA, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True,
                "embedding_multiplier": 12.0, "attention_multiplier": 0.5, "residual_multiplier": 0.25,
                "logits_scaling": 8.0},
    "gpt2": {"n_embd": 384, "n_layer": 5, "n_head": 64, "n_inner": 80, "vocab_size": 300, "n_positions": 777,
             "layer_norm_epsilon": 1e-3, "activation_function": "gelu", "tie_word_embeddings": False},
    "gemma2": {**LLAMA, **GEMMA},
    "gemma3_text": {**LLAMA, **GEMMA, "rope_local_base_freq": 2000.0, "sliding_window_pattern": 3,
                    "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "mixtral": {**LLAMA, **WINDOW, **EXPERTS, "head_dim": 16, "tie_word_embeddings": True},
    "qwen3_moe": {**LLAMA, "num_key_value_heads": 8, "head_dim": 16, "use_sliding_window": True, **WINDOW,
                  "num_experts": 9, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "norm_topk_prob": True,
                  "decoder_sparse_step": 2, "mlp_only_layers": [1], "tie_word_embeddings": True},
    "qwen2_moe": {**LLAMA, "num_key_value_heads": 16, "num_experts": 9, "num_experts_per_tok": 3,
                  "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "norm_topk_prob": True,
                  "decoder_sparse_step": 2, "mlp_only_layers": [1], "qkv_bias": False, "tie_word_embeddings": True},
    "olmoe": {**LLAMA, "num_experts": 9, "num_experts_per_tok": 3, "norm_topk_prob": True,
              "tie_word_embeddings": True},
    "minimax": {**LLAMA, **EXPERTS, "head_dim": 16, "tie_word_embeddings": True, "mlp_alpha_factor": 2.0,
                "mlp_beta_factor": 3.0, "full_attn_alpha_factor": 4.0, "full_attn_beta_factor": 5.0,
                "linear_attn_alpha_factor": 6.0, "linear_attn_beta_factor": 7.0,
                "block_size": 8, "layer_types": ["linear_attention", "linear_attention", "full_attention",
                                                 "linear_attention", "full_attention"]},
    "qwen3_5_text": {**LLAMA, **DELTA},
    "qwen3_next": {**LLAMA, **DELTA, "intermediate_size": 88, "num_experts": 12, "num_experts_per_tok": 3,
                   "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "norm_topk_prob": False,
                   "decoder_sparse_step": 2, "mlp_only_layers": [1]},
    "qwen3_5_moe_text": {**{k: v for k, v in LLAMA.items() if k != "intermediate_size"}, **DELTA, "num_experts": 9,
                         "num_experts_per_tok": 3, "moe_intermediate_size": 24,
                         "shared_expert_intermediate_size": 40},
    "minimax_text_01": {**LLAMA, **EXPERTS, "head_dim": 16, "layernorm_mlp_alpha": 2.0, "layernorm_mlp_beta": 3.0,
                        "layernorm_full_attention_alpha": 4.0, "layernorm_full_attention_beta": 5.0,
                        "layernorm_linear_attention_alpha": 6.0, "layernorm_linear_attention_beta": 7.0,
                        "attn_type_list": [0, 0, 1, 0, 1], "postnorm": True, "shared_intermediate_size": 0,
                        "shared_moe_mode": "sigmoid", "rotary_dim": 4},
    "gpt_oss": {**LLAMA, **WINDOW, "num_local_experts": 9, "num_experts_per_tok": 3, "head_dim": 16,
                "attention_bias": True, "tie_word_embeddings": True,
                "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention",
                                "sliding_attention"]},
    "bert": {**{k: v for k, v in SHORT.items() if k not in ("rms_norm_eps", "rope_theta")},
             "layer_norm_eps": 1e-3, "type_vocab_size": 3, "hidden_act": "relu"},
}
BASES["roberta"] = {**BASES["bert"], "pad_token_id": 6}
BASES["xlm-roberta"] = BASES["roberta"]
BASES["modernbert"] = {**{k: v for k, v in SHORT.items() if k not in ("rms_norm_eps", "rope_theta")},
                       "norm_eps": 1e-3, "global_rope_theta": 5000.0, "local_rope_theta": 2000.0, "local_attention": 12,
                       "global_attn_every_n_layers": 2, "attention_bias": True, "mlp_bias": True, "norm_bias": True,
                       "classifier_bias": True, "decoder_bias": False, "hidden_activation": "relu"}
BASES["minimax_m1"] = BASES["minimax_text_01"]
# Of the package's own use: seqd reads them and nothing follows, or they stay in every case.
HOUSE = {"architectures", "model_type", "transformers_version", "dtype", "id2label", "label2id", "problem_type",
         "_name_or_path", "return_dict", "output_hidden_states", "output_attentions", "chunk_size_feed_forward",
         "is_encoder_decoder", "initializer_range", "use_cache", "bos_token_id", "eos_token_id", "pad_token_id"}


def build():
    program = os.path.join(tempfile.mkdtemp(), "describe_configs")
    with open(os.path.join(ROOT, "tests/fuzz/fuzz_config.c")) as f:  # its first line names them
        sources = [y for x in f.readline().split()[2:] for y in glob.glob(os.path.join(ROOT, x))]
    subprocess.run([*os.environ.get("CC", "cc").split(), "-std=c11", "-D_GNU_SOURCE", "-O1", "-w", "-I", ROOT, "-o",
                    program, os.path.join(HERE, "describe_configs.c"), *sources, "-lm"], check=True)
    return program


def ours(program, configs):
    lines = subprocess.run([program], input="".join(json.dumps(c) + "\n" for c in configs), text=True,
                           capture_output=True, check=True).stdout.splitlines()
    for line in lines:
        if line[0] == "!":
            yield line[2:], None
        else:
            sizes, *tensors = line.split("\t")
            yield json.loads(sizes), sorted(tensors)


def from_config(c):
    c = {k: v for k, v in c.items() if k not in ("transformers_version", "auto_map")}
    kind = CLASSES.get(c["model_type"], c["model_type"])
    if kind != c["model_type"]:  # keys of the first release, as its own code reads them
        c = {re.sub("^layernorm_(linear|full)_attention_", r"\1_attn_", re.sub("^layernorm_mlp_", "mlp_", k)): v
             for k, v in c.items()}
        c = {re.sub("(alpha|beta)$", r"\1_factor", k): v for k, v in c.items()}
        if "attn_type_list" in c:
            c["layer_types"] = ["full_attention" if v else "linear_attention" for v in c.pop("attn_type_list")]
    c.pop("model_type")
    return AutoConfig.for_model(kind, **c)


def in_files(name, shape):
    """Tensors of files for one parameter in memory: experts are one by one there."""
    if in_files.kind == "xlm-roberta" and name == "lm_head.decoder.weight":  # the model's first of two tied names
        return [("roberta.embeddings.word_embeddings.weight", shape)]
    m = re.match(r"(.*)\.mlp\.(gate\.weight|experts\.(gate_up_proj|down_proj))$", name)
    if not m or in_files.kind not in ("mixtral", "minimax", "qwen2_moe", "qwen3_moe", "olmoe",
                                        "qwen3_next", "qwen3_5_moe_text"):
        return [(name, shape)]
    old = in_files.kind in ("mixtral", "minimax")
    where = m[1] + (".block_sparse_moe" if old else ".mlp")
    if m[2] == "gate.weight":
        return [(where + ".gate.weight", shape)]
    parts = [("w1", "gate_proj"), ("w3", "up_proj")] if m[3] == "gate_up_proj" else [("w2", "down_proj")]
    rows = shape[1] // len(parts)
    return [(f"{where}.experts.{e}.{p[0] if old else p[1]}.weight", (rows, shape[2]))
            for e in range(shape[0]) for p in parts]


def model_of(config, device):
    auto = AutoModelForMaskedLM if config.model_type in MASKED else AutoModelForCausalLM
    with torch.device(device):
        return auto.from_config(config)


def tensors_of(config):
    in_files.kind = config.model_type
    model = model_of(config, "meta")
    pairs = [x for n, p in model.named_parameters() for x in in_files(n, tuple(p.shape))]
    return sorted("%s %s" % (n, ",".join(map(str, s))) for n, s in pairs)


def saved_names(config):
    from safetensors import safe_open
    with tempfile.TemporaryDirectory() as d:
        model = model_of(config, "cpu")
        model.save_pretrained(d)
        tables = {n for n, _ in model.named_buffers()}
        with safe_open(os.path.join(d, "model.safetensors"), "pt") as f:
            return sorted("%s %s" % (k, ",".join(map(str, f.get_slice(k).get_shape()))) for k in f.keys()
                          if k not in tables)


def count(tensors):
    n = 0
    for t in tensors:
        size = 1
        for d in t.split(" ")[1].split(","):
            size *= int(d)
        n += size
    return n


def mask(bits):
    return sum(1 << i for i, b in enumerate(bits) if b)


def sizes_of(config):
    """What the class says beside shapes, by the names of model.config."""
    kind = config.model_type
    get = lambda *names: next((getattr(config, n) for n in names if getattr(config, n, None) is not None), 0)
    out = {"num_attention_heads": config.num_attention_heads,
           "rms_norm_eps": get("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_eps"),
           "max_position_embeddings": config.max_position_embeddings,
           "tie_word_embeddings": config.tie_word_embeddings}
    if kind not in ("gpt2", *MASKED):
        heads = config.num_attention_heads
        out["num_key_value_heads"] = config.num_key_value_heads
        out["head_dim"] = get("head_dim") or config.hidden_size // heads
        rope = config.rope_parameters
        rope = rope.get("full_attention", rope)
        out["rope_theta"] = rope["rope_theta"]
        out["rope_type"] = rope["rope_type"]
        out["rope_factor"] = rope.get("factor", 0)
    if kind == "gemma3_text":
        out["rope_local_base_freq"] = config.rope_parameters["sliding_attention"]["rope_theta"]
    if kind in ("gpt2", *MASKED):
        act = get("hidden_act", "activation_function", "hidden_activation")
        out["hidden_act"] = {"gelu_new": "gelu_tanh"}.get(act, act)
    if kind == "modernbert":
        ropes = config.rope_parameters
        out["rope_theta"] = ropes["full_attention"]["rope_theta"]
        out["rope_local_base_freq"] = ropes["sliding_attention"]["rope_theta"]
    if kind.endswith("roberta"):
        out["first_position"] = config.pad_token_id + 1
    types = getattr(config, "layer_types", None) or []
    window = get("sliding_window")
    if kind in ("qwen2", "qwen3", "gemma2", "gemma3_text", "ministral", "gpt_oss", "modernbert"):
        window += kind == "modernbert"  # the token itself
        some = any(t == "sliding_attention" for t in types)
        out["sliding_window"] = window if some else 0
        out["layer_mask"] = mask(t == "full_attention" for t in types) if some else 0
    elif kind in ("mistral", "mixtral", "phi3", "qwen3_moe"):
        out["sliding_window"] = window
    if kind == "smollm3":
        out["layer_mask"] = mask(not r for r in config.no_rope_layers)
    if kind == "minimax":
        out["rotary_dim"] = int((getattr(config, "rotary_dim", 0) or 0))
    if kind in ("minimax", "qwen3_5_text", "qwen3_next", "qwen3_5_moe_text"):
        out["layer_mask"] = mask(t == "linear_attention" for t in types)
    if kind in ("qwen3_5_text", "qwen3_next", "qwen3_5_moe_text"):
        out["rotary_dim"] = int(out["head_dim"] * rope["partial_rotary_factor"])
    if kind in ("qwen2_moe", "qwen3_moe", "qwen3_next"):
        which = "dense_mask" if kind == "qwen3_next" else "layer_mask"
        out[which] = mask(i in config.mlp_only_layers or (i + 1) % config.decoder_sparse_step
                          for i in range(config.num_hidden_layers))
    for name in ("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "embedding_multiplier",
                 "attention_multiplier", "residual_multiplier", "logits_scaling", "norm_topk_prob",
                 "num_experts_per_tok", "linear_attn_alpha_factor", "linear_attn_beta_factor",
                 "full_attn_alpha_factor", "full_attn_beta_factor", "mlp_alpha_factor", "mlp_beta_factor",
                 "linear_conv_kernel_dim", "linear_key_head_dim", "linear_value_head_dim", "linear_num_key_heads",
                 "linear_num_value_heads", "shared_expert_intermediate_size"):
        if hasattr(config, name):
            out[name] = get(name)
    return out


def same(want, sizes):
    bad = []
    for k, v in want.items():
        have = sizes.get(k, 0)
        if k in ("layer_mask", "dense_mask"):
            have = sum(b << 32 * i for i, b in enumerate(have or []))
        if k == "rope_type" and not have:
            have = "default"
        if have != v:
            bad.append("%s: %s, transformers %s" % (k, have, v))
    return bad


def digest(tensors):
    return hashlib.sha256("".join(t + "\n" for t in tensors).encode()).hexdigest()[:16]


def compare(name, text, got):
    """0 or 1 differences; also what transformers says."""
    config = from_config(text)
    want, tensors = sizes_of(config), tensors_of(config)
    bad = [got[0]] if got[1] is None else same(want, got[0])
    if got[1] is not None and tensors != got[1]:
        bad.append("tensors: %s" % sorted(set(tensors) ^ set(got[1]))[:4])
    if bad:
        print("%s: %s" % (name, "; ".join(bad)), file=sys.stderr)
    return bool(bad), want, tensors


def block(program, name, base):
    in_files.kind = base["model_type"]
    assert tensors_of(from_config(base)) == saved_names(from_config(base)), name
    print("config", name)
    for k, v in base.items():
        print("key %s: %s" % (json.dumps(k), json.dumps(v)))
    keys = ["-"] + [k for k in base if k not in HOUSE] + ["*"]  # *: every one of them
    cases = [{k: v for k, v in base.items() if k != x and (x != "*" or k in HOUSE)} for x in keys]
    bad = 0
    for x, case, got in zip(keys, cases, ours(program, cases)):
        if got[1] is None and ("no window is set" in got[0] or "of its own code" in got[0]):
            continue  # the package makes a model that cannot run, or that is not the first release's
        try:
            one, want, tensors = compare("%s without %s" % (name, x), case, got)
        except Exception as e:  # the package makes no model of it
            print("%s without %s: no model: %s" % (name, x, str(e).splitlines()[0]), file=sys.stderr)
            continue
        bad += one
        if x == "-":
            whole, first = want, (count(tensors), digest(tensors))
        differs = {k: v for k, v in want.items() if x == "-" or whole.get(k) != v}
        if x == "-" or differs or (count(tensors), digest(tensors)) != first:
            print("case", x, count(tensors), digest(tensors), json.dumps(differs))
    return bad


def check(program, path):
    with open(path) as f:
        texts = json.load(f)
    texts = texts.get("configs", texts)
    texts = {path: texts} if "model_type" in texts else texts
    taken = bad = 0
    for (name, text), got in zip(texts.items(), ours(program, texts.values())):
        taken += got[1] is not None
        if got[1] is None:
            print("%s: refused: %s" % (name, got[0]))
            continue
        try:
            one, _, tensors = compare(name, text, got)
        except ValueError as e:  # no class of the package
            print("%s: %d parameters; not compared: %s" % (name, count(got[1]), str(e).splitlines()[0][:60]))
            continue
        bad += one
        print("%s: %d parameters, transformers %d" % (name, count(got[1]), count(tensors)))
    print("%d of %d taken, %d differ" % (taken, len(texts), bad))
    return bad


def main():
    program = build()
    if sys.argv[1:2] == ["--check"]:
        sys.exit(1 if sum(check(program, p) for p in sys.argv[2:]) else 0)
    bad = 0
    for kind, sizes in BASES.items():
        base = {"architectures": [], "model_type": kind, "pad_token_id": 2, **sizes}
        bad += block(program, kind, base)
        if kind in CLASSES:
            continue
        written = from_config(base).to_dict()
        written = {k: v for k, v in written.items()
                   if v is not None and k not in HOUSE - {"model_type", "pad_token_id"}}
        bad += block(program, kind + "_v5", {"architectures": [], **written})
    print("%d cases differ" % bad, file=sys.stderr)
    sys.exit(1 if bad else 0)


main()
