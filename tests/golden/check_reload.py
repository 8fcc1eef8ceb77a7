#!/usr/bin/env python3
"""Takes the tiny models of tests/golden through a training of seqd and back into transformers.

usage: check_reload.py [NAME ...]      in the root of the repository, after make

For every directory here of a model_type that the Python package transformers has:

  1. one step with a learning rate of 0, in bfloat16, over two ranks: each tensor that the job
     saves, in its file and as transformers loads it, is the golden directory's bit by bit; none is
     missing or left over; the configuration means the same.
  2. three steps in float32 over two ranks: transformers' loss of what was saved equals the loss
     that seqd's evaluation had, on the same tokens. Of BERT and RoBERTa, whose evaluation hides tokens by
     seqd's own random numbers, the mean of the last hidden states (an embed job) takes the place
     of the loss.

And a new model from client/examples/demo-model, a directory without weights, learns conversations:
transformers' tokenizer and template, from what was saved, make the tokens of 1,000 random texts and
of conversations that it was not shown, as many as seqd scores and with the same sum of losses.

Starts a seqd --dev of its own. Not part of `make check`: it needs torch and transformers.
BUILD=build/release"""
import io
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import numpy
import torch
import transformers
import fuzz_tokenizer
from safetensors.torch import load_file
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = (ROOT / os.environ.get("BUILD", "build/release")).resolve()
S = 37  # tokens of a sequence; no multiple of 2
MASKED = ("bert", "roberta", "modernbert")  # model_type
MASK = 255  # of those: an id that no text has
ALL = 1 << 16  # tokens of a window that holds every text
CLOSE = 1e-6  # relative difference of two losses in float32
# Models that learn under another rule than their own: model.rope is in what they save.
RULES = {"smollm3": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 16, "beta_fast": 20},
         "gemma3": {"type": "llama3", "factor": 3, "low_freq_factor": 1, "high_freq_factor": 4,
                    "original_max_position_embeddings": 16, "theta": 500},
         "phi3": {"type": "default"}, "olmo2": {"theta": 77}}
# transformers does not read rotary_dim of this family, and turns all columns of a head.
KNOWN = {"minimax_wide": "transformers ignores rotary_dim"}
# An untied BERT of the package has a second bias, which it never reads; seqd does not keep it.
UNREAD = {"bert_wide": ("cls.predictions.bias",)}
COMPUTED = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")  # in files, no weights


class Seqd:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.log = open(self.folder / "seqd.log", "w")
        self.process = subprocess.Popen(
            [BUILD / "seqd", "--dev", "--state", self.folder / "state", "--listen", "127.0.0.1:0"],
            cwd=self.folder, stdout=self.log, stderr=self.log)
        address = self.folder / "state" / "address"
        self.wait(address.exists, "starts")
        self.base = "http://" + address.read_text().split()[0].removeprefix("http://")
        self.token = (self.folder / "state" / "token").read_text().strip()
        self.wait(lambda: self.get("/v1/nodes")["data"], "has a node")

    def wait(self, done, what):
        for _ in range(300):
            try:
                if done():
                    return
            except OSError:
                pass
            time.sleep(0.1)
        self.stop()
        raise SystemExit(f"seqd does not get to where it {what}: {self.folder}/seqd.log")

    def open(self, path, body=None):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        return urllib.request.urlopen(urllib.request.Request(self.base + path, body, headers))

    def get(self, path):
        with self.open(path) as r:
            return json.load(r)

    def artifact(self, job, name):
        with self.open(f"/v1/jobs/{job}/artifacts/{name}") as r:
            return io.BytesIO(r.read())

    def run(self, spec):
        """The result of a job, or a sentence why there is none."""
        try:
            job = json.load(self.open("/v1/jobs", json.dumps(spec).encode()))["id"]
        except urllib.error.HTTPError as e:
            return json.load(e)["detail"]
        while True:
            now = self.get(f"/v1/jobs/{job}")
            if now["state"] in ("succeeded", "failed", "cancelled"):
                return now if now["state"] == "succeeded" else json.dumps(now.get("error"))
            time.sleep(0.05)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def load(path, **kw):
    """The model, and what transformers says about its tensors."""
    config = transformers.AutoConfig.from_pretrained(path)
    masked = config.model_type in MASKED
    auto = transformers.AutoModelForMaskedLM if masked else transformers.AutoModelForCausalLM
    experts = {"experts_implementation": "eager"} if "num_experts_per_tok" in config.to_dict() else {}
    model, info = auto.from_pretrained(path, output_loading_info=True, attn_implementation="eager",
                                       **experts, **kw)
    return model.eval(), {k: v for k, v in info.items() if v}


