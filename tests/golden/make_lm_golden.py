#!/usr/bin/env python3
"""Writes one directory per language model: config.json and model.safetensors as a user has them, and
golden.safetensors with what the model must compute, in float64.

An oracle that shares no code with the engine. All but TransNormerLLM, the linear transformer and
RetNet are the models of the Python package transformers, told to compute in float64 throughout; each document is run alone, and the
results are joined. The others are written here from their definitions, with whole matrices of decays
and no recursion. Needed only to make the files again: pip install torch transformers.

golden.safetensors: ids, targets, pos, lo, hi int32 [n, S] (row i sees keys lo[i] .. hi[i] - 1);
logits float32 [n, S, V]; loss float64 [1]: mean over all targets of all n samples; grad:NAME
float32: its gradient, of every tensor of model.safetensors. Weights are exact in bfloat16.

usage: make_lm_golden.py [NAME ...]"""
import copy
import json
import math
import pathlib
import random
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
S = 37  # no multiple of 2, 3, 4 or 8
MASK = 258


# ---- samples -----------------------------------------------------------------------------------


class Sample:
    """Documents begin at `starts`. On four ranks (10, 10, 10, 7 rows) documents begin on an edge
    (20) and span one; rows from bare_from on have no target: a whole rank has none."""

    def __init__(self, rng, starts, reset, bare_from, masked, causal):
        ends = starts[1:] + [S]
        doc = [max(s for s in starts if s <= i) for i in range(S)]
        self.docs = list(zip(starts, ends))
        self.ids = [rng.randrange(256) for _ in range(S)]
        self.pos = [i - doc[i] if reset else i for i in range(S)]
        self.lo = doc
        self.hi = [i + 1 if causal else min(e for e in ends if e > i) for i in range(S)]
        if masked:  # a masked language model: some tokens are hidden and must be told
            self.targets = [self.ids[i] if rng.random() < 0.3 and i < bare_from else -1
                            for i in range(S)]
            self.ids = [MASK if t >= 0 and rng.random() < 0.8 else self.ids[i]
                        for i, t in enumerate(self.targets)]
        else:
            self.targets = [self.ids[i + 1] if i + 1 not in starts + [S] and i < bare_from else -1
                            for i in range(S)]


def samples(seed, reset=True, masked=False, causal=True):
    rng = random.Random(seed)
    return [Sample(rng, [0, 7, 8, 20, 33], reset, 30, masked, causal),
            Sample(rng, [0], reset, S, masked, causal)]


# ---- what is common to the models written here ---------------------------------------------------


def rms(x, g=None, eps=1e-6):
    y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    return y if g is None else y * g


def rotate(x, pos, theta=10000.0):  # [S, H, D], halves
    d = x.shape[-1]
    angle = pos[:, None, None] * theta ** (-torch.arange(0, d, 2) / d)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def decayed(q, k, v, slope, lo, scale):
    """o_i = scale sum_j exp(-slope (i - j)) (q_i k_j) v_j over the visible j <= i: the whole matrix."""
    i = torch.arange(q.shape[0])
    gap = i[:, None] - i[None, :]
    seen = (gap >= 0) & (i[None, :] >= lo[:, None])
    weight = torch.exp(-slope[:, None, None] * gap.clamp(min=0)) * seen
    score = torch.einsum("ihd,jhd->hij", q, k) * weight * scale
    return torch.einsum("hij,jhd->ihd", score, v), score.sum(-1).T


def heads(x, n):
    return x.reshape(x.shape[0], n, -1)


# ---- TransNormerLLM ------------------------------------------------------------------------------


def alibi(n):
    """Slopes of n heads: a geometric row for powers of two; otherwise that of the next lower power,
    and then every second one of twice as many heads."""
    def power_of_two(m):
        return [2.0 ** (-8.0 * (i + 1) / m) for i in range(m)]
    low = 2 ** int(math.floor(math.log2(n)))
    return power_of_two(low) + power_of_two(2 * low)[0::2][:n - low]


def tnl(c, w, ids, pos, lo):
    L, H = c["decoder_layers"], c["decoder_attention_heads"]
    x = w["model.embed_tokens.weight"][ids]
    if not c["no_scale_embedding"]:
        x = x * math.sqrt(c["decoder_embed_dim"])
    for l in range(L):
        p = f"model.layers.{l}."
        h = rms(x)
        q, k, v, u = (h @ w[p + "token_mixer.qkvu_proj.weight"].T).chunk(4, -1)
        q, k, v = heads(F.silu(q), H), heads(F.silu(k), H), heads(v, H)
        if c["linear_use_lrpe_list"] and c["linear_use_lrpe_list"][l]:
            angle = w[p + "token_mixer.lrpe.theta"].transpose(0, 1) * pos[:, None, None]
            q, k = (torch.cat([t * angle.cos(), t * angle.sin()], -1) for t in (q, k))
        slope = torch.tensor(alibi(H)) * (1 - l / (L - 1) + 1e-5)
        o = decayed(q, k, v, slope, lo, 1.0)[0].reshape(x.shape[0], -1)
        x = x + (u * rms(o)) @ w[p + "token_mixer.out_proj.weight"].T
        h, m = rms(x), p + "channel_mixer."
        x = x + ((h @ w[m + "l1.weight"].T) * (h @ w[m + "l2.weight"].T)) @ w[m + "l3.weight"].T
    return rms(x) @ w["lm_head.weight"].T


