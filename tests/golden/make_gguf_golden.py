#!/usr/bin/env python3
"""Writes tests/golden/gguf: small GGUF files with llama.cpp's own answers.

ARCH.gguf: two to six layers, random weights of every type that is read, as convert_hf_to_gguf.py writes
them (its permutation of q and k, its 1 + norm, its rope_freqs). ARCH.safetensors: ids int32 [1, S];
llama_cpp and logits float32 [1, S, V], by llama.cpp and by transformers, both in fp32, on the same weights
dequantised by the package gguf.
KIND.gguf: the vocabulary of a file of tests/golden/tokenizers; KIND.txt: strings in hexadecimal, their ids
without and with the ids around a text, by llama.cpp, separated by tabs.

Needed only to make the files again: pip install torch transformers gguf llama-cpp-python"""
import ctypes
import json
import math
import os
import pathlib
import sys
import tempfile

import gguf
import llama_cpp as L
import numpy as np
import torch
import transformers as T
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
OUT = HERE / "gguf"
Q = gguf.GGMLQuantizationType
TYPES = [Q.Q4_0, Q.Q8_0, Q.Q4_1, Q.BF16, Q.Q4_0, Q.F16, Q.Q4_1]
V, S = 48, 24


# ---- llama.cpp ----------------------------------------------------------------------------------


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def quiet(level, text, data):
    if level == 4:
        sys.stderr.write(text.decode(errors="replace"))


L.llama_log_set(quiet, None)


def load(path, vocab_only):
    p = L.llama_model_default_params()
    p.vocab_only = vocab_only
    p.use_mmap = False
    m = L.llama_model_load_from_file(str(path).encode(), p)
    assert m, path
    return m


def logits(path, ids):
    m = load(path, False)
    p = L.llama_context_default_params()
    p.n_ctx, p.n_batch, p.n_ubatch, p.n_threads, p.n_threads_batch = 256, 256, 256, 1, 1
    p.type_k = p.type_v = 0  # F32
    p.flash_attn_type = 0
    c = L.llama_init_from_model(m, p)
    b = L.llama_batch_init(len(ids), 0, 1)
    b.n_tokens = len(ids)
    for i, t in enumerate(ids):
        b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = t, i, 1, 1
        b.seq_id[i][0] = 0
    assert L.llama_decode(c, b) == 0
    out = np.ctypeslib.as_array(L.llama_get_logits(c), (len(ids), V)).copy()
    L.llama_free(c)
    L.llama_model_free(m)
    return out


def tokenize(m, text, special):
    n = len(text) * 4 + 16
    ids = (L.llama_token * n)()
    k = L.llama_tokenize(L.llama_model_get_vocab(m), text, len(text), ids, n, special, True)
    assert k >= 0
    return list(ids[:k])


# ---- models -------------------------------------------------------------------------------------

SIZES = dict(vocab_size=V, hidden_size=32, intermediate_size=64, num_attention_heads=2, num_key_value_heads=1,
             head_dim=32, max_position_embeddings=256, rms_norm_eps=1e-5, pad_token_id=0, bos_token_id=None,
             eos_token_id=None)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e3, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}


def configs():
    yield "llama", T.LlamaConfig(num_hidden_layers=2, tie_word_embeddings=False, rope_parameters=LLAMA3, **SIZES)
    yield "qwen2", T.Qwen2Config(num_hidden_layers=2, tie_word_embeddings=True,
                                 rope_parameters={"rope_type": "default", "rope_theta": 1e6},
                                 **(SIZES | {"head_dim": 16}))  # llama.cpp wants width = heads * head
    yield "qwen3", T.Qwen3Config(num_hidden_layers=2, tie_word_embeddings=False,
                                 rope_parameters={"rope_type": "default", "rope_theta": 1e6}, **SIZES)
    rope = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    yield "gemma3", T.Gemma3TextConfig(num_hidden_layers=6, tie_word_embeddings=True, sliding_window=5,
                                       query_pre_attn_scalar=32, rope_parameters=rope, **SIZES)


LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
GEMMA = LAYER | {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                 "post_feedforward_layernorm": "post_ffw_norm"}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def name_of(arch, hf):
    stem, end = hf.rsplit(".", 1)
    if not stem.startswith("model.layers."):
        return f"{WHOLE[stem]}.{end}"
    n, rest = stem[len("model.layers."):].split(".", 1)
    return f"blk.{n}.{(GEMMA if arch == 'gemma3' else LAYER)[rest]}.{end}"


def permute(x, heads):  # LlamaModel.permute of convert_hf_to_gguf.py
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def unpermute(x, heads):
    return x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def stored(arch, config, hf, x, back=False):
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    if arch == "llama":
        for key, n in heads.items():
            if f".{key}." in hf:
                return (unpermute if back else permute)(x, n)
    if arch == "gemma3" and hf.endswith("norm.weight"):
        return x - 1 if back else x + 1
    return x


def add_keys(w, arch, c):
    w.add_vocab_size(V)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_key_length(c.head_dim)
    w.add_value_length(c.head_dim)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    rope = c.rope_parameters
    if arch == "gemma3":
        w.add_sliding_window(c.sliding_window)
        rope = rope["full_attention"]
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(rope["factor"])
    if arch == "llama":
        w.add_rope_dimension_count(c.head_dim)
    w.add_rope_freq_base(rope["rope_theta"])
    w.add_tokenizer_model("no_vocab")


def factors(c):  # as convert_hf_to_gguf.py computes rope_freqs.weight
    r, out = c.rope_parameters, []
    for i in range(0, c.head_dim, 2):
        wave = 2 * math.pi * r["rope_theta"] ** (i / c.head_dim)
        old, low, high = r["original_max_position_embeddings"], r["low_freq_factor"], r["high_freq_factor"]
        if wave < old / high:
            out.append(1)
        elif wave > old / low:
            out.append(r["factor"])
        else:
            smooth = (old / wave - low) / (high - low)
            out.append(1 / ((1 - smooth) / r["factor"] + smooth))
    return np.array(out, np.float32)