def meaning(path):
    c = transformers.AutoConfig.from_pretrained(path).to_dict()
    return {k: v for k, v in c.items() if k not in ("dtype", "_name_or_path", "transformers_version")}


def unchanged(golden, saved):
    """A sentence about what differs, or how many tensors are the same."""
    want, have = load_file(golden / "model.safetensors"), load_file(saved / "model.safetensors")
    left = COMPUTED + UNREAD.get(golden.name, ())
    want = {k: t for k, t in want.items() if not k.endswith(left)}
    if set(want) ^ set(have):
        return f"other tensors: {sorted(set(want) ^ set(have))}"
    for name, t in want.items():
        if have[name].dtype != t.dtype or not torch.equal(have[name], t):
            return f"{name} differs in the file"
    a, _ = load(golden, dtype=torch.bfloat16)
    b, info = load(saved, dtype=torch.bfloat16)
    missing = [k for k in info.pop("missing_keys", []) if not k.endswith(left)]
    if info or missing:
        return f"transformers says {info} {missing}"
    a, b = a.state_dict(), b.state_dict()
    differs = [k for k in a if k not in left and not torch.equal(a[k], b[k])]
    if set(a) ^ set(b) or differs:
        return f"transformers loads other {differs or sorted(set(a) ^ set(b))}"
    a, b = meaning(golden), meaning(saved)
    if a != b:
        return f"the configuration differs in {sorted(k for k in a | b if a.get(k) != b.get(k))}"
    return len(want)


def spec(kind, path, data, **kw):
    return {"kind": kind, "model": {"path": str(path)}, "parallel": {"sp": 2},
            "resources": {"ranks": 2, "threads": 1}, **data, **kw}


def train(path, folder, steps, lr, precision):
    config = json.loads((path / "config.json").read_text())
    sources = [{"path": str(folder / "train.jsonl")}]
    out = spec("train", path, {"data": {"train": sources, "seq_len": S, "packing": "none"}},
               train={"steps": steps}, optim={"lr": lr, "weight_decay": 0.1},
               schedule={"warmup_steps": 0, "type": "constant"}, precision={"params": precision},
               eval={"data": [{"path": str(folder / "held.jsonl")}], "at_end": True})
    if config["model_type"] in MASKED:
        out["objective"] = {"mask_token": MASK, "mask_prob": 0.5}
    return out


def line_of(path):
    return torch.tensor([json.loads(path.read_text().splitlines()[0])["input_ids"]])


def compare(seqd, saved, job, folder):
    """What seqd and transformers say about the held-out tokens: two numbers and their distance."""
    model, _ = load(saved, dtype=torch.float32)
    ids = line_of(folder / "held.jsonl")
    with torch.no_grad():
        if model.config.model_type not in MASKED:
            theirs = model(input_ids=ids, labels=ids).loss.item()
            ours = job["result"]["eval"]["loss"]
            return ours, theirs, abs(ours - theirs) / abs(theirs)
        hidden = model.base_model(input_ids=ids).last_hidden_state[0].mean(0)
    done = seqd.run(spec("embed", saved, {"input": {"path": str(folder / "held.jsonl")},
                                          "data": {"seq_len": S}},
                         embed={"pooling": "mean", "normalize": False}))
    if isinstance(done, str):
        return done
    ours = torch.tensor(numpy.load(seqd.artifact(done["id"], "embeddings.npy"))[0])
    return ours.norm().item(), hidden.norm().item(), ((ours - hidden).norm() / hidden.norm()).item()


