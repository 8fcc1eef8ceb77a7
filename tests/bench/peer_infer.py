"""peer_infer.py: what other programs need to serve a Llama of 124 M with random weights, as lines
of JSON (peers.py).

    peer_infer.py transformers TOKENS fp32|bf16              prefill, decode and score
    peer_infer.py llama.cpp TOKENS fp32|bf16|q8_0|q4_0 [1b]  prefill and decode; 1b: of 1.24 B
    peer_infer.py load fp32|bf16                             transformers reads its directory

Threads and allocator are the environment's. A figure is the best of its rounds; a token of decode
is one of N_TOKENS after TOKENS of prompt."""
import json
import os
import struct
import sys
import tempfile
import time

N_LAYERS, WIDTH, N_HEADS, N_KV_HEADS, FFN, VOCAB = 12, 768, 12, 12, 2048, 50257
MODEL = "124m"
N_TOKENS, ROUNDS, THREADS = 24, 2, 2


def report(what, seq_len, precision, tokens, seconds, settings):
    print(json.dumps({"bench": what, "model": MODEL, "seq_len": seq_len, "precision": precision,
                      "tokens_s": tokens / min(seconds),
                      "worst_tokens_s": tokens / max(seconds), "rounds": len(seconds),
                      "settings": settings}), flush=True)


def timed(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


# ---- transformers --------------------------------------------------------------------------------


def imported():
    """(torch, transformers)"""
    try:
        import torch
        import transformers
    except ImportError:
        sys.exit(77)
    return torch, transformers


def make_model(torch, tf, seq_len, precision):
    """The model, and the settings that a line has."""
    config = tf.LlamaConfig(hidden_size=WIDTH, intermediate_size=FFN, num_hidden_layers=N_LAYERS,
                            num_attention_heads=N_HEADS, num_key_value_heads=N_HEADS,
                            vocab_size=VOCAB, tie_word_embeddings=True,
                            max_position_embeddings=2 * seq_len, attn_implementation="sdpa")
    torch.manual_seed(1)
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    return tf.LlamaForCausalLM(config).to(dtype).eval(), (
        f"transformers {tf.__version__}, PyTorch {torch.__version__}, "
        f"{torch.get_num_threads()} threads, sdpa")


def load(precision):
    """Reads a directory whose file is in the page cache, and a number of each page of its weights."""
    torch, tf = imported()
    model, says = make_model(torch, tf, 2048, precision)

    def read():
        own = tf.LlamaForCausalLM.from_pretrained(scratch, dtype=model.dtype)
        sum(p.detach().flatten()[::1024].sum().item() for p in own.parameters())

    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        read()
        seconds = [timed(read) for _ in range(ROUNDS)]
    print(json.dumps({"bench": "setup", "name": f"load {precision} as {precision}, {THREADS} threads",
                      "s": min(seconds), "rounds": ROUNDS, "settings": says}), flush=True)


def transformers(seq_len, precision):
    torch, tf = imported()
    model, says = make_model(torch, tf, seq_len, precision)
    ids = torch.randint(VOCAB, (1, seq_len))

    def prefill():
        return model(ids, use_cache=True, logits_to_keep=1).past_key_values

    def decode():
        cache, one, seconds = prefill(), ids[:, :1], []
        for _ in range(N_TOKENS):
            seconds.append(timed(lambda: model(one, past_key_values=cache, use_cache=True)))
        return seconds

    def score():
        logits = model(ids, use_cache=False).logits[0, :-1]
        return torch.nn.functional.cross_entropy(logits.float(), ids[0, 1:], reduction="none")

    with torch.inference_mode():
        prefill()
        report("prefill", seq_len, precision, seq_len,
               [timed(prefill) for _ in range(ROUNDS)], says)
        report("decode", seq_len, precision, 1, decode(), says)
        score()
        report("score", seq_len, precision, seq_len, [timed(score) for _ in range(ROUNDS)], says)


# ---- llama.cpp -----------------------------------------------------------------------------------

F32, Q4_0, Q8_0, BF16 = 0, 2, 8, 30  # types of ggml
BLOCK = {Q4_0: 18, Q8_0: 34}  # bytes of 32 values
KIND = {"fp32": F32, "bf16": BF16, "q8_0": Q8_0, "q4_0": Q4_0}


def gguf_string(s):
    return struct.pack("<Q", len(s)) + s.encode()


def gguf_header():
    """Keys of a Llama without a tokenizer."""
    ints = {"context_length": 1 << 16, "embedding_length": WIDTH, "block_count": N_LAYERS,
            "feed_forward_length": FFN, "attention.head_count": N_HEADS, "vocab_size": VOCAB,
            "attention.head_count_kv": N_KV_HEADS,
            "rope.dimension_count": WIDTH // N_HEADS}
    keys = [gguf_string(key) + struct.pack("<I", 8) + gguf_string(value)
            for key, value in (("general.architecture", "llama"), ("tokenizer.ggml.model", "none"))]
    keys += [gguf_string("llama." + key) + struct.pack("<II", 4, n) for key, n in ints.items()]
    keys.append(gguf_string("llama.attention.layer_norm_rms_epsilon") +
                struct.pack("<If", 6, 1e-5))
    return keys


def gguf_tensors():
    """Names and shapes [out, in]; the head is the table of embeddings."""
    kv = WIDTH // N_HEADS * N_KV_HEADS
    yield "token_embd.weight", (VOCAB, WIDTH)
    yield "output_norm.weight", (WIDTH,)
    for i in range(N_LAYERS):
        for name, shape in (("attn_norm", (WIDTH,)), ("ffn_norm", (WIDTH,)),
                            ("attn_q", (WIDTH, WIDTH)), ("attn_k", (kv, WIDTH)),
                            ("attn_v", (kv, WIDTH)), ("attn_output", (WIDTH, WIDTH)),
                            ("ffn_gate", (FFN, WIDTH)), ("ffn_up", (FFN, WIDTH)),
                            ("ffn_down", (WIDTH, FFN))):
            yield f"blk.{i}.{name}.weight", shape


def gguf_blocks(kind, shape, rng, np):
    """Random codes beside one scale for all: values of about 0.02."""
    n = shape[0] * shape[1] // 32
    blocks = rng.integers(0, 256, (min(n, 1 << 16), BLOCK[kind]), dtype=np.uint8)
    scale = np.array([0.02 / (64 if kind == Q8_0 else 4)], dtype="<f2")
    blocks[:, :2] = scale.view(np.uint8)
    return np.resize(blocks, (n, BLOCK[kind]))


def gguf_write(path, precision, np):
    """A file of llama.cpp with random weights; norms are fp32, as its converter leaves them."""
    rng, infos, datas, at = np.random.default_rng(1), [], [], 0
    for name, shape in gguf_tensors():
        kind = KIND[precision] if len(shape) == 2 else F32
        if kind in BLOCK:
            data = gguf_blocks(kind, shape, rng, np)
        else:
            x = rng.standard_normal(shape, dtype=np.float32) * np.float32(0.02)
            data = (x.view(np.uint32) >> 16).astype(np.uint16) if kind == BF16 else x
        dims = struct.pack(f"<{len(shape)}Q", *reversed(shape))
        infos.append(gguf_string(name) + struct.pack("<I", len(shape)) + dims +
                     struct.pack("<IQ", kind, at))
        datas.append(data.tobytes())
        datas[-1] += bytes(-len(datas[-1]) % 32)
        at += len(datas[-1])
    keys = gguf_header()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys)) + b"".join(keys + infos)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for data in datas:
            f.write(data)


