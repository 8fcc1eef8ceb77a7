"""peer_torch.py: what PyTorch needs for the same work, as lines of JSON (peers.py).

    peer_torch.py train SEQ_LEN fp32 plain eager|compile               a step of a Llama of 124 M
    peer_torch.py train SEQ_LEN bf16 autocast|weights eager|compile
    peer_torch.py attention fp32|bf16 HEADS HEAD_SIZE                  causal, 4096 tokens
    peer_torch.py products fp32|bf16                                   of that Llama's shapes
    peer_torch.py gloo                                                 exchanges between ranks

Both ways to bf16 have fp32 masters: autocast narrows them in each step; "weights" is a model in
bf16, which is copied from the masters after each update.

peak_mib of a training is the most memory that the process had resident, Python and libraries
with it.

With BENCH_TURNS a training prints {"ready": 1} after its first step, and computes a step for each
line that it reads (turns.h).

Threads, their cores and the allocator are the environment's. A figure is the best of its rounds, with the median and
the worst of them."""
import json
import os
import resource
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(77)

SHAPE = {"n_layers": 12, "width": 768, "n_heads": 12, "ffn": 2048, "vocab": 50257}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def settings(more):
    return (f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, "
            f"{torch.backends.cpu.get_cpu_capability()}, {more}")


def rounds_of(run, n=None, seconds=1.0):
    """Seconds of each of n rounds, or of as many as fit, at least 3, after one that is not counted:
    memory is cold and code is compiled in it."""
    run()
    times, start = [], time.perf_counter()
    while len(times) < (n or 3) or (n is None and time.perf_counter() - start < seconds):
        t = time.perf_counter()
        run()
        times.append(time.perf_counter() - t)
    return times


def in_turns(run):
    """Yields the seconds of a round for each line that is read."""
    run()
    print(json.dumps({"ready": 1}), flush=True)
    for _ in sys.stdin:
        t = time.perf_counter()
        run()
        yield time.perf_counter() - t


def report(line, times, more, scale=1e3, unit="ms"):
    """A line with the best of the times, in ms or us."""
    line.update({unit: min(times) * scale, "median": statistics.median(times) * scale,
                 "worst": max(times) * scale, "rounds": len(times), "settings": settings(more)})
    print(json.dumps(line), flush=True)


# ---- a training step -----------------------------------------------------------------------------


class Block(torch.nn.Module):
    def __init__(self, c, n_heads, ffn):
        super().__init__()
        self.n_heads = n_heads
        self.norm1, self.norm2 = torch.nn.RMSNorm(c, eps=1e-5), torch.nn.RMSNorm(c, eps=1e-5)
        self.qkv, self.out = (torch.nn.Linear(c, n, bias=False) for n in (3 * c, c))
        self.gate_up = torch.nn.Linear(c, 2 * ffn, bias=False)
        self.down = torch.nn.Linear(ffn, c, bias=False)

    def forward(self, x, cos, sin):
        b, s, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, self.n_heads, -1).unbind(2)
        q, k, v = (t.transpose(1, 2) for t in (rotate(q, cos, sin), rotate(k, cos, sin), v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(b, s, c))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Llama(torch.nn.Module):
    def __init__(self, n_layers, width, n_heads, ffn, vocab, seq_len):
        super().__init__()
        self.embed = torch.nn.Embedding(vocab, width)
        self.blocks = torch.nn.ModuleList(Block(width, n_heads, ffn) for _ in range(n_layers))
        self.norm = torch.nn.RMSNorm(width, eps=1e-5)
        d = width // n_heads
        angle = torch.outer(torch.arange(seq_len), 10000.0 ** (-torch.arange(0, d, 2) / d))
        self.register_buffer("cos", angle.cos()[:, None])
        self.register_buffer("sin", angle.sin()[:, None])
        torch.nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, ids, targets):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Masters:
    """fp32 copies of a model's bf16 weights."""

    def __init__(self, weights):
        self.weights = list(weights)
        self.copies = [torch.nn.Parameter(w.detach().float()) for w in self.weights]
        for copy in self.copies:
            copy.grad = torch.empty_like(copy)

    def take_gradients(self):
        torch._foreach_copy_([copy.grad for copy in self.copies], [w.grad for w in self.weights])

    @torch.no_grad()
    def give_weights(self):
        torch._foreach_copy_(self.weights, self.copies)


WAYS = {"plain": "", "autocast": ", autocast to bf16 with fp32 masters",
        "weights": ", bf16 weights with fp32 masters"}