def check(seqd, name, folder):
    golden = folder / name
    still = seqd.run(train(golden, folder, 1, 0, "bf16"))
    if isinstance(still, str):
        return f"does not train: {still}"
    same = unchanged(golden, pathlib.Path(still["result"]["hf"]))
    if isinstance(same, str):
        return same
    moved = seqd.run(train(golden, folder, 3, 1e-2, "fp32"))
    if isinstance(moved, str):
        return f"does not train in float32: {moved}"
    saved = pathlib.Path(moved["result"]["hf"])
    a, b = load_file(golden / "model.safetensors"), load_file(saved / "model.safetensors")
    if all(torch.equal(a[k].float(), b[k]) for k in b):
        return "three steps changed nothing"
    both = compare(seqd, saved, moved, folder)
    if isinstance(both, str):
        return both
    ours, theirs, apart = both
    print(f"{name:14} {same:4} tensors bit by bit; after 3 steps seqd {ours:.7f}, transformers "
          f"{theirs:.7f}, apart {apart:.1e}", flush=True)
    if apart > CLOSE and name in KNOWN:
        print(f"{name:14} known: {KNOWN[name]}")
    elif apart > CLOSE:
        return f"{apart:.1e} apart, allowed {CLOSE}"
    return check_rope(seqd, name, folder, ours) if name in RULES else None


def check_rope(seqd, name, folder, before):
    asked = train(folder / name, folder, 3, 1e-2, "fp32")
    asked["model"]["rope"] = RULES[name]
    done = seqd.run(asked)
    if isinstance(done, str):
        return f"does not train by {RULES[name]}: {done}"
    ours, theirs, apart = compare(seqd, pathlib.Path(done["result"]["hf"]), done, folder)
    print(f"{name:14} by {RULES[name]}: seqd {ours:.7f}, transformers {theirs:.7f}, apart {apart:.1e}",
          flush=True)
    if apart > CLOSE:
        return f"{apart:.1e} apart by {RULES[name]}"
    return f"{RULES[name]} changes nothing" if abs(ours - before) < 1e-4 else None


# ---- text --------------------------------------------------------------------------------------


def talk(i):
    """A conversation of two to five messages; its last is the assistant's."""
    said = [f"What is {i} and {k}?" for k in range(i % 3 + 1)]
    out = [{"role": "system", "content": "Add.\n"}] if i % 2 else []
    for k, question in enumerate(said):
        out += [{"role": "user", "content": question},
                {"role": "assistant", "content": f"{i} and {k} is {i + k} \u2013 {'so ' * (i % 5)}"}]
    return out


def ids_of_text(tok, line):
    return [(tok(line["text"])["input_ids"] + [tok.eos_token_id], None)]


def ids_of_talk(tok, line):
    """With the places of the assistant's turns: what each adds to a prompt that ends before it."""
    said = line["messages"]
    ids = tok.apply_chat_template(said, return_dict=False)
    learnt = [False] * len(ids)
    for i, m in enumerate(said):
        if m["role"] == "assistant":
            before = tok.apply_chat_template(said[:i], add_generation_prompt=True, return_dict=False)
            after = tok.apply_chat_template(said[:i + 1], return_dict=False)
            assert ids[:len(after)] == after and after[:len(before)] == before
            learnt[len(before):len(after)] = [True] * (len(after) - len(before))
    return [(ids, learnt)]