def llama_cpp(seq_len, precision):
    try:
        import llama_cpp
        import numpy as np
    except ImportError:
        sys.exit(77)
    cache_type = F32 if precision == "fp32" else 1  # fp16 is its default
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "model.gguf")
        gguf_write(path, precision, np)
        llm = llama_cpp.Llama(path, n_ctx=seq_len + 2 * N_TOKENS, n_batch=seq_len,
                              n_threads=THREADS, n_threads_batch=THREADS, flash_attn=True,
                              type_k=cache_type, type_v=cache_type, verbose=False)
    ids = np.random.default_rng(2).integers(0, VOCAB, seq_len).tolist()

    def prefill():
        llm.reset()
        llm.eval(ids)

    prefill()
    says = (f"llama-cpp-python {llama_cpp.__version__}, {THREADS} threads, flash attention, "
            f"cache in {'fp32' if cache_type == F32 else 'fp16'}")
    report("prefill", seq_len, precision, seq_len, [timed(prefill) for _ in range(ROUNDS)], says)
    report("decode", seq_len, precision, 1,
           [timed(lambda: llm.eval([100])) for _ in range(N_TOKENS)], says)


def main():
    global N_LAYERS, WIDTH, N_HEADS, N_KV_HEADS, FFN, VOCAB, MODEL
    if sys.argv[1] == "load":
        load(sys.argv[2])
        return
    what, seq_len, precision = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    if sys.argv[4:] == ["1b"]:
        MODEL = "1b"
        N_LAYERS, WIDTH, N_HEADS, N_KV_HEADS, FFN, VOCAB = 16, 2048, 32, 8, 8192, 128256
    {"transformers": transformers, "llama.cpp": llama_cpp}[what](seq_len, precision)


if __name__ == "__main__":
    main()
