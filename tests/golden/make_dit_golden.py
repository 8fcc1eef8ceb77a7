#!/usr/bin/env python3
"""Writes one directory per diffusion transformer: config.json and model.safetensors as a user has
them, and golden.safetensors with what the model must compute, in float64.

An oracle that shares no code with the engine: the models of Open-Sora 1.0 and 1.2, Latte and the
Transformer-2D of the DSP paper, written from their definitions with plain PyTorch operations on
whole tensors [frames, patches, width], convolutions for the patches, autograd for the gradients.
Needed only to make the files again: pip install torch safetensors.

golden.safetensors: z [C, T, H, W] the noised latents, v the target, float32; x_mask [T] (0: the
frame is given clean); y [n, width] the caption; t, fps, height, width, dropped, label, float64 [1];
prediction [C_out, T, H, W]; loss float64 [1]: mean of (prediction[:C] - v)^2 over frames that are
not clean; grad:NAME float32: its gradient, of every tensor of model.safetensors that is trained; of
those with more than 8192 elements every fifth row. Weights are exact in bfloat16.

Of a model that predicts noise (config.json: "objective": "iddpm") t is the number of a step, v is
[2 C, T, H, W]: the noise, then the sample without it; z is their mixture, and loss is what
GaussianDiffusion.training_losses of Latte and Open-Sora 1.0 has: the squared error of the noise and
the variational bound in bits, in which the noise is detached.

sample.safetensors, of a model that is there already: noise [C, T, H, W] float32, as the counters of
Philox4x32-10 (seed, n) give it; y; seed, n, int64 [1]; steps, guidance, height, width, num_frames,
fps, label, shifted, float64 [1]; latents [C, T, H, W] float32: what Euler's rule makes of the noise,
or DDIM with eta 0 of a model that predicts it, and ancestral, of the same: what p_sample makes of it.

usage: make_dit_golden.py [NAME ...]          the models, or those named
       make_dit_golden.py sample [NAME ...]   samples of those that are there"""
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)  # the same sums each time


# ---- common ------------------------------------------------------------------------------------


def lin(w, name, x):
    return x @ w[name + ".weight"].T + w[name + ".bias"]


def ln(x):
    var = x.var(-1, keepdim=True, unbiased=False)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(var + 1e-6)