def theirs_of(saved, path, ids_of):
    """How many tokens transformers scores, and the sum of their losses."""
    model, _ = load(saved, dtype=torch.float32)
    tok = transformers.AutoTokenizer.from_pretrained(saved)
    n, nll = 0, 0.0
    for line in path.read_text().splitlines():
        for ids, learnt in ids_of(tok, json.loads(line)):
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([ids])).logits[0, :-1]
            loss = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none")
            keep = torch.tensor(learnt[1:]) if learnt else torch.ones(len(ids) - 1, dtype=torch.bool)
            n, nll = n + int(keep.sum()), nll + loss[keep].double().sum().item()
    return n, nll


def check_text(seqd, folder):
    files = {"talks": [{"messages": talk(i)} for i in range(60)],
             "held talks": [{"messages": talk(i)} for i in range(100, 150)],
             "texts": [{"text": t} for t in texts(1000)]}
    for name, lines in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    shutil.copytree(ROOT / "client/examples/demo-model", folder / "demo-model")
    done = seqd.run(spec("train", folder / "demo-model",
                         {"data": {"train": [{"path": str(folder / "talks.jsonl")}], "seq_len": 512,
                                   "packing": "best_fit"}}, train={"steps": 10}, optim={"lr": 1e-3},
                         model={"path": str(folder / "demo-model"), "init": "random"}))
    if isinstance(done, str):
        return f"does not train: {done}"
    saved = pathlib.Path(done["result"]["hf"])
    for name, ids_of in (("held talks", ids_of_talk), ("texts", ids_of_text)):
        path = folder / f"{name}.jsonl"
        done = seqd.run(spec("score", saved, {"input": {"path": str(path)}, "data": {"seq_len": ALL}}))
        if isinstance(done, str):
            return f"does not score {name}: {done}"
        assert done["result"]["windows"] == 1  # no document is cut
        n, nll = done["result"]["tokens"], done["result"]["nll"]
        n_theirs, theirs = theirs_of(saved, path, ids_of)
        apart = abs(nll - theirs) / theirs
        print(f"{name:14} {len(files[name])}: seqd {n} tokens, nll {nll:.6f}; transformers {n_theirs}, "
              f"{theirs:.6f}; apart {apart:.1e}", flush=True)
        if n != n_theirs or apart > CLOSE:
            return f"{name}: not the same"
    return None


def texts(n):
    """Random ones, of at most 500 tokens."""
    rng = random.Random(3)
    return [fuzz_tokenizer.text(rng, ["<|im_end|>"])[:150] for _ in range(n)]


# ---- all of it -----------------------------------------------------------------------------------


def write_ids(path, n, seed):
    rng = random.Random(seed)
    lines = [json.dumps({"input_ids": [rng.randrange(MASK) for _ in range(S)]}) for _ in range(n)]
    path.write_text("\n".join(lines) + "\n")


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    names = sys.argv[1:] or sorted(p.parent.name for p in HERE.glob("*/golden.safetensors"))
    failed, skipped, n = 0, [], 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in names:  # beneath the root of this seqd
            shutil.copytree(HERE / name, folder / name)
        write_ids(folder / "train.jsonl", 8, 1)
        write_ids(folder / "held.jsonl", 1, 2)
        seqd = Seqd(folder)
        try:
            for name in names:
                kind = json.loads((HERE / name / "config.json").read_text()).get("model_type")
                if kind not in CONFIG_MAPPING:
                    skipped.append(name)
                    continue
                why = check(seqd, name, folder)
                n += 1
                if why:
                    failed += 1
                    print(f"{name:14} FAIL {why}")
            if not sys.argv[1:]:
                n += 1
                why = check_text(seqd, folder)
                if why:
                    failed += 1
                    print(f"text           FAIL {why}")
        finally:
            seqd.stop()
    print(f"reload: {n - failed} passed, {failed} failed; not in transformers: {' '.join(skipped)}")
    return 1 if failed or not n else 0


if __name__ == "__main__":
    sys.exit(main())