def tnl_shapes(c):
    D, E, G, V, H = (c[k] for k in ("decoder_embed_dim", "hidden_dim", "glu_dim", "vocab_size",
                                    "decoder_attention_heads"))
    out = {"model.embed_tokens.weight": (V, D), "lm_head.weight": (V, D)}
    for l in range(c["decoder_layers"]):
        p = f"model.layers.{l}."
        out[p + "token_mixer.qkvu_proj.weight"] = (4 * E, D)
        out[p + "token_mixer.out_proj.weight"] = (D, E)
        if c["linear_use_lrpe_list"] and c["linear_use_lrpe_list"][l]:
            out[p + "token_mixer.lrpe.theta"] = (H, 1, E // H)
        for name, shape in (("l1", (G, D)), ("l2", (G, D)), ("l3", (D, G))):
            out[p + f"channel_mixer.{name}.weight"] = shape
    return out


# ---- linear transformer and RetNet ---------------------------------------------------------------


def fla_layers(c, w, ids, mixer):
    x = w["model.embeddings.weight"][ids]
    for l in range(c["num_hidden_layers"]):
        p, eps = f"model.layers.{l}.", c["norm_eps"]
        x = x + mixer(l, rms(x, w[p + "attn_norm.weight"], eps), p + "attn.")
        h = rms(x, w[p + "mlp_norm.weight"], eps)
        h = F.silu(h @ w[p + "mlp.gate_proj.weight"].T) * (h @ w[p + "mlp.up_proj.weight"].T)
        x = x + h @ w[p + "mlp.down_proj.weight"].T
    head = "model.embeddings" if c["tie_word_embeddings"] else "lm_head"
    return rms(x, w["model.norm.weight"], c["norm_eps"]) @ w[head + ".weight"].T


def linear(c, w, ids, pos, lo):
    H = c["num_heads"]
    feature = {"elu": lambda t: F.elu(t) + 1, "relu": F.relu, "identity": lambda t: t}
    phi = feature[c["feature_map"]]

    def mixer(l, h, p):
        q, k, v = (heads(h @ w[p + n + "_proj.weight"].T, H) for n in "qkv")
        q, k = phi(q), phi(k)
        o, z = decayed(q, k, v, torch.zeros(H), lo, q.shape[-1] ** -0.5)
        if c["norm_feature_map"]:
            o = o / (z[..., None] + 1e-10)
        o = rms(o, w[p + "norm.weight"], c["norm_eps"])
        return o.reshape(h.shape[0], -1) @ w[p + "o_proj.weight"].T
    return fla_layers(c, w, ids, mixer)


def retnet(c, w, ids, pos, lo):
    H = c["num_heads"]
    slope = -torch.log(1 - 2.0 ** (-5.0 - torch.arange(H)))

    def mixer(l, h, p):
        q, k, v, g = (heads(h @ w[p + n + "_proj.weight"].T, H) for n in "qkvg")
        q, k = rotate(q, pos), rotate(k, pos)
        o = decayed(q, k, v, slope, lo, q.shape[-1] ** -0.5)[0]
        o = rms(o, w[p + "g_norm_swish_gate.weight"], c["norm_eps"]) * F.silu(g)
        return o.reshape(h.shape[0], -1) @ w[p + "o_proj.weight"].T
    return fla_layers(c, w, ids, mixer)


def fla_shapes(c):
    C, H, I, V = (c[k] for k in ("hidden_size", "num_heads", "intermediate_size", "vocab_size"))
    K, W = round(C * c["expand_k"]), round(C * c["expand_v"])
    out = {"model.embeddings.weight": (V, C), "model.norm.weight": (C,)}
    if not c["tie_word_embeddings"]:
        out["lm_head.weight"] = (V, C)
    for l in range(c["num_hidden_layers"]):
        p = f"model.layers.{l}."
        out.update({p + "attn_norm.weight": (C,), p + "mlp_norm.weight": (C,),
                    p + "attn.q_proj.weight": (K, C), p + "attn.k_proj.weight": (K, C),
                    p + "attn.v_proj.weight": (W, C), p + "attn.o_proj.weight": (C, W),
                    p + "mlp.gate_proj.weight": (I, C), p + "mlp.up_proj.weight": (I, C),
                    p + "mlp.down_proj.weight": (C, I)})
        if c["model_type"] == "retnet":
            out[p + "attn.g_proj.weight"] = (W, C)
            out[p + "attn.g_norm_swish_gate.weight"] = (W // H,)
        else:
            out[p + "attn.norm.weight"] = (W // H,)
    return out


def fresh(shape, name):
    """A weight of a size at which every gradient matters, exact in bfloat16."""
    if name.endswith("theta"):
        n = math.prod(shape)
        t = (10000.0 ** (-2 / n * torch.arange(n))).reshape(shape)
    elif len(shape) == 1:
        t = (0.1 if name.endswith("bias") else 1) + 0.1 * torch.randn(shape)
    else:
        t = torch.randn(shape) / math.sqrt(shape[-1]) * 1.2
    return t.bfloat16().double()


class Own:
    """A model written here: forward(config, weights, ids, pos, lo) -> logits."""

    def __init__(self, config, forward, shapes):
        self.config, self.forward = config, forward
        self.w = {n: fresh(s, n).requires_grad_() for n, s in shapes(config).items()}

    def logits(self, s):
        return self.forward(self.config, self.w, *(torch.tensor(t) for t in (s.ids, s.pos, s.lo)))

    def save(self, path):
        (path / "config.json").write_text(json.dumps(self.config, indent=1) + "\n")
        save_file({n: t.detach().bfloat16().contiguous() for n, t in self.w.items()},
                  path / "model.safetensors", {"format": "pt"})

    def gradients(self, path):
        return {n: t.grad for n, t in self.w.items()}


# ---- models of the package transformers ----------------------------------------------------------


def in_float64(module):
    """The package computes norms, rotations and softmax in float32 whatever the model's type: let the
    names of that type mean float64 in this module."""
    class Torch:
        def __getattr__(self, name):
            return torch.float64 if name in ("float32", "float") else getattr(torch, name)
    module.torch = Torch()


class Package:
    """A model of the package, run document by document: no mask of ours is involved."""

    def __init__(self, config, model, module, masked=False, first=0):
        in_float64(module)
        self.config, self.masked, self.first = config, masked, first
        self.model = model(config).double().eval()
        with torch.no_grad():
            for n, p in self.model.named_parameters():
                p.copy_(fresh(tuple(p.shape), n))

    def logits(self, s):
        out = []
        for a, b in s.docs:
            arg = {} if self.masked else {"use_cache": False}
            out.append(self.model(input_ids=torch.tensor([s.ids[a:b]]),
                                  position_ids=torch.tensor([s.pos[a:b]]) + self.first,
                                  **arg).logits[0])
        return torch.cat(out)

    def save(self, path):
        copy.deepcopy(self.model).bfloat16().save_pretrained(path)  # not ours: gradients go along
        (path / "generation_config.json").unlink(missing_ok=True)

    def gradients(self, path):
        """Under the names of the file: the package itself translates."""
        with torch.no_grad():
            grads = {n: p.grad for n, p in self.model.named_parameters()}
            for n, p in self.model.named_parameters():
                p.copy_(torch.zeros_like(p) if grads[n] is None else grads[n])
        aside = path / "gradients"
        self.model.save_pretrained(aside)
        out = load_file(aside / "model.safetensors")
        for f in aside.iterdir():
            f.unlink()
        aside.rmdir()
        return out


def bert(**kw):
    from transformers import BertConfig, BertForMaskedLM
    from transformers.models.bert import modeling_bert
    c = BertConfig(vocab_size=259, max_position_embeddings=48, type_vocab_size=2,
                   attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0, pad_token_id=257,
                   attn_implementation="eager", **kw)
    return Package(c, BertForMaskedLM, modeling_bert, masked=True)


def roberta(**kw):
    from transformers import RobertaConfig, RobertaForMaskedLM
    from transformers.models.roberta import modeling_roberta
    c = RobertaConfig(vocab_size=259, attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0,
                      attn_implementation="eager", **kw)
    return Package(c, RobertaForMaskedLM, modeling_roberta, masked=True, first=c.pad_token_id + 1)


def modernbert(**kw):
    from transformers import ModernBertConfig, ModernBertForMaskedLM
    from transformers.models.modernbert import modeling_modernbert
    torch.Tensor.float = torch.Tensor.double
    c = ModernBertConfig(vocab_size=259, max_position_embeddings=48, pad_token_id=257, bos_token_id=256,
                         eos_token_id=256, cls_token_id=256, sep_token_id=256,
                         attn_implementation="eager", **kw)
    return Package(c, ModernBertForMaskedLM, modeling_modernbert, masked=True)


def without(pad, batch):
    """The package gives what stands for padding neither a position nor a gradient."""
    for s in batch:
        s.ids = [pad + 1 if i == pad else i for i in s.ids]
        s.targets = [pad + 1 if i == pad else i for i in s.targets]
    return batch


def mistral(**kw):
    from transformers import MistralConfig, MistralForCausalLM
    from transformers.models.mistral import modeling_mistral
    c = MistralConfig(vocab_size=258, attn_implementation="eager", pad_token_id=257, **kw)
    return Package(c, MistralForCausalLM, modeling_mistral)


def ministral(**kw):
    from transformers import MinistralConfig, MinistralForCausalLM
    from transformers.models.ministral import modeling_ministral
    c = MinistralConfig(vocab_size=258, attn_implementation="eager", pad_token_id=257, **kw)
    return Package(c, MinistralForCausalLM, modeling_ministral)


def gemma2(**kw):
    from transformers import Gemma2Config, Gemma2ForCausalLM
    from transformers.models.gemma2 import modeling_gemma2
    torch.Tensor.float = torch.Tensor.double  # norms'
    c = Gemma2Config(vocab_size=258, attn_implementation="eager", pad_token_id=257, **kw)
    return root(Package(c, Gemma2ForCausalLM, modeling_gemma2))


def gemma3(**kw):
    from transformers import Gemma3TextConfig, Gemma3ForCausalLM
    from transformers.models.gemma3 import modeling_gemma3
    torch.Tensor.float = torch.Tensor.double
    c = Gemma3TextConfig(vocab_size=258, attn_implementation="eager", pad_token_id=257, **kw)
    return root(Package(c, Gemma3ForCausalLM, modeling_gemma3))


def root(m):
    """The stored scale of embeddings, of float64 and not of what was rounded; norms near 1 + 0."""
    with torch.no_grad():
        for n, p in m.model.named_parameters():
            if "norm" in n:
                p -= 1
    e = m.model.model.embed_tokens
    e.embed_scale = torch.tensor(e.scalar_embed_scale, dtype=torch.float64)
    return m


def mixture(name, module, **kw):
    """Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE."""
    import importlib
    import transformers
    mod = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    torch.Tensor.float = torch.Tensor.double
    c = getattr(transformers, name + "Config")(
        vocab_size=258, attn_implementation="eager", experts_implementation="eager",
        pad_token_id=257, **kw)
    return Package(c, getattr(transformers, name + "ForCausalLM"), mod)


def gated_delta(config, model, module, **kw):
    """The rule is the recurrence, a row at a time, as the package has it for one token; chunks are
    not."""
    import importlib
    import transformers
    mod = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    torch.Tensor.float = torch.Tensor.double
    if "num_experts" in kw:
        kw["experts_implementation"] = "eager"
    c = getattr(transformers, config)(vocab_size=258, attn_implementation="eager", pad_token_id=257,
                                      **kw)
    m = Package(c, getattr(transformers, model), mod)
    mod.torch_chunk_gated_delta_rule = mod.torch_recurrent_gated_delta_rule
    with torch.no_grad():
        for n, p in m.model.named_parameters():
            if "norm" in n and "linear_attn" not in n:
                p -= 1
            if n.endswith("A_log"):  # heads that forget at once and heads that hardly do
                p.copy_(torch.linspace(-3, 1, p.numel()).bfloat16())
    return m


def qwen3_5(**kw):
    return gated_delta("Qwen3_5TextConfig", "Qwen3_5ForCausalLM", "qwen3_5", **kw)


def qwen3_next(**kw):
    return gated_delta("Qwen3NextConfig", "Qwen3NextForCausalLM", "qwen3_next", **kw)


def qwen3_5_moe(**kw):
    return gated_delta("Qwen3_5MoeTextConfig", "Qwen3_5MoeForCausalLM", "qwen3_5_moe", **kw)


def gpt_oss(**kw):
    """Sinks of a score's size, of either sign, and experts beyond the clamp."""
    from transformers import modeling_rope_utils
    in_float64(modeling_rope_utils)
    m = mixture("GptOss", "gpt_oss", **kw)
    with torch.no_grad():
        for n, p in m.model.named_parameters():
            if n.endswith("sinks"):
                p.copy_((1.5 * torch.randn(p.shape)).bfloat16().double())
            if n.endswith("gate_up_proj_bias"):
                p.copy_((4 * torch.randn(p.shape)).bfloat16().double())
            if n.endswith(("experts.gate_up_proj", "experts.down_proj")):
                p.copy_((1.2 * torch.randn(p.shape) / math.sqrt(p.shape[1])).bfloat16().double())
    return m


def qwen3(**kw):
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from transformers.models.qwen3 import modeling_qwen3
    c = Qwen3Config(vocab_size=258, attn_implementation="eager", pad_token_id=257, **kw)
    return Package(c, Qwen3ForCausalLM, modeling_qwen3)


def decoder(name, config, model, **kw):
    """Another decoder of the package. RoPE that depends on the length has that of the whole sample,
    whatever the length of a document."""
    import importlib
    import transformers
    from transformers import modeling_rope_utils
    in_float64(modeling_rope_utils)
    torch.Tensor.float = torch.Tensor.double
    c = getattr(transformers, config)(attn_implementation="eager", pad_token_id=257, bos_token_id=256,
                                      eos_token_id=256, **{"vocab_size": 263, **kw})
    m = Package(c, getattr(transformers, model),
                importlib.import_module(f"transformers.models.{name}.modeling_{name}"))
    if name == "gpt2":
        return m
    rope = m.model.model.rotary_emb
    kind = rope.rope_type
    if kind in ("dynamic", "longrope"):
        rope.inv_freq, rope.attention_scaling = modeling_rope_utils.ROPE_INIT_FUNCTIONS[kind](
            c, None, seq_len=S)
        rope.rope_type = "default"
    return m


def minimax(**kw):
    from transformers import MiniMaxConfig, MiniMaxForCausalLM
    from transformers.models.minimax import modeling_minimax
    c = MiniMaxConfig(vocab_size=258, attn_implementation="eager", pad_token_id=257,
                      experts_implementation="eager", **kw)
    torch.Tensor.float = torch.Tensor.double  # the router's
    m = Package(c, MiniMaxForCausalLM, modeling_minimax)
    m.model = m.model.double()
    for layer in m.model.model.layers:  # the stored decays, of float64 and not of what was rounded
        a = layer.self_attn
        if hasattr(a, "slope_rate"):
            a.slope_rate = a.get_slope_rate()
            a.query_decay, a.key_decay, a.diagonal_decay = a.decay_factors(a.slope_rate)
    return m


def partial(m, dims):
    """RoPE on the first `dims` columns of a head, as the first release of this family has it."""
    from transformers.models.minimax import modeling_minimax as mod
    whole = mod.apply_rotary_pos_emb

    def turn(q, k, cos, sin, unsqueeze_dim=1):
        q1, k1 = whole(q[..., :dims], k[..., :dims], cos, sin)
        return torch.cat([q1, q[..., dims:]], -1), torch.cat([k1, k[..., dims:]], -1)
    mod.apply_rotary_pos_emb = turn
    inv = m.config.rope_parameters["rope_theta"] ** (-torch.arange(0, dims, 2) / dims)
    m.model.model.rotary_emb.inv_freq = inv
    save = m.save

    def with_key(path):
        save(path)
        c = json.loads((path / "config.json").read_text())
        c["rotary_dim"] = dims
        (path / "config.json").write_text(json.dumps(c, indent=1) + "\n")
    m.save = with_key
    return m


# ---- the cases -----------------------------------------------------------------------------------

FULL, LINEAR, SLIDING = "full_attention", "linear_attention", "sliding_attention"
HEADS = dict(num_attention_heads=9, num_key_value_heads=3, head_dim=24)
SMALL = dict(hidden_size=18, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=3,
             head_dim=10, intermediate_size=26)
CASES = {
    # 9 heads: no power of two, where ALiBi interpolates
    "tnl": lambda: (Own(dict(
        architectures=["TransnormerForCausalLM"], model_type="transnormer", vocab_size=258,
        decoder_embed_dim=20, decoder_layers=2, decoder_attention_heads=9, hidden_dim=216,
        glu_dim=28, linear_act_fun="silu", norm_type="simplermsnorm", linear_use_lrpe_list=[1, 0],
        no_scale_embedding=False, add_bos_token=False, bias=False, init_std=0.02,
        max_position_embeddings=64, tie_word_embeddings=False), tnl, tnl_shapes), samples(1)),
    "tnl_wide": lambda: (Own(dict(
        model_type="transnormer", vocab_size=258, decoder_embed_dim=24, decoder_layers=3,
        decoder_attention_heads=2, hidden_dim=144, glu_dim=20, linear_act_fun="silu",
        norm_type="simplermsnorm", linear_use_lrpe_list=[], no_scale_embedding=True),
        tnl, tnl_shapes), samples(2, reset=False)),
    "linear": lambda: (Own(dict(
        architectures=["LinearAttentionForCausalLM"], model_type="linear_attn", vocab_size=258,
        hidden_size=24, num_hidden_layers=2, num_heads=9, expand_k=4.5, expand_v=9.0,
        intermediate_size=40, feature_map="elu", norm_feature_map=True, hidden_act="swish",
        norm_eps=0.05, tie_word_embeddings=False), linear, fla_shapes), samples(3)),
    "linear_relu": lambda: (Own(dict(
        model_type="linear_attn", vocab_size=258, hidden_size=32, num_hidden_layers=3, num_heads=1,
        expand_k=2.25, expand_v=1.5, intermediate_size=28, feature_map="relu", hidden_act="swish",
        norm_feature_map=False, norm_eps=1e-5, tie_word_embeddings=True), linear, fla_shapes),
        samples(4)),
    "retnet": lambda: (Own(dict(
        architectures=["RetNetForCausalLM"], model_type="retnet", vocab_size=258, hidden_size=24,
        num_hidden_layers=2, num_heads=9, expand_k=4.5, expand_v=9.0, intermediate_size=32,
        hidden_act="swish", use_output_gate=True, norm_eps=0.05, tie_word_embeddings=False), retnet,
        fla_shapes), samples(5)),
    "retnet_wide": lambda: (Own(dict(
        model_type="retnet", vocab_size=258, hidden_size=36, num_hidden_layers=2, num_heads=2,
        expand_k=2.0, expand_v=4.0, intermediate_size=20, hidden_act="swish", norm_eps=1e-5,
        tie_word_embeddings=True), retnet, fla_shapes), samples(6, reset=False)),
    # the largest heads: 256 columns of keys and 512 of values, as published; 512 of both
    "retnet_large": lambda: (Own(dict(
        model_type="retnet", vocab_size=258, hidden_size=8, num_hidden_layers=1, num_heads=2,
        expand_k=64.0, expand_v=128.0, intermediate_size=12, hidden_act="swish", norm_eps=0.05,
        tie_word_embeddings=True), retnet, fla_shapes), samples(40)),
    "linear_large": lambda: (Own(dict(
        model_type="linear_attn", vocab_size=258, hidden_size=8, num_hidden_layers=2, num_heads=1,
        expand_k=64.0, expand_v=64.0, intermediate_size=12, feature_map="elu", hidden_act="swish",
        norm_feature_map=True, norm_eps=0.05, tie_word_embeddings=True), linear, fla_shapes),
        samples(41)),
    "bert": lambda: (bert(hidden_size=54, num_hidden_layers=2, num_attention_heads=9,
                          intermediate_size=44), samples(7, masked=True, causal=False)),
    # the table ends where the longest document does; the head is gelu whatever the layers are
    "roberta": lambda: (roberta(hidden_size=54, num_hidden_layers=2, num_attention_heads=9,
                                intermediate_size=44, max_position_embeddings=S + 4, pad_token_id=3,
                                type_vocab_size=1, hidden_act="relu", layer_norm_eps=1e-5),
                        without(3, samples(24, masked=True, causal=False))),
    # windows that look both ways, and one layer without; the last two have every bias but one
    "modernbert": lambda: (modernbert(hidden_size=54, num_hidden_layers=3, num_attention_heads=9,
                                      intermediate_size=22, local_attention=8,
                                      layer_types=[FULL, SLIDING, FULL]),
                           samples(25, masked=True, causal=False)),
    "modernbert_wide": lambda: (modernbert(
        hidden_size=72, num_hidden_layers=2, num_attention_heads=1, intermediate_size=30,
        local_attention=25, layer_types=[SLIDING, SLIDING], attention_bias=True, mlp_bias=True,
        norm_bias=True, classifier_bias=True, decoder_bias=False, hidden_activation="silu",
        rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 3e4},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}}),
        samples(26, reset=False, masked=True, causal=False)),
    "bert_wide": lambda: (bert(hidden_size=72, num_hidden_layers=1, num_attention_heads=1,
                               intermediate_size=60, tie_word_embeddings=False),
                          samples(8, masked=True, causal=False)),
    "mistral": lambda: (mistral(hidden_size=20, num_hidden_layers=2, num_attention_heads=9,
                                num_key_value_heads=3, head_dim=24, intermediate_size=30,
                                sliding_window=6), samples(9)),
    # every layer in a window, every head normalised
    "qwen3": lambda: (qwen3(hidden_size=18, num_hidden_layers=2, num_attention_heads=6,
                            num_key_value_heads=3, head_dim=10, intermediate_size=26,
                            use_sliding_window=True, sliding_window=9, max_window_layers=0,
                            tie_word_embeddings=True), samples(12)),
    # RoPE's rules, and biases; [1:]: of the sample with one document
    "llama_linear": lambda: (decoder(
        "llama", "LlamaConfig", "LlamaForCausalLM", hidden_size=18, num_hidden_layers=1,
        intermediate_size=26, **HEADS, attention_bias=True, mlp_bias=True,
        rope_parameters=dict(rope_type="linear", factor=4.0, rope_theta=10000.0)), samples(13)),
    "llama3": lambda: (decoder(
        "llama", "LlamaConfig", "LlamaForCausalLM", hidden_size=18, num_hidden_layers=1,
        intermediate_size=26, **HEADS, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=64,
                             rope_theta=1000.0)), samples(14)[1:]),
    "llama_dynamic": lambda: (decoder(
        "llama", "LlamaConfig", "LlamaForCausalLM", **SMALL, max_position_embeddings=20,
        rope_parameters=dict(rope_type="dynamic", factor=2.0, rope_theta=10000.0)), samples(15)[1:]),
    "qwen2": lambda: (decoder(
        "qwen2", "Qwen2Config", "Qwen2ForCausalLM", hidden_size=18, num_hidden_layers=2,
        intermediate_size=26, tie_word_embeddings=True, num_attention_heads=9,
        num_key_value_heads=3, head_dim=12,
        rope_parameters=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=40,
                             rope_theta=1000.0)), samples(16)),
    "smollm3": lambda: (decoder(
        "smollm3", "SmolLM3Config", "SmolLM3ForCausalLM", **{**SMALL, "num_hidden_layers": 3},
        no_rope_layers=[1, 0, 1], attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=32,
                             rope_theta=5000.0, truncate=False, beta_fast=16.0, beta_slow=0.5,
                             mscale=1.5, mscale_all_dim=0.75)), samples(17)),
    "olmo2": lambda: (decoder("olmo2", "Olmo2Config", "Olmo2ForCausalLM", **SMALL), samples(18)),
    "phi3": lambda: (decoder(
        "phi3", "Phi3Config", "Phi3ForCausalLM", hidden_size=48, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, intermediate_size=26, sliding_window=9,
        max_position_embeddings=80, original_max_position_embeddings=20,
        rope_parameters=dict(
            rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75,
            short_factor=[1.0 + 0.05 * i for i in range(9)],
            long_factor=[1.0 + 0.4 * i for i in range(9)])), samples(19)),
    "granite": lambda: (decoder(
        "granite", "GraniteConfig", "GraniteForCausalLM", hidden_size=54, num_hidden_layers=1,
        num_attention_heads=9, num_key_value_heads=3, intermediate_size=26, tie_word_embeddings=True,
        embedding_multiplier=1.5, attention_multiplier=0.25, residual_multiplier=0.375,
        logits_scaling=3.0), samples(20)),
    "gpt2": lambda: (decoder(
        "gpt2", "GPT2Config", "GPT2LMHeadModel", n_embd=18, n_layer=2, n_head=9, n_inner=26,
        n_positions=40, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0), samples(21)),
    # layers with a window and layers without
    "ministral": lambda: (ministral(hidden_size=20, num_hidden_layers=3, num_attention_heads=9,
                                    num_key_value_heads=3, head_dim=10, intermediate_size=22,
                                    sliding_window=5, layer_types=[SLIDING, FULL, SLIDING]),
                          samples(13)),
    "qwen3_mixed": lambda: (qwen3(hidden_size=18, num_hidden_layers=3, num_attention_heads=4,
                                  num_key_value_heads=2, head_dim=14, intermediate_size=20,
                                  use_sliding_window=True, sliding_window=11, max_window_layers=2,
                                  tie_word_embeddings=True), samples(14, reset=False)),
    # caps of the size of what they cap; heads of 256 once
    "gemma2": lambda: (gemma2(hidden_size=18, num_hidden_layers=3, num_attention_heads=6,
                              num_key_value_heads=3, head_dim=14, intermediate_size=22,
                              query_pre_attn_scalar=10, sliding_window=6,
                              attn_logit_softcapping=2.0, final_logit_softcapping=3.0), samples(15)),
    "gemma3": lambda: (gemma3(hidden_size=18, num_hidden_layers=3, num_attention_heads=9,
                              num_key_value_heads=3, head_dim=10, intermediate_size=20,
                              query_pre_attn_scalar=24, sliding_window=5,
                              rope_parameters={FULL: {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
                                               SLIDING: {"rope_type": "default", "rope_theta": 1e4}},
                              layer_types=[SLIDING, FULL, SLIDING]), samples(16, reset=False)),
    "gemma2_wide": lambda: (gemma2(hidden_size=12, num_hidden_layers=2, num_attention_heads=2,
                                   num_key_value_heads=1, head_dim=256, intermediate_size=14,
                                   query_pre_attn_scalar=256, sliding_window=9,
                                   attn_logit_softcapping=5.0, final_logit_softcapping=None),
                            samples(17)),
    "mixtral": lambda: (mixture("Mixtral", "mixtral", hidden_size=16, num_hidden_layers=2,
                                num_attention_heads=6, num_key_value_heads=3, head_dim=10,
                                intermediate_size=14, num_local_experts=5, num_experts_per_tok=2,
                                sliding_window=9), samples(18)),
    # a dense layer between; weights that are divided by their sum, and weights that are not
    "qwen3_moe": lambda: (mixture("Qwen3Moe", "qwen3_moe", hidden_size=16, num_hidden_layers=3,
                                  num_attention_heads=6, num_key_value_heads=2, head_dim=8,
                                  intermediate_size=20, moe_intermediate_size=10, num_experts=6,
                                  num_experts_per_tok=3, norm_topk_prob=True,
                                  mlp_only_layers=[1]), samples(19)),
    "olmoe": lambda: (mixture("Olmoe", "olmoe", hidden_size=24, num_hidden_layers=2,
                              num_attention_heads=6, num_key_value_heads=3, intermediate_size=12,
                              num_experts=5, num_experts_per_tok=2, norm_topk_prob=False),
                      samples(20, reset=False)),
    # heads of values in groups; one for each head of keys, a wider convolution, RoPE by pictures. An
    # epsilon of the size of what is normalised: a query that sees one key or two may hardly see them,
    # and a norm makes that large, with its rounding (8e-5 of a gradient in the package's own fp32)
    "qwen3_5": lambda: (qwen3_5(
        hidden_size=20, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, head_dim=16,
        intermediate_size=22, rms_norm_eps=1e-2, linear_num_key_heads=2, linear_num_value_heads=6,
        linear_key_head_dim=10, linear_value_head_dim=6, layer_types=[LINEAR, FULL, LINEAR]),
        samples(22)),
    "qwen3_5_wide": lambda: (qwen3_5(
        hidden_size=16, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4, head_dim=8,
        intermediate_size=20, rms_norm_eps=1e-2, linear_num_key_heads=3, linear_num_value_heads=3,
        linear_key_head_dim=24, linear_value_head_dim=40, linear_conv_kernel_dim=6,
        tie_word_embeddings=True, rope_parameters={
            "rope_type": "default", "rope_theta": 5e4, "partial_rotary_factor": 0.5,
            "mrope_section": [1, 1, 0], "mrope_interleaved": True}), samples(23, reset=False)),
    # an expert for every token, biases; a dense layer between by the step
    "qwen2_moe": lambda: (mixture("Qwen2Moe", "qwen2_moe", hidden_size=18, num_hidden_layers=3,
                                  num_attention_heads=6, num_key_value_heads=3, head_dim=8,
                                  intermediate_size=20, moe_intermediate_size=10, num_experts=5,
                                  num_experts_per_tok=2, shared_expert_intermediate_size=14,
                                  decoder_sparse_step=2), samples(24)),
    # the four kinds of layer, in two models; parts of a key head in the file: 10, 10, 18 and 18 rows
    "qwen3_next": lambda: (qwen3_next(
        hidden_size=20, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, head_dim=16,
        intermediate_size=22, rms_norm_eps=1e-2, linear_num_key_heads=2, linear_num_value_heads=6,
        linear_key_head_dim=10, linear_value_head_dim=6, layer_types=[LINEAR, FULL, LINEAR],
        num_experts=5, num_experts_per_tok=2, moe_intermediate_size=10,
        shared_expert_intermediate_size=14, mlp_only_layers=[1]), samples(25)),
    "qwen3_next_wide": lambda: (qwen3_next(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, head_dim=8,
        intermediate_size=20, rms_norm_eps=1e-2, linear_num_key_heads=3, linear_num_value_heads=3,
        linear_key_head_dim=24, linear_value_head_dim=40, linear_conv_kernel_dim=6,
        full_attention_interval=2, num_experts=4, num_experts_per_tok=3, moe_intermediate_size=8,
        shared_expert_intermediate_size=6, decoder_sparse_step=2, norm_topk_prob=False,
        tie_word_embeddings=True), samples(26, reset=False)),
    "qwen3_5_moe": lambda: (qwen3_5_moe(
        hidden_size=20, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=16,
        rms_norm_eps=1e-2, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=10,
        linear_value_head_dim=6, layer_types=[LINEAR, FULL], num_experts=5, num_experts_per_tok=2,
        moe_intermediate_size=10, shared_expert_intermediate_size=14), samples(27)),
    # sinks, every other layer with a window, clamped experts with biases; heads of several sizes
    "gpt_oss": lambda: (gpt_oss(hidden_size=18, num_hidden_layers=3, num_attention_heads=6,
                                num_key_value_heads=3, head_dim=8, intermediate_size=14,
                                num_local_experts=5, num_experts_per_tok=2, sliding_window=6,
                                rope_parameters=dict(
                                    rope_type="yarn", factor=8.0, rope_theta=1000.0, beta_fast=16.0,
                                    beta_slow=0.5, truncate=False,
                                    original_max_position_embeddings=32)), samples(21)),
    "minimax": lambda: (minimax(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=9, num_key_value_heads=3,
        head_dim=24, intermediate_size=18, num_local_experts=4, num_experts_per_tok=2, block_size=8,
        layer_types=[LINEAR, FULL, LINEAR], linear_attn_alpha_factor=1.5, linear_attn_beta_factor=0.8,
        full_attn_alpha_factor=1.25, full_attn_beta_factor=0.75, mlp_alpha_factor=1.125,
        mlp_beta_factor=0.5), samples(10)),
    "minimax_wide": lambda: (partial(minimax(
        hidden_size=24, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
        head_dim=72, intermediate_size=20, num_local_experts=3, num_experts_per_tok=2, block_size=16,
        layer_types=[FULL, LINEAR, LINEAR], tie_word_embeddings=True), 36), samples(11)),
}