def write(path, arch, c, tensors):
    w = gguf.GGUFWriter(path, arch)
    add_keys(w, arch, c)
    if arch == "llama":
        w.add_tensor("rope_freqs.weight", factors(c))
    for name, x, kind in tensors:
        if kind == Q.F32:
            w.add_tensor(name, x)
        else:
            w.add_tensor(name, x, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def model(arch, c):
    torch.manual_seed(7)
    m = T.AutoModelForCausalLM.from_config(c, attn_implementation="eager").float().eval()
    state, packed, plain, k = {}, [], [], 0
    for hf, p in m.named_parameters():
        x = (0.3 * torch.randn(p.shape)).numpy()
        if hf.endswith("norm.weight"):
            x = x + (0 if arch == "gemma3" else 1)
        x = stored(arch, c, hf, x).astype(np.float32)
        kind = Q.F32 if x.ndim == 1 else TYPES[k % len(TYPES)]
        k += x.ndim > 1
        raw = x if kind == Q.F32 else gguf.quants.quantize(x, kind)
        y = x if kind == Q.F32 else gguf.quants.dequantize(raw, kind).astype(np.float32)
        packed.append((name_of(arch, hf), raw, kind))
        plain.append((name_of(arch, hf), y, Q.F32))
        state[hf] = torch.tensor(stored(arch, c, hf, y, back=True).copy())
    m.load_state_dict(state, strict=False)
    m.tie_weights()
    ids = torch.randint(0, V, (1, S))
    with tempfile.TemporaryDirectory() as d:
        write(f"{d}/plain.gguf", arch, c, plain)
        got = logits(f"{d}/plain.gguf", ids[0].tolist())
    with torch.no_grad():
        want = m(ids).logits[0].numpy()
    off = np.linalg.norm(got - want) / np.linalg.norm(want)
    write(OUT / f"{arch}.gguf", arch, c, packed)
    rough = logits(OUT / f"{arch}.gguf", ids[0].tolist())
    print(f"{arch}: llama.cpp and transformers differ by {off:.2g}; with its products of 8-bit activations by "
          f"{np.linalg.norm(rough - want) / np.linalg.norm(want):.2g}")
    assert off < (1e-3 if arch == "gemma3" else 1e-5)  # ggml has GELU as a table of fp16
    save_file({"ids": ids.int(), "logits": torch.tensor(want)[None].contiguous(),
               "llama_cpp": torch.tensor(got)[None].contiguous()}, OUT / f"{arch}.safetensors")


# ---- tokenizers ---------------------------------------------------------------------------------

KINDS = {"llama2": ("llama2", None), "gemma": ("gemma", None), "llama3": ("llama3", "llama-bpe"),
         "qwen": ("qwen", "qwen2"), "gpt2": ("gpt2", "gpt-2"), "smollm": ("gpt2", "smollm"), "tekken": ("o200k", "tekken")}


def vocabulary(kind, source, pre):
    j = json.loads((HERE / f"tokenizers/{source}.json").read_text())
    merges = [m if isinstance(m, list) else m.split(" ") for m in j["model"]["merges"]]
    tokens = dict(j["model"]["vocab"])
    added = {a["content"]: a for a in j["added_tokens"] if a["special"] or pre is None}
    tokens.update({a["content"]: a["id"] for a in added.values()})
    n = max(tokens.values()) + 1
    by_id = {i: t for t, i in tokens.items()}
    rank = {}
    for i, (a, b) in enumerate(merges):
        rank.setdefault(a + b, i)
    text, types, scores = [], [], []
    for i in range(n):
        t = by_id.get(i, f"[PAD{i}]")
        a = added.get(t)
        byte = pre is None and len(t) == 6 and t.startswith("<0x")
        kinds = gguf.TokenType
        types.append(kinds.UNKNOWN if t == "<unk>" else kinds.CONTROL if a and a["special"] else
                     kinds.USER_DEFINED if a else kinds.BYTE if byte else kinds.UNUSED if i not in by_id else
                     kinds.NORMAL)
        text.append(t)
        scores.append(float(-rank.get(t, 10000 + i)) if types[-1] == kinds.NORMAL else 0.0)
    w = gguf.GGUFWriter(OUT / f"{kind}.gguf", "llama")
    w.add_vocab_size(n)
    w.add_tokenizer_model("llama" if pre is None else "gpt2")
    if pre:
        w.add_tokenizer_pre(pre)
    w.add_token_list(text)
    w.add_token_types(types)
    if pre is None:
        w.add_token_scores(scores)
        w.add_add_space_prefix(source != "gemma")
        w.add_unk_token_id(tokens["<unk>"])
    else:
        w.add_token_merges([f"{a} {b}" for a, b in merges])
    single = [t for t in ("<s>", "<bos>", "<|begin_of_text|>", "<|endoftext|>", "<|start|>") if t in added]
    if single:
        w.add_bos_token_id(tokens[single[0]])
        w.add_eos_token_id(tokens[single[0]])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    m, lines, other = load(OUT / f"{kind}.gguf", True), [], 0
    for line in (HERE / f"tokenizers/{source}.txt").read_text().split("\n"):
        if not line:
            continue
        part = line.split("\t")
        s = bytes.fromhex(part[0])
        if not s or b"\0" in s:
            continue
        ids = [tokenize(m, s, special) for special in (False, True)]
        other += part[1].split() != [str(i) for i in ids[0]]
        lines.append("\t".join([part[0]] + [" ".join(map(str, i)) for i in ids]))
    (OUT / f"{kind}.txt").write_text("\n".join(lines) + "\n")
    L.llama_model_free(m)
    print(f"{kind}: {len(lines)} strings, {other} of them with other ids than the package tokenizers")


OUT.mkdir(exist_ok=True)
for kind, (source, pre) in KINDS.items():
    if len(sys.argv) < 2 or kind in sys.argv[1:]:
        vocabulary(kind, source, pre)
for arch, config in configs():
    if len(sys.argv) < 2 or arch in sys.argv[1:]:
        model(arch, config)
for f in OUT.iterdir():
    os.chmod(f, 0o644)