def train(seq_len, precision, way, mode):
    torch.manual_seed(1)
    model, masters = Llama(seq_len=seq_len, **SHAPE), None
    if way == "weights":
        model = model.to(torch.bfloat16)
        masters = Masters(model.parameters())
    updated = masters.copies if masters else list(model.parameters())
    opt = torch.optim.AdamW(updated, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids = torch.randint(SHAPE["vocab"], (1, seq_len + 1))
    loss_of = torch.compile(model) if mode == "compile" else model

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
            loss = loss_of(ids[:, :-1], ids[:, 1:])
        loss.backward()
        if masters:
            masters.take_gradients()
        torch.nn.utils.clip_grad_norm_(updated, 1.0)
        opt.step()
        if masters:
            masters.give_weights()
        model.zero_grad(set_to_none=True)

    def tell(times):
        report({"bench": "train", "seq_len": seq_len, "precision": precision, "way": way,
                "mode": mode, "tokens_s": seq_len / min(times),
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}, times,
               f"{mode}, fused AdamW{WAYS[way]}")

    if os.environ.get("BENCH_TURNS"):
        for seconds in in_turns(step):
            tell([seconds])
    else:
        tell(rounds_of(step, n=3 if seq_len <= 2048 else 2 if seq_len <= 4096 else 1))


# ---- attention and products ----------------------------------------------------------------------


def attention(dtype, n_heads, head_size, n=4096):
    def rows():  # as the projections of a model leave them
        return torch.randn(1, n, n_heads, head_size, dtype=DTYPES[dtype]).transpose(1, 2)

    q, k, v = (rows().requires_grad_() for _ in range(3))
    d_o = rows()

    def forward():
        with torch.no_grad():
            F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both():
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.autograd.grad(o, (q, k, v), d_o)

    shape = f"Tq {n} S {n} H {n_heads}/{n_heads} D {head_size} causal"
    for op, run in (("attn_fwd", forward), ("attn_both", both)):
        report({"bench": "kernels", "op": op, "dtype": dtype, "shape": shape}, rounds_of(run),
               "scaled_dot_product_attention")


def product(dtype, op, m, n, k):
    """y = x W', dx = dy W, dW = dy' x: operands as a model's layer has them."""
    def matrix(rows, cols):
        return torch.randn(rows, cols).to(DTYPES[dtype])

    a = matrix(k, m).t() if op == "gemm_dw" else matrix(m, k)
    b = matrix(n, k).t() if op == "gemm_y" else matrix(k, n)
    c = torch.empty(m, n, dtype=DTYPES[dtype])
    report({"bench": "kernels", "op": op, "dtype": dtype, "shape": f"M {m} N {n} K {k}"},
           rounds_of(lambda: torch.mm(a, b, out=c)),
           "oneDNN" if dtype == "bf16" else "MKL")


def products(dtype):
    rows = 4096
    for n, k in ((2048, 768), (768, 3072)):
        product(dtype, "gemm_y", rows, n, k)
        product(dtype, "gemm_dx", rows, k, n)
        product(dtype, "gemm_dw", n, k, rows)
    product(dtype, "gemm_y", 4096, 4096, 4096)
    rows, n, k = 1024, SHAPE["vocab"], SHAPE["width"]
    product(dtype, "gemm_y", rows, n, k)
    product(dtype, "gemm_dx", rows, k, n)
    product(dtype, "gemm_dw", n, k, rows)


# ---- exchanges -----------------------------------------------------------------------------------


def ring(rank, n_ranks, size, n):
    """Seconds of each step in which every rank sends size bytes to the next."""
    dist = torch.distributed
    out, into = (torch.zeros(size, dtype=torch.uint8) for _ in range(2))

    def step():
        sent = dist.isend(out, (rank + 1) % n_ranks)
        dist.recv(into, (rank - 1) % n_ranks)
        sent.wait()

    return rounds_of(step, n)


def bind(rank):
    """Binds a rank to one of the cores, as ours are (pin.h)."""
    cores = [int(core) for core in os.environ.get("BENCH_CORES", "").split()]
    if cores:
        os.sched_setaffinity(0, {cores[rank % len(cores)]})


def exchange(rank, n_ranks, port):
    bind(rank)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                                         world_size=n_ranks)
    lines = []
    sizes = (65536, 1 << 20) if n_ranks == 2 else (64 << 10, 4 << 20)
    for size in sizes:
        times = ring(rank, n_ranks, size, 300 if size > 1 << 16 else 1000)
        if n_ranks == 2:
            lines.append(({"bench": "hop", "bytes": size}, times, "us"))
        else:
            lines.append(({"bench": "ring_step", "ranks": n_ranks, "bytes": size,
                           "median_us": statistics.median(times) * 1e6}, times, "us"))
    x = torch.zeros(5 << 20)
    times = rounds_of(lambda: torch.distributed.all_reduce(x), 5)
    lines.append(({"bench": "sum_f32", "ranks": n_ranks, "floats": 5 << 20}, times, "ms"))
    if rank == 0:
        for line, times, unit in lines:
            report(line, times, "gloo", 1e6 if unit == "us" else 1e3, unit)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def gloo():
    import socket
    import torch.multiprocessing
    for n_ranks in (2, 4):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        os.environ.pop("GOMP_CPU_AFFINITY", None)  # ranks are more than cores
        torch.multiprocessing.spawn(exchange, (n_ranks, port), n_ranks)


def main():
    what, args = sys.argv[1], sys.argv[2:]
    if what == "train":
        train(int(args[0]), args[1], args[2], args[3])
    elif what == "attention":
        attention(args[0], int(args[1]), int(args[2]))
    elif what == "products":
        products(args[0])
    elif what == "gloo":
        gloo()
    else:
        sys.exit(f"peer_torch.py: {what}?")


if __name__ == "__main__":
    main()