def make(name):
    torch.manual_seed(sum(name.encode()))
    torch.set_default_dtype(torch.float64)
    model, batch = CASES[name]()
    path = HERE / name
    path.mkdir(exist_ok=True)
    n = sum(t >= 0 for s in batch for t in s.targets)
    logits = [model.logits(s) for s in batch]
    loss = sum(F.cross_entropy(x, torch.tensor(s.targets), ignore_index=-1, reduction="sum")
               for x, s in zip(logits, batch)) / n
    loss.backward()
    model.save(path)
    out = {k: torch.tensor([getattr(s, k) for s in batch], dtype=torch.int32)
           for k in ("ids", "targets", "pos", "lo", "hi")}
    out["logits"] = torch.stack(logits).detach().to(torch.float32)
    out["loss"] = loss.detach().reshape(1)
    names = load_file(path / "model.safetensors")
    grads = model.gradients(path)
    stored = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")  # in the file, no weights
    names = {k: w for k, w in names.items() if not k.endswith(stored)}
    for k, w in names.items():
        assert grads[k].shape == w.shape, k
        out["grad:" + k] = grads[k].to(torch.float32).contiguous()
    save_file(out, path / "golden.safetensors")
    for f in path.iterdir():
        f.chmod(0o644)
    quiet = [k for k in names if not out["grad:" + k].norm() > 1e-4]
    sizes = [f.stat().st_size for f in path.iterdir()]
    print(f"{name}: loss {loss.item():.9f}, {n} targets, {len(names)} tensors, {sum(sizes)} bytes,"
          f" nearly no gradient: {quiet}", file=sys.stderr)


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        make(case)