def rms(x, g):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * g


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def wave(u, cols=256):
    f = torch.exp(-math.log(10000.0) * torch.arange(cols // 2) / (cols // 2))
    return torch.cat([torch.cos(u * f), torch.sin(u * f)])


def mlp2(w, name, x, act, keys=("0", "2")):
    return lin(w, f"{name}.{keys[1]}", act(lin(w, f"{name}.{keys[0]}", x)))


def sincos(pos, cols):  # [n] -> [n, cols], sines first
    a = pos[:, None] * 10000.0 ** (-torch.arange(cols // 2) / (cols / 2))
    return torch.cat([a.sin(), a.cos()], -1)


def grid_positions(h, w, cols, scale, base):
    """[h w, cols]: half for the column, half for the row."""
    x, y = torch.arange(w) / scale, torch.arange(h) / scale
    if base:
        x, y = x * (base / w), y * (base / h)
    ex, ey = sincos(x, cols // 2), sincos(y, cols // 2)
    return torch.cat([ex.repeat(h, 1), ey.repeat_interleave(w, 0)], -1)


def patches(c, w, z):
    """[T', S, C]: a convolution with stride, after padding with zeros at the ends."""
    pt, ph, pw = c["patch_size"]
    z = F.pad(z, (0, -z.shape[3] % pw, 0, -z.shape[2] % ph, 0, -z.shape[1] % pt))
    k = w["x_embedder.proj.weight"]
    k = k if k.dim() == 5 else k[:, :, None]
    x = F.conv3d(z[None], k, w["x_embedder.proj.bias"], stride=(pt, ph, pw))[0]
    return x.flatten(2).permute(1, 2, 0), x.shape[2], x.shape[3]


def unpatch(c, x, h, w, shape):
    """[T', S, pt ph pw C_out] -> [C_out, T, H, W]."""
    pt, ph, pw = c["patch_size"]
    x = x.reshape(x.shape[0], h, w, pt, ph, pw, -1).permute(6, 0, 3, 1, 4, 2, 5)
    x = x.reshape(x.shape[0], x.shape[1] * pt, h * ph, w * pw)
    return x[:, :shape[1], :shape[2], :shape[3]]


def turn(x):
    """Rotary embedding over frames: neighbours are pairs. x [T, ..., D], T first."""
    d = x.shape[-1]
    a = torch.arange(x.shape[0])[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
    a = a.reshape([x.shape[0]] + [1] * (x.dim() - 2) + [d // 2])
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = [even * a.cos() - odd * a.sin(), odd * a.cos() + even * a.sin()]
    return torch.stack(turned, -1).flatten(-2)


def attention(c, w, name, x, dim, qk_norm=False, rope=False):
    """x [T, S, C]; along dim: 0 time, 1 space."""
    q, k, v = lin(w, name + ".qkv", x).chunk(3, -1)
    q, k, v = (t.reshape(*t.shape[:2], c["num_heads"], -1) for t in (q, k, v))
    if qk_norm:
        q, k = rms(q, w[name + ".q_norm.weight"]), rms(k, w[name + ".k_norm.weight"])
    if rope:
        q, k = turn(q), turn(k)
    eq = "ishd,jshd->shij" if dim == 0 else "tihd,tjhd->thij"
    p = (torch.einsum(eq, q, k) / math.sqrt(q.shape[-1])).softmax(-1)
    o = torch.einsum("shij,jshd->ishd" if dim == 0 else "thij,tjhd->tihd", p, v)
    return lin(w, name + ".proj", o.flatten(2))


def cross(c, w, name, x, y):
    q = lin(w, name + ".q_linear", x).reshape(*x.shape[:2], c["num_heads"], -1)
    k, v = lin(w, name + ".kv_linear", y).reshape(len(y), 2, c["num_heads"], -1).unbind(1)
    p = (torch.einsum("tshd,nhd->tshn", q, k) / math.sqrt(q.shape[-1])).softmax(-1)
    return lin(w, name + ".proj", torch.einsum("tshn,nhd->tshd", p, v).flatten(2))


def by_frame(mask, one, zero):
    """Rows of frames that are given clean take the second."""
    return torch.where(mask[:, None, None], one, zero)


def modulated(mask, x, v, v0, i):
    x = ln(x)
    return by_frame(mask, x * (1 + v[i + 1]) + v[i], x * (1 + v0[i + 1]) + v0[i])


def mlp(w, p, x):
    return lin(w, p + "mlp.fc2", gelu(lin(w, p + "mlp.fc1", x)))


def caption(c, w, s):
    y = w["y_embedder.y_embedding"][:len(s["y"])] if s["dropped"] else s["y"]
    return mlp2(w, "y_embedder.y_proj", y, gelu, ("fc1", "fc2"))


def final_table(w, mask, x, t, t0):
    """As released: in clean frames the second modulation is of what was modulated already."""
    v, v0 = (w["final_layer.scale_shift_table"] + u for u in (t, t0))
    x = ln(x) * (1 + v[1]) + v[0]
    return by_frame(mask, x, ln(x) * (1 + v0[1]) + v0[0])


def six(w, name, t, C):
    return w[name] + t.reshape(6, C)


# ---- the models ---------------------------------------------------------------------------------


def stdit3(c, w, s):
    C, mask = c["hidden_size"], s["x_mask"] > 0
    x, h, wd = patches(c, w, s["z"])
    scale = math.sqrt(s["height"] * s["width"]) / c["input_sq_size"]
    x = x + grid_positions(h, wd, C, scale, round(math.sqrt(h * wd)))
    fps = mlp2(w, "fps_embedder.mlp", wave(s["fps"]), F.silu)
    t, t0 = (mlp2(w, "t_embedder.mlp", wave(u), F.silu) + fps for u in (s["t"], 0.0))
    b, b0 = (lin(w, "t_block.1", F.silu(u)) for u in (t, t0))
    y = caption(c, w, s)
    for i in range(c["depth"]):
        for kind, dim in (("spatial", 1), ("temporal", 0)):
            p = f"{kind}_blocks.{i}."
            v, v0 = (six(w, p + "scale_shift_table", u, C) for u in (b, b0))
            a = modulated(mask, x, v, v0, 0)
            a = attention(c, w, p + "attn", a, dim, c["qk_norm"], dim == 0)
            x = x + by_frame(mask, v[2] * a, v0[2] * a)
            x = x + cross(c, w, p + "cross_attn", x, y)
            a = mlp(w, p, modulated(mask, x, v, v0, 3))
            x = x + by_frame(mask, v[5] * a, v0[5] * a)
    x = lin(w, "final_layer.linear", final_table(w, mask, x, t, t0))
    return unpatch(c, x, h, wd, s["z"].shape)


def stdit(c, w, s):
    C, mask = c["hidden_size"], s["x_mask"] > 0
    x, h, wd = patches(c, w, s["z"])
    x = x + grid_positions(h, wd, C, c["space_scale"], None)
    t, t0 = (mlp2(w, "t_embedder.mlp", wave(u), F.silu) for u in (s["t"], 0.0))
    b, b0 = (lin(w, "t_block.1", F.silu(u)) for u in (t, t0))
    y = caption(c, w, s)
    for i in range(c["depth"]):
        p = f"blocks.{i}."
        v, v0 = (six(w, p + "scale_shift_table", u, C) for u in (b, b0))
        a = attention(c, w, p + "attn", modulated(mask, x, v, v0, 0), 1)
        x = x + by_frame(mask, v[2] * a, v0[2] * a)
        a = x
        if i == 0:
            a = a + sincos(torch.arange(len(x)) / c["time_scale"], C)[:, None]
        x = x + v[2] * attention(c, w, p + "attn_temp", a, 0)
        x = x + cross(c, w, p + "cross_attn", x, y)
        a = mlp(w, p, modulated(mask, x, v, v0, 3))
        x = x + by_frame(mask, v[5] * a, v0[5] * a)
    x = lin(w, "final_layer.linear", final_table(w, mask, x, t, t0))
    return unpatch(c, x, h, wd, s["z"].shape)


def latte(c, w, s):
    C, every = c["hidden_size"], torch.ones(s["z"].shape[1]) > 0
    x, h, wd = patches(c, w, s["z"])
    x = x + grid_positions(h, wd, C, 1.0, None)
    cond = mlp2(w, "t_embedder.mlp", wave(s["t"]), F.silu)
    cond = F.silu(cond + w["y_embedder.embedding_table.weight"][int(s["label"])])
    for i in range(c["depth"]):
        p = f"blocks.{i}."
        v = lin(w, p + "adaLN_modulation.1", cond).reshape(6, C)
        if i == 1:
            x = x + sincos(torch.arange(len(x)) * 1.0, C)[:, None]
        x = x + v[2] * attention(c, w, p + "attn", modulated(every, x, v, v, 0), 1 - i % 2)
        x = x + v[5] * mlp(w, p, modulated(every, x, v, v, 3))
    v = lin(w, "final_layer.adaLN_modulation.1", cond).reshape(2, C)
    x = lin(w, "final_layer.linear", modulated(every, x, v, v, 0))
    return unpatch(c, x, h, wd, s["z"].shape)


def t2d(c, w, s):
    C, mask = c["hidden_size"], s["x_mask"] > 0
    x, h, wd = patches(c, w, s["z"])
    x = x + grid_positions(h, wd, C, 1.0, None) + sincos(torch.arange(len(x)) * 1.0, C)[:, None]
    t, t0 = (mlp2(w, "t_embedder.mlp", wave(u), F.silu) for u in (s["t"], 0.0))
    b, b0 = (lin(w, "t_block.1", F.silu(u)) for u in (t, t0))
    y = caption(c, w, s) if c["caption_channels"] else None
    for i in range(c["depth"]):
        p = f"blocks.{i}."
        v, v0 = (six(w, p + "scale_shift_table", u, C) for u in (b, b0))
        a = attention(c, w, p + "attn", modulated(mask, x, v, v0, 0), 1 - i % 2, c["qk_norm"])
        x = x + by_frame(mask, v[2] * a, v0[2] * a)
        if y is not None:
            x = x + cross(c, w, p + "cross_attn", x, y)
        a = mlp(w, p, modulated(mask, x, v, v0, 3))
        x = x + by_frame(mask, v[5] * a, v0[5] * a)
    x = lin(w, "final_layer.linear", final_table(w, mask, x, t, t0))
    return unpatch(c, x, h, wd, s["z"].shape)


# ---- tensors as released ------------------------------------------------------------------------


def linear(out, name, rows, cols):
    out[name + ".weight"], out[name + ".bias"] = (rows, cols), (rows,)


def common(c, conv):
    C, out = c["hidden_size"], {}
    n = math.prod(c["patch_size"]) * c["in_channels"] * 2
    out["x_embedder.proj.weight"] = (C, c["in_channels"], *c["patch_size"][3 - conv:])
    out["x_embedder.proj.bias"] = (C,)
    linear(out, "t_embedder.mlp.0", C, 256)
    linear(out, "t_embedder.mlp.2", C, C)
    linear(out, "final_layer.linear", n, C)
    return out


def block(out, c, p, attns=("attn",), read=True, table=True):
    C, I = c["hidden_size"], int(c["hidden_size"] * c["mlp_ratio"])
    for a in attns:
        linear(out, p + a + ".qkv", 3 * C, C)
        linear(out, p + a + ".proj", C, C)
        for n in ("q_norm", "k_norm") if c.get("qk_norm") else ():
            out[p + a + f".{n}.weight"] = (C // c["num_heads"],)
    if read:
        for name, n in (("q_linear", 1), ("kv_linear", 2), ("proj", 1)):
            linear(out, p + "cross_attn." + name, n * C, C)
    linear(out, p + "mlp.fc1", I, C)
    linear(out, p + "mlp.fc2", C, I)
    if table:
        out[p + "scale_shift_table"] = (6, C)


def text(out, c):
    C, Y = c["hidden_size"], c["caption_channels"]
    if not Y:
        return
    out["y_embedder.y_embedding"] = (c["model_max_length"], Y)
    linear(out, "y_embedder.y_proj.fc1", C, Y)
    linear(out, "y_embedder.y_proj.fc2", C, C)


def stdit_shapes(c):
    C, out = c["hidden_size"], common(c, 3)
    text(out, c)
    linear(out, "t_block.1", 6 * C, C)
    out["final_layer.scale_shift_table"] = (2, C)
    for i in range(c["depth"]):
        block(out, c, f"blocks.{i}.", ("attn", "attn_temp"))
    return out


def stdit3_shapes(c):
    C, out = c["hidden_size"], common(c, 3)
    text(out, c)
    linear(out, "fps_embedder.mlp.0", C, 256)
    linear(out, "fps_embedder.mlp.2", C, C)
    linear(out, "t_block.1", 6 * C, C)
    out["final_layer.scale_shift_table"] = (2, C)
    for i in range(c["depth"]):
        for kind in ("spatial", "temporal"):
            block(out, c, f"{kind}_blocks.{i}.")
    return out


def latte_shapes(c):
    C, out = c["hidden_size"], common(c, 2)
    out["y_embedder.embedding_table.weight"] = (c["num_classes"] + 1, C)
    linear(out, "final_layer.adaLN_modulation.1", 2 * C, C)
    for i in range(c["depth"]):
        block(out, c, f"blocks.{i}.", read=False, table=False)
        linear(out, f"blocks.{i}.adaLN_modulation.1", 6 * C, C)
    return out


def t2d_shapes(c):
    C, out = c["hidden_size"], common(c, 3)
    text(out, c)
    linear(out, "t_block.1", 6 * C, C)
    out["final_layer.scale_shift_table"] = (2, C)
    for i in range(c["depth"]):
        block(out, c, f"blocks.{i}.", read=c["caption_channels"] > 0)
    return out


# ---- noise with a learned variance (2102.09672) --------------------------------------------------


class Gaussian:
    """The constants of GaussianDiffusion, by their names there."""

    def __init__(self, betas):
        a = torch.cumprod(1 - betas, 0)
        prev = torch.cat([torch.ones(1), a[:-1]])
        variance = betas * (1 - prev) / (1 - a)
        self.betas, self.alphas_cumprod, self.alphas_cumprod_prev = betas, a, prev
        self.log_variance = torch.log(torch.cat([variance[1:2], variance[1:]]))
        self.coef1 = betas * torch.sqrt(prev) / (1 - a)
        self.coef2 = (1 - prev) * torch.sqrt(1 - betas) / (1 - a)
        self.recip, self.recipm1 = torch.sqrt(1 / a), torch.sqrt(1 / a - 1)


LINEAR = Gaussian(torch.linspace(1e-4, 2e-2, 1000))


def normal_cdf(x):
    return 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def likelihood(x, mean, log_scale):
    inv = torch.exp(-log_scale)
    up = normal_cdf(inv * (x - mean + 1 / 255))
    low = normal_cdf(inv * (x - mean - 1 / 255))
    log = lambda p: torch.log(p.clamp(min=1e-12))
    return torch.where(x < -0.999, log(up), torch.where(x > 0.999, log(1 - low), log(up - low)))


def noise_loss(g, out, x0, x_t, eps, t):
    e, v = out.chunk(2, 0)
    mse = ((eps - e) ** 2).mean()
    e = e.detach()
    frac = (v + 1) / 2
    log_var = frac * torch.log(g.betas)[t] + (1 - frac) * g.log_variance[t]
    mean = g.coef1[t] * (g.recip[t] * x_t - g.recipm1[t] * e) + g.coef2[t] * x_t
    true_mean = g.coef1[t] * x0 + g.coef2[t] * x_t
    kl = 0.5 * (-1 + log_var - g.log_variance[t] + torch.exp(g.log_variance[t] - log_var)
                + (true_mean - mean) ** 2 * torch.exp(-log_var))
    vb = kl if t > 0 else -likelihood(x0, mean, 0.5 * log_var)
    return mse + vb.mean() / math.log(2)


def spaced(count):
    """space_timesteps(1000, str(count)), and the betas between the steps it keeps."""
    at, kept = 0.0, []
    for _ in range(count):
        kept.append(round(at))
        at += 999 / (count - 1)
    a = LINEAR.alphas_cumprod[kept]
    return kept, Gaussian(1 - a / torch.cat([torch.ones(1), a[:-1]]))


def p_sample(g, i, x, e, v, drawn):
    """GaussianDiffusion.p_sample of a model with a learned range of variances, nothing clipped."""
    frac = (v + 1) / 2
    log_var = frac * torch.log(g.betas)[i] + (1 - frac) * g.log_variance[i]
    mean = g.coef1[i] * (g.recip[i] * x - g.recipm1[i] * e) + g.coef2[i] * x
    return mean + (torch.exp(0.5 * log_var) * drawn if i > 0 else 0)


def ddim(g, i, x, e):
    x0 = g.recip[i] * x - g.recipm1[i] * e
    e = (g.recip[i] * x - x0) / g.recipm1[i]
    return torch.sqrt(g.alphas_cumprod_prev[i]) * x0 + torch.sqrt(1 - g.alphas_cumprod_prev[i]) * e


# ---- cases --------------------------------------------------------------------------------------


BASE = dict(hidden_size=48, num_heads=2, mlp_ratio=0.75, patch_size=[1, 2, 2], in_channels=4,
            pred_sigma=True, depth=1, caption_channels=11, model_max_length=7,
            class_dropout_prob=0.1)


def case(fn, shapes, seed, z, n_text=5, mask=None, dropped=False, label=0, t=617.25, **config):
    return dict(fn=fn, shapes=shapes, seed=seed, z=z, n_text=n_text, mask=mask, dropped=dropped,
                label=label, t=t, config={**BASE, **config})


LATTE = dict(caption_channels=0, model_max_length=0)
CASES = {
    # 5 frames of 3 x 5 patches, the last ones cut; the third frame is given clean
    "stdit3": case(stdit3, stdit3_shapes, 1, (5, 5, 9), mask=[1, 1, 0, 1, 1], model_type="STDiT3",
                   qk_norm=True, input_sq_size=512),
    # one frame, one token of caption, which was dropped; one head of 72
    "stdit3_image": case(stdit3, stdit3_shapes, 2, (1, 6, 7), n_text=1, dropped=True,
                         model_type="STDiT3", qk_norm=True, input_sq_size=512, hidden_size=72,
                         num_heads=1, mlp_ratio=0.5),
    "stdit": case(stdit, stdit_shapes, 3, (3, 7, 4), n_text=7, mask=[0, 1, 1], depth=2,
                  model_type="STDiT", space_scale=0.5, time_scale=2.0),
    "latte": case(latte, latte_shapes, 4, (9, 4, 6), depth=4, label=2, num_classes=3,
                  model_type="Latte", **LATTE),
    "t2d": case(t2d, t2d_shapes, 5, (4, 5, 5), n_text=3, mask=[1, 0, 1, 1], depth=2,
                model_type="transformer_2d", qk_norm=True),
    # frames in patches of two, the last one alone
    "t2d_plain": case(t2d, t2d_shapes, 6, (3, 4, 3), depth=2, model_type="transformer_2d",
                      qk_norm=False, patch_size=[2, 2, 2], hidden_size=24, num_heads=3,
                      mlp_ratio=4.0, **LATTE),
    # noise and its variance: 4 frames of 2 x 3 patches, the last column cut
    "latte_noise": case(latte, latte_shapes, 7, (4, 4, 5), depth=2, label=1, num_classes=3, t=371,
                        model_type="Latte", objective="iddpm", hidden_size=16, **LATTE),
    # the last step, whose bound is the likelihood of the sample
    "stdit_noise": case(stdit, stdit_shapes, 8, (3, 5, 4), n_text=4, t=0, model_type="STDiT",
                        space_scale=1.0, time_scale=1.0, objective="iddpm", hidden_size=16),
}


def exact(x):  # what fp32 holds
    return x.float().double()


def run(name):
    k = CASES[name]
    c, g = k["config"], torch.Generator().manual_seed(k["seed"])
    rand = lambda *shape: torch.randn(*shape, generator=g)
    w = {}
    for n, shape in k["shapes"](c).items():
        x = rand(*shape) * (0.2 if len(shape) == 1 else 0.8 / math.sqrt(math.prod(shape[1:])))
        if n.endswith("_norm.weight"):
            x = 1 + x
        w[n] = x.to(torch.bfloat16).double().requires_grad_(n != "y_embedder.y_embedding")
    T = k["z"][0]
    frames = -(-T // c["patch_size"][0])
    s = dict(z=exact(rand(c["in_channels"], *k["z"])),
             x_mask=torch.tensor(k["mask"] or [1.0] * frames) * 1.0,
             y=exact(rand(k["n_text"], max(c["caption_channels"], 1))), t=float(k["t"]), fps=24.0,
             height=480.0, width=854.0, dropped=float(k["dropped"]), label=float(k["label"]))
    v = exact(rand(c["in_channels"], *k["z"]))
    if c.get("objective") == "iddpm":
        a, x0 = LINEAR.alphas_cumprod[k["t"]], s["z"]
        s["z"] = torch.sqrt(a) * x0 + torch.sqrt(1 - a) * v
        loss = noise_loss(LINEAR, out := k["fn"](c, w, s), x0, s["z"], v, k["t"])
        v = torch.cat([v, x0])
    else:
        out = k["fn"](c, w, s)
        counted = s["x_mask"].repeat_interleave(c["patch_size"][0])[:T] > 0
        loss = ((out[:c["in_channels"]] - v) ** 2)[:, counted].mean()
    loss.backward()
    d = HERE / name
    d.mkdir(exist_ok=True)
    (d / "config.json").write_text(json.dumps(c, indent=2) + "\n")
    save_file({n: x.detach().to(torch.bfloat16).contiguous() for n, x in w.items()},
              d / "model.safetensors", {"format": "pt"})
    gold = {n: torch.tensor([s[n]]) for n in ("t", "fps", "height", "width", "dropped", "label")}
    gold |= {n: s[n].float().contiguous() for n in ("z", "y", "x_mask")}
    gold |= {"v": v.float(), "prediction": out.detach().float().contiguous()}
    gold["loss"] = loss.detach()[None]
    for n, x in w.items():
        if not x.requires_grad:
            continue
        # One key to look at: what looks does not matter.
        alone = frames == 1 and n.endswith("_norm.weight")
        alone = alone or (k["n_text"] == 1 and ".q_linear." in n)
        assert x.grad is not None and (float(x.grad.norm()) > 0 or alone), n
        gold["grad:" + n] = (x.grad if x.numel() <= 8192 else x.grad[::5]).float().contiguous()
    save_file(gold, d / "golden.safetensors")
    n = sum(x.numel() for x in w.values())
    print(f"{name}: loss {loss.item():.6f}, {n} weights", file=sys.stderr)


# ---- samples ------------------------------------------------------------------------------------


def philox(key, counter):
    """Philox4x32-10 (Salmon et al., SC 2011), from its definition."""
    k, c = list(key), list(counter)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def noise(seed, n, shape, stream=1):
    """Box-Muller, four elements to a counter; counter word 3 says that it is a sample's noise, or, from
    16 on, what a step draws."""
    z, key = [], (seed & 0xFFFFFFFF, seed >> 32 ^ 0x666C6F77)
    for i in range(-(-math.prod(shape) // 4)):
        w = philox(key, (i, n & 0xFFFFFFFF, n >> 32, stream))
        for a, b in ((w[0], w[1]), (w[2], w[3])):
            r = math.sqrt(-2 * math.log((a + 0.5) / 2 ** 32))
            turn_ = 2 * math.pi * (b + 0.5) / 2 ** 32
            z += [r * math.cos(turn_), r * math.sin(turn_)]
    return exact(torch.tensor(z[:math.prod(shape)]).reshape(shape))


def times(s, stdit3):
    """As Open-Sora 1.2 shifts them: by the size of the picture, the length of the video in latents."""
    t = [1 - i / s["steps"] for i in range(s["steps"])] + [0.0]
    frames = s["num_frames"] // 17 * 5 if stdit3 and s["num_frames"] > 1 else s["num_frames"]
    r = math.sqrt(s["height"] * s["width"] / 512 ** 2) * math.sqrt(frames) if s["shifted"] else 1
    return [r * u / (1 + (r - 1) * u) for u in t]


SAMPLES = {
    # 4 frames of 3 x 4 patches, the last column cut
    "stdit3": dict(z=(4, 6, 7), n_text=4, seed=2 ** 40 + 77, n=0, steps=4, guidance=7.0, height=360,
                   width=640, num_frames=34, fps=12.0, label=0, shifted=1),
    "latte": dict(z=(3, 5, 6), n_text=1, seed=3, n=2 ** 33 + 1, steps=4, guidance=4.0, height=256,
                  width=256, num_frames=3, fps=24.0, label=1, shifted=0),
    # patches of two frames, the last one alone; told nothing: guidance changes nothing
    "t2d_plain": dict(z=(5, 4, 3), n_text=1, seed=0, n=0, steps=4, guidance=7.0, height=128,
                      width=96, num_frames=1, fps=24.0, label=0, shifted=1),
    "latte_noise": dict(z=(3, 5, 4), n_text=1, seed=9, n=4, steps=5, guidance=7.0, height=256,
                        width=256, num_frames=3, fps=24.0, label=2, shifted=1),
    # three of four channels are guided
    "stdit_noise": dict(z=(2, 4, 5), n_text=3, seed=10, n=0, steps=6, guidance=4.0, height=256,
                        width=256, num_frames=2, fps=24.0, label=0, shifted=1),
}


def sample(name):
    k, s = CASES[name], SAMPLES[name]
    c, g = k["config"], torch.Generator().manual_seed(100 + k["seed"])
    w = {n: x.double() for n, x in load_file(HERE / name / "model.safetensors").items()}
    y = exact(torch.randn(s["n_text"], max(c["caption_channels"], 1), generator=g))
    z = first = noise(s["seed"], s["n"], (c["in_channels"], *s["z"]))
    t, mask = times(s, name.startswith("stdit3")), torch.ones(-(-s["z"][0] // c["patch_size"][0]))
    noisy = c.get("objective") == "iddpm"
    kept, g = spaced(s["steps"]) if noisy else (None, None)
    ancestral = z
    for i in range(s["steps"]):
        def predict(z):
            said = dict(z=z, x_mask=mask, y=y, t=kept[-1 - i] if noisy else 1000 * t[i], fps=s["fps"],
                        height=float(s["height"]), width=float(s["width"]), dropped=0.0,
                        label=s["label"])
            nothing = said | dict(dropped=1.0, label=c.get("num_classes", 0))
            out = k["fn"](c, w, said)
            v, v0 = (x[:c["in_channels"]] for x in (out, k["fn"](c, w, nothing)))
            led = v0 + s["guidance"] * (v - v0)
            if name == "stdit_noise":  # as Open-Sora 1.0 has it
                led = torch.cat([led[:3], v[3:]])
            return led, out[c["in_channels"]:]  # of the variance guidance leads nothing
        led, _ = predict(z)
        z = ddim(g, s["steps"] - 1 - i, z, led) if noisy else z + (t[i] - t[i + 1]) * led
        if noisy:
            led, v = predict(ancestral)
            drawn = noise(s["seed"], s["n"], ancestral.shape, 16 + i)
            ancestral = p_sample(g, s["steps"] - 1 - i, ancestral, led, v, drawn)
    reals = s.keys() - {"z", "n_text", "seed", "n"}
    gold = {n: torch.tensor([float(s[n])]) for n in reals}
    gold |= {n: torch.tensor([s[n]]) for n in ("seed", "n")}
    gold |= {"noise": first.float(), "y": y.float(), "latents": z.float().contiguous()}
    if noisy:
        gold["ancestral"] = ancestral.float().contiguous()
    save_file(gold, HERE / name / "sample.safetensors")
    print(f"{name}: from {first.norm():.3f} to {z.norm():.3f}", file=sys.stderr)


if sys.argv[1:2] == ["sample"]:
    for which in sys.argv[2:] or SAMPLES:
        with torch.no_grad():
            sample(which)
else:
    for which in sys.argv[1:] or CASES:
        run(which)
