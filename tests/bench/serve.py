#!/usr/bin/env python3
"""serve.py: a job that serves beside llama.cpp's server, on the same weights, in turn.

    tests/bench/serve.py [--rounds N] [--smoke] [word ...]

The model has the shape of SmolLM2-135M and random weights: a GGUF file that both read, whose
matrices are bf16 values in either precision. Both servers are loaded, and one of them is asked at a
time. A pair of a row is one measurement of each, the second pair in the other order, and so on. The
ratio of a pair is above 1 where seqd is faster; a row has the median of the pairs and the worst.
Rows whose name has every word are run; without words all.

    tokens/s N clients      answers of --tokens tokens to N prompts of 64, asked at once
    first token 2048        from the request to the first event of the answer
    second turn 8000        the first token of a conversation's next turn (its prompt, its answer and
                            64 new tokens) over that of its first turn: each server has its own ratio
    door                    decoding through seqd over the batch job's rate (decode_tokens_s)

Both have two threads, and the cores of BENCH_CORES ("0 1"). Requests are lists of token ids, with
ignore_eos and temperature 0; random weights end no text, and no server tokenizes.

--rounds N       pairs of each row, 10
--tokens N       of an answer, 64
--precision P    fp32 or bf16 alone
--ranks N        seqd: N ranks of 2/N threads, 1
--smoke          a small model, one pair, few tokens: tries the script
--keep DIR       the model files stay in DIR, and are read from there
BUILD            seqd's programs, build/release
LLAMA_SERVER     llama.cpp's llama-server; without it, rows of seqd alone. The source of
                 llama-cpp-python has it: pip download --no-binary :all: --no-deps llama-cpp-python,
                 then in vendor/llama.cpp: cmake -B build -DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF
                 -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF, and
                 cmake --build build --target llama-server
LLAMA_FLAGS      further flags of it, as -ctk f32 -ctv f32
"""
import argparse
import json
import os
import random
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build/release"))
THREADS = 2
GOAL, WORST = 1.0, 0.9
CLIENTS = (1, 4, 16)
TURN, FIRST, SHORT = 8000, 2048, 64  # tokens of prompts
SEQ_LEN = 8192
F32, BF16 = 0, 30                    # types of ggml

# ---- the model -----------------------------------------------------------------------------------


class Shape:
    """SmolLM2-135M, or a small model for --smoke."""

    def __init__(self, smoke):
        self.width, self.heads, self.kv, self.ffn = (576, 9, 3, 1536)
        self.layers, self.vocab = (2, 2048) if smoke else (30, 49152)


