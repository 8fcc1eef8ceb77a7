#!/usr/bin/env python3
"""The shapes of bench_gpu and bench_steps in PyTorch, on the same GPU in the same run: what a user
would have otherwise. Needs torch alone; the models are written here.

    torch_bench.py [--seconds N] [--device cuda] [--small] FILE    appends a JSON line a figure

A figure's key is the one of tests/gpu/bench_*.c. Each is the best mean of a few batches of calls. Of
scaled_dot_product_attention every backend is tried and the best one counts; the models are compiled,
in bf16 under autocast, with the fused AdamW on fp32 weights.
"""
import argparse
import json
import math
import time

import torch
import torch.nn.functional as F

args = None
out = None
until = 0.0
BATCH_S, BATCHES = 0.05, 5


def sync():
    if args.device == "cuda":
        torch.cuda.synchronize()


def late(need_s=0):
    return time.monotonic() + need_s > until


def emit(key, **more):
    line = {"key": key, "device": args.device, **more}
    print(json.dumps(line), flush=True)
    out.write(json.dumps(line) + "\n")
    out.flush()


def batch(run, n):
    start = time.monotonic()
    for _ in range(n):
        run()
    sync()
    return (time.monotonic() - start) / n


def seconds(run):
    batch(run, 2)
    best = batch(run, 1)
    if args.small:
        return best
    n = max(1, min(200, math.ceil(BATCH_S / best)))
    for i in range(BATCHES):
        if i >= 2 and late():
            break
        best = min(best, batch(run, n))
    return best


def figure(key, work, unit, run):
    """run: what is timed; work: flops, bytes or tokens of a call."""
    if late():
        emit(key, not_run="out of time")
        return
    scale = {"TFLOP/s": 1e-12, "GB/s": 1e-9, "tokens/s": 1}[unit]
    try:
        s = seconds(run)
        emit(key, rate=work * scale / s, unit=unit, ms=s * 1e3)
    except (torch.OutOfMemoryError, RuntimeError) as e:
        emit(key, not_run=str(e).split("\n")[0][:120])


def normal(*shape, dtype=torch.bfloat16, grad=False):
    return torch.randn(*shape, device=args.device, dtype=dtype).requires_grad_(grad)


# ---- operations ----------------------------------------------------------------------------------


def bench_copy():
    n = 1 << 16 if args.small else 1 << 30
    a = torch.empty(n, dtype=torch.uint8, device=args.device)
    b = torch.empty_like(a)
    figure("copy", 2 * n, "GB/s", lambda: b.copy_(a))


