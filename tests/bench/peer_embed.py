"""peer_embed.py: vectors of short documents by a BERT of 6 layers and 384 columns with random
weights, as lines of JSON (peers.py).

    peer_embed.py seqd fp32|bf16          a whole job of `seqd run`, whose result has the speed
    peer_embed.py transformers fp32|bf16  batches of 32, eager and compiled: the faster one

Both embed the same N_DOCUMENTS documents of N_TOKENS tokens each, the last of which is END, with the
mean of the last states, which is normalised. Threads and allocator are the environment's. Loading is not counted. A figure
is the best of its rounds. SEQD names the program, by default that of the release build."""
import array
import json
import os
import random
import subprocess
import sys
import tempfile
import time

N_DOCUMENTS, N_TOKENS, BATCH, ROUNDS, THREADS = 600, 30, 32, 3, 2
VOCAB, END = 30522, 102
HERE = os.path.dirname(os.path.abspath(__file__))
CORES = os.sched_getaffinity(0)  # PyTorch's OpenMP binds this thread to one of them


def report(precision, rates, settings):
    print(json.dumps({"bench": "embed", "precision": precision, "documents": N_DOCUMENTS,
                      "tokens": N_TOKENS, "tokens_s": max(rates),
                      "worst_tokens_s": min(rates), "rounds": len(rates),
                      "settings": settings}), flush=True)


def make_documents():
    ids = random.Random(1)
    return [[ids.randrange(1000, VOCAB) for _ in range(N_TOKENS - 1)] + [END]
            for _ in range(N_DOCUMENTS)]


def make_model(torch, tf):
    torch.manual_seed(1)
    config = tf.BertConfig(vocab_size=VOCAB, hidden_size=384, num_hidden_layers=6,
                           num_attention_heads=12, intermediate_size=1536,
                           attn_implementation="sdpa")
    return tf.BertModel(config, add_pooling_layer=False).eval()


def seqd(precision, model):
    program = os.environ.get("SEQD", os.path.join(HERE, "../../build/release/seqd"))
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(os.path.join(scratch, "model"))
        with open(os.path.join(scratch, "documents.bin"), "wb") as f:
            for document in make_documents():
                array.array("H", document).tofile(f)
        spec = {"kind": "embed", "model": {"path": os.path.join(scratch, "model")},
                "input": {"path": os.path.join(scratch, "documents.bin"), "format": "nanogpt",
                          "eod": END},
                "data": {"seq_len": 512}, "embed": {"pooling": "mean", "normalize": True},
                "precision": {"params": precision},
                "resources": {"device": "cpu", "ranks": 1, "threads": THREADS}}
        with open(os.path.join(scratch, "spec.json"), "w") as f:
            json.dump(spec, f)
        rates = []
        for number in range(ROUNDS):
            output = os.path.join(scratch, f"output-{number}")
            done = subprocess.run([program, "run", os.path.join(scratch, "spec.json"), "--slots", "2",
                                   "--root", scratch, "--output", output],
                                  stdout=sys.stderr.fileno(),
                                  preexec_fn=lambda: os.sched_setaffinity(0, CORES))
            if done.returncode:
                sys.exit(1)
            with open(os.path.join(output, "job.json")) as f:
                rates.append(json.load(f)["result"]["tokens_s"])
        report(precision, rates, f"seqd run, {THREADS} threads, passes of 512 tokens")


def transformers(precision, model, torch, tf):
    documents = torch.tensor(make_documents())
    model = model.to(torch.float32 if precision == "fp32" else torch.bfloat16)

    def embed(run):
        vectors = []
        for at in range(0, N_DOCUMENTS, BATCH):
            states = run(documents[at:at + BATCH]).last_hidden_state
            vectors.append(torch.nn.functional.normalize(states.mean(dim=1), dim=1))
        return torch.cat(vectors)

    with torch.inference_mode():
        for way, run in (("eager", model), ("compile", torch.compile(model, dynamic=False))):
            rates = []
            embed(run)
            for _ in range(ROUNDS):
                start = time.perf_counter()
                embed(run)
                rates.append(N_DOCUMENTS * N_TOKENS / (time.perf_counter() - start))
            if way == "eager" or max(rates) > max(best[0]):
                best = rates, way
    report(precision, best[0], f"transformers {tf.__version__}, PyTorch {torch.__version__}, "
           f"{torch.get_num_threads()} threads, sdpa, batches of {BATCH}, {best[1]}")


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("seqd", "transformers") or \
            sys.argv[2] not in ("fp32", "bf16"):
        sys.exit(__doc__)
    try:
        import torch
        import transformers as tf
    except ImportError:
        sys.exit(77)
    torch.set_num_threads(THREADS)
    model = make_model(torch, tf)
    if sys.argv[1] == "seqd":
        seqd(sys.argv[2], model)
    else:
        transformers(sys.argv[2], model, torch, tf)


if __name__ == "__main__":
    main()