def string(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def key(name, value):
    if isinstance(value, str):
        return string(name) + struct.pack("<I", 8) + string(value)
    if isinstance(value, float):
        return string(name) + struct.pack("<If", 6, value)
    if isinstance(value, list):
        kind = 8 if isinstance(value[0], str) else 5
        items = b"".join(string(v) if kind == 8 else struct.pack("<i", v) for v in value)
        return string(name) + struct.pack("<IIQ", 9, kind, len(value)) + items
    return string(name) + struct.pack("<II", 4, value)


def header(s):
    """Keys of a Llama. Its tokens are the bytes, and others that no text has."""
    shown = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    hidden = [b for b in range(256) if b not in shown]
    tokens = [chr(b) for b in shown] + [chr(256 + i) for i in range(len(hidden))]
    tokens += [f"x{i}y" for i in range(s.vocab - len(tokens) - 1)] + ["<|endoftext|>"]
    return [key("general.architecture", "llama"), key("llama.context_length", SEQ_LEN),
            key("llama.embedding_length", s.width), key("llama.block_count", s.layers),
            key("llama.feed_forward_length", s.ffn), key("llama.attention.head_count", s.heads),
            key("llama.attention.head_count_kv", s.kv), key("llama.vocab_size", s.vocab),
            key("llama.rope.dimension_count", s.width // s.heads),
            key("llama.rope.freq_base", 100000.0),
            key("llama.attention.layer_norm_rms_epsilon", 1e-5),
            key("tokenizer.ggml.model", "gpt2"), key("tokenizer.ggml.pre", "smollm"),
            key("tokenizer.ggml.tokens", tokens),
            key("tokenizer.ggml.token_type", [1] * (s.vocab - 1) + [3]),
            key("tokenizer.ggml.merges", ["a b"]),
            key("tokenizer.ggml.bos_token_id", s.vocab - 1),
            key("tokenizer.ggml.eos_token_id", s.vocab - 1)]


def tensors(s):
    """Names and shapes [out, in]; the head is the table of embeddings."""
    kv = s.width // s.heads * s.kv
    yield "token_embd.weight", (s.vocab, s.width)
    yield "output_norm.weight", (s.width,)
    for i in range(s.layers):
        for name, shape in (("attn_norm", (s.width,)), ("ffn_norm", (s.width,)),
                            ("attn_q", (s.width, s.width)), ("attn_k", (kv, s.width)),
                            ("attn_v", (kv, s.width)), ("attn_output", (s.width, s.width)),
                            ("ffn_gate", (s.ffn, s.width)), ("ffn_up", (s.ffn, s.width)),
                            ("ffn_down", (s.width, s.ffn))):
            yield f"blk.{i}.{name}.weight", shape


SIGN = bytes(0x3C if b < 128 else 0xBC for b in range(256))


def values(n, kind, draw):
    """Random values of 0.008 to 0.03 and either sign, which bf16 has exactly."""
    size = 4 if kind == F32 else 2
    out = bytearray(size * n)
    out[size - 2::size] = draw.randbytes(n)
    out[size - 1::size] = draw.randbytes(n).translate(SIGN)
    return bytes(out)


def write_model(path, s, kind):
    """Norms are ones in fp32, as llama.cpp's converter leaves them."""
    infos, at, draw = [], 0, random.Random(1)
    for name, shape in tensors(s):
        of = kind if len(shape) == 2 else F32
        n = shape[0] * (shape[1] if len(shape) == 2 else 1)
        infos.append(string(name) + struct.pack("<I", len(shape)) +
                     struct.pack(f"<{len(shape)}QIQ", *reversed(shape), of, at))
        at += (n * (4 if of == F32 else 2) + 31) // 32 * 32
    keys = header(s)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys)) + b"".join(keys + infos)
    with open(path + ".tmp", "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for _, shape in tensors(s):
            data = (struct.pack("<f", 1.0) * shape[0] if len(shape) == 1
                    else values(shape[0] * shape[1], kind, draw))
            f.write(data + bytes(-len(data) % 32))
    os.replace(path + ".tmp", path)


# ---- requests ------------------------------------------------------------------------------------


class Answer:
    """Seconds of an answer: first is the time to its first event, last to its end."""

    def __init__(self, first, last, ids, n):
        self.first, self.last, self.ids, self.n = first, last, ids, n


class Server:
    """A server that is loaded: its name, and the port and path of its completions."""

    def __init__(self, name, port, path, token, model):
        self.name, self.port, self.path, self.token, self.model = name, port, path, token, model

    def ask(self, prompt, n):
        body = json.dumps({"model": self.model, "prompt": prompt, "max_tokens": n, "temperature": 0,
                           "ignore_eos": True, "stream": True,
                           "stream_options": {"include_usage": True}}).encode()
        head = (f"POST {self.path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                f"Authorization: Bearer {self.token}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode()
        with socket.create_connection(("127.0.0.1", self.port), timeout=600) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            begun = time.perf_counter()
            s.sendall(head + body)
            first, pieces = None, []
            while piece := s.recv(1 << 16):
                pieces.append(piece)
                if first is None and b"data: {" in b"".join(pieces):
                    first = time.perf_counter() - begun
            return self.read(b"".join(pieces), first, time.perf_counter() - begun, n)

    def read(self, raw, first, last, n):
        """Reads events; the frames of a chunked body lie between them."""
        ids, used = [], None
        for line in raw.split(b"\n"):
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                used = event.get("usage") or used
                for c in event.get("choices", []):
                    ids += c.get("token_ids") or []
        if not used or used["completion_tokens"] != n:
            raise SystemExit(f"serve.py: {self.name} answered {raw[-600:]!r}")
        return Answer(first, last, ids, n)

    def ask_all(self, prompts, n):
        """Asks all prompts at once. Returns the answers."""
        out = [None] * len(prompts)

        def one(i):
            out[i] = self.ask(prompts[i], n)
        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(prompts))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if None in out:
            raise SystemExit(f"serve.py: {self.name} did not answer")
        return out


# ---- servers -------------------------------------------------------------------------------------


class Seqd:
    def __init__(self, scratch, path, precision, args):
        self.state = os.path.join(scratch, "state")
        self.data, self.args = os.path.dirname(path), args
        log = open(os.path.join(scratch, "seqd.log"), "wb")
        self.process = subprocess.Popen(
            [os.path.join(BUILD, "seqd"), "--dev", "--state", self.state, "--listen", "127.0.0.1:0"],
            cwd=self.data, stdout=log, stderr=log)
        wait("seqd", self.process, lambda: self.ctl("nodes", "-o", "name", check=False).strip())
        self.spec = {"model": {"path": os.path.basename(path)}, "precision": {"params": precision},
                     "data": {"seq_len": SEQ_LEN},
                     "resources": {"ranks": args.ranks, "threads": THREADS // args.ranks}}
        serve = {**self.spec, "kind": "serve", "name": "bench", "sampling": {"max_tokens": 1024},
                 "serve": {"max_requests": max(CLIENTS)}}
        base = self.ctl("serve", "-", "-q", given=json.dumps(serve)).strip()
        self.version = subprocess.run([os.path.join(BUILD, "seqd"), "--version"], check=True,
                                      capture_output=True, text=True).stdout.strip()
        port = int(base.split(":")[2].split("/")[0])
        token = open(os.path.join(self.state, "token"), encoding="utf-8").read().strip()
        self.server = Server("seqd", port, "/openai/v1/completions", token, "bench")

    def ctl(self, *command, given=None, check=True):
        done = subprocess.run([os.path.join(BUILD, "seqctl"), *command], input=given, cwd=self.data,
                              env={**os.environ, "SEQD_URL": self.state}, capture_output=True,
                              text=True)
        if check and done.returncode:
            raise SystemExit(f"serve.py: seqctl {' '.join(command)}: {done.stderr}")
        return done.stdout

    def batch(self, prompts, n):
        """decode_tokens_s of a batch job with these prompts."""
        path = os.path.join(self.data, "requests.jsonl")
        with open(path, "w", encoding="utf-8") as f:
            for i, p in enumerate(prompts):
                f.write(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions",
                                    "body": {"prompt": p, "max_tokens": n, "ignore_eos": True,
                                             "temperature": 0}}) + "\n")
        spec = {**self.spec, "kind": "generate", "sampling": {"max_tokens": 1024},
                "input": {"path": "requests.jsonl", "format": "openai_batch"}}
        job = self.ctl("submit", "-", "-o", "name", given=json.dumps(spec)).strip()
        self.ctl("watch", job, "-q")
        return json.loads(self.ctl("show", job, "--field", "result"))["decode_tokens_s"]

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


class Llama:
    def __init__(self, scratch, path, program):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        slots, threads = str(max(CLIENTS)), str(THREADS)
        self.flags = ["-t", threads, "-tb", threads, "-np", slots,
                      "-c", str(SEQ_LEN * max(CLIENTS)), "-fa", "on",
                      *os.environ.get("LLAMA_FLAGS", "").split()]
        log = open(os.path.join(scratch, "llama.log"), "wb")
        self.process = subprocess.Popen([program, "-m", path, "--host", "127.0.0.1", "--port",
                                         str(port), *self.flags], stdout=log, stderr=log)

        def healthy():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as r:
                    return r.status == 200
            except OSError:
                return False
        wait("llama-server", self.process, healthy, os.path.join(scratch, "llama.log"))
        done = subprocess.run([program, "--version"], capture_output=True, text=True)
        self.version = (done.stderr + done.stdout).strip().split("\n")[0]
        self.server = Server("llama.cpp", port, "/v1/completions", "none", "bench")

    def stop(self):
        self.process.terminate()
        self.process.wait()


def wait(name, process, ready, log=None):
    end = time.monotonic() + 300
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            text = open(log, encoding="utf-8", errors="replace").read()[-1500:] if log else ""
            raise SystemExit(f"serve.py: {name} did not start\n{text}")
        time.sleep(0.1)


# ---- rows ----------------------------------------------------------------------------------------


class Rows:
    """Each measurement draws its own prompts, so that no server has kept one. Both of a pair
    get the same."""

    def __init__(self, args, shape):
        self.args, self.vocab, self.draw = args, shape.vocab, random.Random(2)

    def prompt(self, n):
        return [self.draw.randrange(self.vocab - 1) for _ in range(n)]

    def rate(self, n):
        """tokens/s of n clients."""
        prompts = [self.prompt(SHORT) for _ in range(n)]

        def measure(server):
            begun = time.perf_counter()
            server.ask_all(prompts, self.args.tokens)
            return n * self.args.tokens / (time.perf_counter() - begun)
        return measure

    def first(self):
        """1/s to the first token of a long prompt."""
        prompt = self.prompt(self.args.first)
        return lambda server: 1 / server.ask(prompt, 4).first

    def turn(self):
        """The second turn's time over the first's."""
        prompt, new = self.prompt(self.args.turn), self.prompt(SHORT)

        def measure(server):
            a = server.ask(prompt, 16)
            # The next prompt holds the answer, by ids where the server gives them.
            answer = a.ids if len(a.ids) == 16 else []
            return server.ask(prompt + answer + new, 4).first / a.first
        return measure

    def all(self):
        for n in CLIENTS:
            yield f"tokens/s {n} clients", "1/s", lambda n=n: self.rate(n)
        yield f"first token {self.args.first}", "1/s", self.first
        yield f"second turn {self.args.turn}", "of the first", self.turn


def pairs(rows, name, unit, make, servers, args):
    """Measures a row, and prints it. Returns its line of JSON."""
    found = {s.name: [] for s in servers}
    for r in range(args.rounds):
        measure = make()
        for s in servers if r % 2 == 0 else servers[::-1]:
            found[s.name].append(measure(s))
    line = {"row": name, "unit": unit, **{k: statistics.median(v) for k, v in found.items()}}
    text = "  ".join(f"{k} {statistics.median(v):.4g}" for k, v in found.items())
    if unit == "of the first":
        line["met"] = statistics.median(found["seqd"]) <= 0.1
        verdict = "at most 0.1"
    elif len(servers) == 2:
        ratios = [a / b for a, b in zip(found["seqd"], found["llama.cpp"])]
        line.update(ratio=statistics.median(ratios), worst=min(ratios), best=max(ratios))
        line["met"] = line["ratio"] >= GOAL and line["worst"] >= WORST
        text += f"  ratio {line['ratio']:.3f}  worst {line['worst']:.3f}  best {line['best']:.3f}"
        verdict = f"median at least {GOAL}, worst {WORST}"
    else:
        print(f"{name:32} {text} {unit}", flush=True)
        return line
    print(f"{name:32} {text} {unit}: {verdict}: {'met' if line['met'] else 'NOT met'}", flush=True)
    return line


def door(seqd, rows, args):
    """Decoding through the door, from the first tokens to the last, over the batch job's rate."""
    found = []
    for _ in range(args.rounds):
        prompts = [rows.prompt(SHORT) for _ in range(max(CLIENTS))]
        batch = seqd.batch(prompts, args.tokens)
        answers = seqd.server.ask_all(prompts, args.tokens)
        # One prompt begins in a pass: all decode from the last one's first token on.
        begin, end = max(a.first for a in answers), min(a.last for a in answers)
        before = sum((begin - a.first) / (a.last - a.first) * a.n for a in answers)
        after = sum((a.last - end) / (a.last - a.first) * a.n for a in answers)
        served = (sum(a.n for a in answers) - before - after) / (end - begin)
        found.append((served / batch, served, batch))
    found.sort()
    ratio, served, batch = found[len(found) // 2]
    line = {"row": "door", "unit": "tokens/s", "door": served, "batch": batch, "ratio": ratio,
            "worst": found[0][0], "met": ratio >= 0.95}
    print(f"{'door over batch':32} door {served:.4g}  batch {batch:.4g}  ratio {ratio:.3f}  worst "
          f"{found[0][0]:.3f}: at least 0.95: {'met' if line['met'] else 'NOT met'}", flush=True)
    return line


def compare(args, precision, scratch):
    shape = Shape(args.smoke)
    folder = args.keep or scratch
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{'smoke' if args.smoke else 'smollm2-135m'}-{precision}.gguf")
    if not os.path.exists(path):
        write_model(path, shape, F32 if precision == "fp32" else BF16)
    mine = os.path.join(scratch, precision)
    os.makedirs(os.path.join(mine, "data"))
    link = os.path.join(mine, "data", os.path.basename(path))
    shutil.copyfile(path, link)
    rows, seqd, llama = Rows(args, shape), Seqd(mine, link, precision, args), None
    program = os.environ.get("LLAMA_SERVER")
    try:
        print(f"\n{precision}\nseqd: {seqd.version}, {args.ranks} x {THREADS // args.ranks} threads")
        if program:
            llama = Llama(mine, path, program)
            print(f"llama.cpp: {llama.version}, {' '.join(llama.flags)}")
        else:
            print("llama.cpp: LLAMA_SERVER names no llama-server: seqd alone")
        servers = [seqd.server] + ([llama.server] if llama else [])
        for s in servers:
            s.ask_all([rows.prompt(SHORT)] * 2, 4)  # what is made once
        lines = []
        for name, unit, make in rows.all():
            if all(w in f"{precision} {name}" for w in args.words):
                lines.append(pairs(rows, name, unit, make, servers, args))
        if all(w in f"{precision} door" for w in args.words):
            lines.append(door(seqd, rows, args))
        for line in lines:
            print(json.dumps({"bench": "serve", "precision": precision, **line}))
        return lines
    finally:
        if llama:
            llama.stop()
        seqd.stop()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--precision", choices=("fp32", "bf16"))
    p.add_argument("--ranks", type=int, default=1, choices=(1, 2))
    p.add_argument("--smoke", action="store_true")
    p.add_argument("--keep")
    p.add_argument("words", nargs="*")
    args = p.parse_args()
    args.first, args.turn = FIRST, TURN
    if args.smoke:
        args.rounds, args.tokens, args.first, args.turn = 1, 8, 256, 512
    cores = {int(c) for c in os.environ.get("BENCH_CORES", "0 1").split()}
    os.sched_setaffinity(0, cores & os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="seqd-serve.") as scratch:
        lines = [line for precision in ("fp32", "bf16") if args.precision in (None, precision)
                 for line in compare(args, precision, scratch)]
    missed = [line["row"] for line in lines if line.get("met") is False]
    print(f"\n{len(lines)} rows, {len(missed)} miss their goal{': ' if missed else ''}{', '.join(missed)}")


main()