def bench_products():
    T = C = 64 if args.small else 8192
    for name, M, N, K in (("gemm", T, C, C), ("gemm", T, C // 4, C // 4)):
        x, w = normal(M, K), normal(N, K)
        figure(f"{name} bf16 M {M} N {N} K {K}", 2 * M * N * K, "TFLOP/s", lambda: x @ w.T)
    dy, w = normal(T, C), normal(C, C // 4)
    figure(f"gemm_dx bf16 M {T} N {C // 4} K {C}", 2 * T * C * C // 4, "TFLOP/s", lambda: dy @ w)
    x = normal(T, C // 4)
    figure(f"gemm_dw bf16 M {C} N {C // 4} K {T}", 2 * T * C * C // 4, "TFLOP/s", lambda: dy.T @ x)


def backends():
    from torch.nn.attention import SDPBackend

    names = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
    return [(n, getattr(SDPBackend, n)) for n in names if hasattr(SDPBackend, n)]


def bench_attn(S, H, D):
    """All backends; the fastest forward and the fastest backward count, each with its name."""
    from torch.nn.attention import sdpa_kernel

    key = f"bf16 causal S {S} H {H} D {D}"
    flops = 4 * H * D * S * (S + 1) / 2
    best = {"attn_fwd": None, "attn_bwd": None}
    if late():
        emit(f"attn_fwd {key}", not_run="out of time")
        return
    q, k, v = (normal(1, H, S, D, grad=True) for _ in range(3))
    d_o = normal(1, H, S, D)
    for name, backend in backends():
        if name == "MATH" and S > 8192:
            continue  # S x S numbers a head
        try:
            with sdpa_kernel(backend):
                with torch.no_grad():
                    fwd = seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
                o = F.scaled_dot_product_attention(q, k, v, is_causal=True)

                def back():
                    q.grad = k.grad = v.grad = None
                    o.backward(d_o, retain_graph=True)

                bwd = seconds(back)
        except RuntimeError:
            continue
        for op, s in (("attn_fwd", fwd), ("attn_bwd", bwd)):
            if best[op] is None or s < best[op][0]:
                best[op] = (s, name)
    for op, work in (("attn_fwd", flops), ("attn_bwd", 2.5 * flops)):
        if best[op]:
            s, name = best[op]
            emit(f"{op} {key}", rate=work * 1e-12 / s, unit="TFLOP/s", ms=s * 1e3, by=name)
        else:
            emit(f"{op} {key}", not_run="no backend takes it")


def chunked(q, k, v, slope, size=64):
    """Linear attention with decay as one writes it in PyTorch: products within chunks of 64 tokens,
    and one product of all chunks' sums with the powers of the decay. q, k, v [B, H, S, D]."""
    B, H, S, D = q.shape
    n = S // size
    q, k, v = (t.reshape(B, H, n, size, D) for t in (q, k, v))
    i = torch.arange(size, device=q.device, dtype=torch.float32)
    c = torch.arange(n, device=q.device, dtype=torch.float32)
    s = slope[:, None]
    near = torch.exp(-s[..., None] * (i[:, None] - i[None, :]).clamp(min=0)).tril()
    far = torch.exp(-s[..., None] * size * (c[:, None] - c[None, :] - 1).clamp(min=0)).tril(-1)
    enter, leave = torch.exp(-s * (i + 1)), torch.exp(-s * (size - 1 - i))
    inner = ((q @ k.transpose(-1, -2)) * near[:, None].to(q.dtype)) @ v
    kv = (k * leave[:, None, :, None].to(k.dtype)).transpose(-1, -2) @ v
    states = (far.to(kv.dtype) @ kv.reshape(B, H, n, D * D)).reshape(B, H, n, D, D)
    return (inner + (q * enter[:, None, :, None].to(q.dtype)) @ states).reshape(B, H, S, D)


def bench_linear(B, S, H, D, backward):
    slope = torch.exp2(-8.0 * (torch.arange(H, device=args.device) + 1) / H)
    key = f"linear_{'bwd' if backward else 'fwd'} bf16 B {B} S {S} H {H} D {D}"
    if late():
        emit(key, not_run="out of time")
        return
    try:
        q, k, v = (normal(B, H, S, D, grad=backward) for _ in range(3))
        if backward:
            o, d_o = chunked(q, k, v, slope), normal(B, H, S, D)
            figure(key, B * S, "tokens/s", lambda: o.backward(d_o, retain_graph=True))
        else:
            with torch.no_grad():
                figure(key, B * S, "tokens/s", lambda: chunked(q, k, v, slope))
    except (torch.OutOfMemoryError, RuntimeError) as e:
        emit(key, not_run=str(e).split("\n")[0][:120])


# ---- Llama's shape -------------------------------------------------------------------------------


class Layer(torch.nn.Module):
    def __init__(self, C, H, Hk, D, ffn):
        super().__init__()
        self.shape = (H, Hk, D)
        self.norm1, self.norm2 = torch.nn.RMSNorm(C, eps=1e-5), torch.nn.RMSNorm(C, eps=1e-5)
        self.qkv = torch.nn.Linear(C, (H + 2 * Hk) * D, bias=False)
        self.o = torch.nn.Linear(H * D, C, bias=False)
        self.gate_up = torch.nn.Linear(C, 2 * ffn, bias=False)
        self.down = torch.nn.Linear(ffn, C, bias=False)

    def turn(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    def forward(self, x, cos, sin):
        H, Hk, D = self.shape
        B, S, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).split((H * D, Hk * D, Hk * D), -1)
        q, k, v = (t.view(B, S, -1, D).transpose(1, 2) for t in (q, k, v))
        q, k = self.turn(q, cos, sin), self.turn(k, cos, sin)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=Hk != H)
        x = x + self.o(o.transpose(1, 2).reshape(B, S, H * D))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(torch.nn.Module):
    def __init__(self, L, C, H, Hk, D, ffn, V, theta):
        super().__init__()
        self.embed = torch.nn.Embedding(V, C)
        self.layers = torch.nn.ModuleList(Layer(C, H, Hk, D, ffn) for _ in range(L))
        self.norm = torch.nn.RMSNorm(C, eps=1e-5)
        self.freq = theta ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)

    def forward(self, ids, target):
        angle = torch.outer(torch.arange(ids.shape[1], dtype=torch.float64), self.freq)
        cos, sin = (t.float().to(ids.device) for t in (angle.cos(), angle.sin()))
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return loss_of(self.norm(x), self.embed.weight, target)


def piece(x, weight, target):
    return F.cross_entropy((x @ weight.T).float(), target, reduction="sum")


def loss_of(x, weight, target):
    """In pieces that are computed again, since all logits at once fit for no long sequence."""
    from torch.utils.checkpoint import checkpoint

    x, target = x.reshape(-1, x.shape[-1]), target.reshape(-1)
    total = 0
    for i in range(0, len(target), 8192):
        total = total + checkpoint(
            piece, x[i : i + 8192], weight, target[i : i + 8192], use_reentrant=False
        )
    return total / len(target)


MODELS = {
    "llama 124M": (12, 768, 12, 12, 64, 2048, 50304, 1e4),
    "llama 1.2B": (16, 2048, 32, 8, 64, 8192, 128256, 5e5),
    "llama tiny": (2, 32, 4, 2, 8, 40, 61, 1e4),
}


def bench_llama(name, lengths, pack):
    V = MODELS[name][6]
    if late(0 if args.small else 30):  # what compiling takes
        for S in lengths:
            emit(f"train {name} S {S}", not_run="out of time")
        return
    torch.manual_seed(1)
    model = Llama(*MODELS[name]).to(args.device)
    for p in model.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.02)
    optim = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=args.device == "cuda"
    )
    for S in lengths:
        key = f"train {name} S {S}"
        if late(0 if args.small else 30):
            emit(key, not_run="out of time")
            continue
        B = max(1, pack // S)
        ids = torch.randint(V, (B, S + 1), device=args.device)
        torch._dynamo.reset()
        compiled = model if args.small else torch.compile(model)

        def step():
            with torch.autocast(args.device, dtype=torch.bfloat16):
                loss = compiled(ids[:, :-1], ids[:, 1:])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optim.step()
            optim.zero_grad(set_to_none=True)
            return loss.item()

        try:
            step()
            best = math.inf
            for i in range(1 if args.small else 5):
                best = min(best, batch(step, 1))
                if i and late():
                    break
            emit(key, rate=B * S / best, unit="tokens/s", ms=best * 1e3)
        except (torch.OutOfMemoryError, RuntimeError) as e:
            emit(key, not_run=str(e).split("\n")[0][:120])
        optim.zero_grad(set_to_none=True)
        if args.device == "cuda":
            torch.cuda.empty_cache()


def main():
    global args, out, until
    p = argparse.ArgumentParser()
    p.add_argument("file")
    p.add_argument("--seconds", type=float, default=1e9)
    p.add_argument("--device", default="cuda")
    p.add_argument("--small", action="store_true")
    args = p.parse_args()
    until = time.monotonic() + args.seconds
    out = open(args.file, "a")
    if args.small:
        bench_copy()
        bench_products()
        bench_attn(64, 2, 64)
        bench_linear(2, 64, 2, 16, False), bench_linear(2, 64, 2, 16, True)
        bench_llama("llama tiny", (16, 64), 64)
        return
    # The figures that jobs are judged by come first: the call may end before the last ones.
    bench_llama("llama 124M", (16384,), 16384)
    bench_llama("llama 1.2B", (16384,), 16384)
    bench_copy()
    bench_products()
    bench_attn(16384, 16, 128), bench_attn(16384, 16, 64), bench_attn(65536, 16, 128)
    bench_linear(4, 32768, 32, 128, False), bench_linear(4, 32768, 32, 128, True)
    bench_llama("llama 124M", (1024, 65536), 16384)
    bench_llama("llama 1.2B", (4096,), 16384)


if __name__ == "__main__":
    main()
