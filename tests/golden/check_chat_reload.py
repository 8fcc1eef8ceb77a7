#!/usr/bin/env python3
"""Trains a small text model on conversations, and loads the checkpoint with transformers.

usage: check_chat_reload.py [BUILD] [--family llama|qwen2|qwen3] [--n 1000] [--steps 20] [--ranks 2]

A random model with a byte-level BPE of its own and a template of ChatML is saved by transformers;
a `seqd --dev` of BUILD (build/release) trains it on JSONL with `messages` and `text`. Then, with the
checkpoint's hf/ directory loaded by transformers, all of this is compared:

  files      tokenizer.json, tokenizer_config.json, chat_template.jinja: byte by byte
  ids        of N conversations (apply_chat_template) and N texts: those that the job trained on
  learnt     the tokens of the assistant's turns: return_assistant_tokens_mask
  loss       of held-out conversations, against the job's evaluation after its last step
  answers    20 greedy /v1/chat/completions, against generate()

Not part of `make check`: it needs torch and transformers. Exit status 1 where something differs."""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast,
                          Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

FAMILIES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM),
            "qwen3": (Qwen3Config, Qwen3ForCausalLM)}
CHATML = ("{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\\n' }}"
          "{%- if message['role'] == 'assistant' %}{% generation %}{{- message['content'] + '<|im_end|>' }}"
          "{% endgeneration %}{%- else %}{{- message['content'] + '<|im_end|>' }}{%- endif %}{{- '\\n' }}{%- endfor %}"
          "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}")
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+")
WORDS = ("the ring sends its keys on and a rank waits for them; attention of a million tokens needs memory that one "
         "machine does not have. naïve Größe 東京 は 大きい 🙂 👩‍💻 x = f(y); \"quoted\" 1234567 3.14 don't I'll\n").split(" ")


def a_text(rng, most=40):
    text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))
    if rng.random() < 0.3:
        text += "".join(chr(rng.choice([rng.randint(32, 126), rng.randint(0xA0, 0x24F), rng.randint(0x4E00, 0x4EFF),
                                        rng.randint(0x1F600, 0x1F64F), 10, 9])) for _ in range(rng.randint(1, 12)))
    return text


def a_conversation(rng):
    talk = [{"role": "system", "content": a_text(rng, 8)}] if rng.random() < 0.3 else []
    for _ in range(rng.randint(1, 3)):
        talk += [{"role": "user", "content": a_text(rng)}, {"role": "assistant", "content": a_text(rng)}]
    return talk


def make_model(path, family, rng):
    tokenizer = Tokenizer(models.BPE())
    if family == "llama":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:  # what AutoTokenizer makes of any tokenizer.json beside these models
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(QWEN), "isolated"),
             pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer.train_from_iterator((a_text(rng) for _ in range(500)), trainers.BpeTrainer(
        vocab_size=500, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>",
                                   chat_template=CHATML)
    fast.save_pretrained(path)
    config, model = FAMILIES[family]
    torch.manual_seed(7)
    sizes = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 4096,
             "eos_token_id": fast.eos_token_id, "bos_token_id": None, "pad_token_id": fast.pad_token_id}
    if family == "qwen2":
        del sizes["head_dim"]
    model(config(**sizes)).float().save_pretrained(path)


class Service:
    """A seqd --dev with a state directory of its own."""

    def __init__(self, build, home):
        self.build, self.state = pathlib.Path(build).resolve(), home / "state"
        self.log = open(home / "seqd.log", "wb")
        self.seqd = subprocess.Popen([self.build / "seqd", "--dev", "--state", self.state, "--listen", "127.0.0.1:0",
                                      "--root", home], stdout=self.log, stderr=self.log)
        for _ in range(300):
            if subprocess.run([self.build / "seqctl", "--url", self.state, "nodes", "-o", "name"],
                              capture_output=True).stdout:
                return
            time.sleep(0.1)
        raise SystemExit("seqd does not start: " + (home / "seqd.log").read_text())

    def ctl(self, *words, text=None):
        done = subprocess.run([self.build / "seqctl", "--url", self.state, *words], input=text, text=True,
                              capture_output=True)
        if done.returncode:
            raise SystemExit(f"seqctl {words}: {done.stderr}{done.stdout}")
        return done.stdout

    def job(self, spec):
        name = self.ctl("submit", "-", "--wait", "-q", "-o", "name", text=json.dumps(spec)).split()[0]
        return name, json.loads(self.ctl("show", name, "-o", "json"))

    def end(self):
        self.seqd.terminate()
        self.seqd.wait()


def prepared_documents(path):
    """Ids and learnt tokens of each document."""
    wide = (path / "tokens.bin").stat().st_size == 4 * numpy.fromfile(path / "documents.bin", "<u8")[-1]
    ids = numpy.fromfile(path / "tokens.bin", "<u4" if wide else "<u2")
    ends = numpy.fromfile(path / "documents.bin", "<u8").astype(int)
    learn = numpy.unpackbits(numpy.fromfile(path / "loss.bin", "u1"), bitorder="little")[:len(ids)]
    assert ends[-1] == len(ids)
    return [(ids[a:b].tolist(), learn[a:b].tolist()) for a, b in zip([0, *ends[:-1]], ends)]


def rendered(tokenizer, talk):
    out = tokenizer.apply_chat_template(talk, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    return out["input_ids"], out["assistant_masks"]


def last_eval(events):
    """The object of the last evaluation, wherever the list has it."""
    found = []

    def look(v):
        if isinstance(v, dict) and {"loss", "targets", "sequences"} <= set(v):
            found.append(v)
        for w in v.values() if isinstance(v, dict) else v if isinstance(v, list) else ():
            look(w)

    look(events)
    return found[-1]


def loss_of(model, documents):
    nll, targets = 0.0, 0
    for ids, learn in documents:
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        for i in range(1, len(ids)):
            if learn[i]:
                nll -= logits[i - 1, ids[i]].item()
                targets += 1
    return nll / targets, targets


def check(o, home):
    rng = random.Random(5)
    make_model(home / "model", o.family, rng)
    talks, texts = [a_conversation(rng) for _ in range(o.n)], [a_text(rng) for _ in range(o.n)]
    held = [a_conversation(rng) for _ in range(40)]
    lines = [json.dumps({"messages": t}, ensure_ascii=i % 2 == 0) for i, t in enumerate(talks)]
    (home / "train.jsonl").write_text("\n".join(lines + [json.dumps({"text": t}) for t in texts]) + "\n")
    (home / "held.jsonl").write_text("\n".join(json.dumps({"messages": t}) for t in held) + "\n")
    service = Service(o.build, home)
    try:
        name, job = service.job({
            "kind": "train", "model": {"path": str(home / "model")},
            "data": {"train": [{"path": str(home / "train.jsonl")}], "seq_len": 1024, "packing": "best_fit"},
            "eval": {"data": [{"path": str(home / "held.jsonl")}], "at_end": True},
            "train": {"steps": o.steps, "global_batch": 2}, "optim": {"lr": 1e-3}, "precision": {"params": "fp32"},
            "parallel": {"sp": o.ranks}, "resources": {"device": "cpu", "ranks": o.ranks, "threads": 1}, "seed": 3})
        hf = pathlib.Path(job["result"]["hf"])
        asked = "".join(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions",
                                    "body": {"messages": t[:-1], "max_completion_tokens": 16}}) + "\n"
                        for i, t in enumerate(held[:20]))
        (home / "ask.jsonl").write_text(asked)
        batch, _ = service.job({
            "kind": "generate", "model": {"path": str(hf)}, "data": {"seq_len": 1024},
            "input": {"path": str(home / "ask.jsonl"), "format": "openai_batch"},
            "sampling": {"max_tokens": 16, "temperature": 0}, "precision": {"params": "fp32"},
            "resources": {"device": "cpu", "ranks": 1, "threads": 1}})
        answers = [json.loads(line) for line in service.ctl("artifacts", batch, "results.jsonl").splitlines()]
        events = json.loads(service.ctl("events", name, "-o", "json"))
    finally:
        service.end()
    return compare(o, home, hf, talks, texts, held, answers, events)


def compare(o, home, hf, talks, texts, held, answers, events):
    bad = 0

    def say(what, differ, of):
        nonlocal bad
        bad += differ > 0
        print(f"{what:10} {of - differ} of {of} equal")

    names = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
    say("files", sum((hf / n).read_bytes() != (home / "model" / n).read_bytes() for n in names), len(names))
    tokenizer = AutoTokenizer.from_pretrained(hf)
    model = AutoModelForCausalLM.from_pretrained(hf, dtype=torch.float32, attn_implementation="eager").eval()
    prepared = [p for p in (home / "state").rglob("prepared/*/documents.bin")]
    documents = max((prepared_documents(p.parent) for p in prepared), key=len)
    want = [rendered(tokenizer, t) for t in talks]
    say("ids", sum(d[0] != w[0] for d, w in zip(documents, want)), len(want))
    say("learnt", sum(d[1] != w[1] for d, w in zip(documents, want)), len(want))
    ends = [tokenizer.eos_token_id]
    say("texts", sum(d[0] != tokenizer(t)["input_ids"] + ends for d, t in zip(documents[len(talks):], texts)),
        len(texts))
    ours, n = (last_eval(events)[k] for k in ("loss", "targets"))
    loss, targets = loss_of(model, [rendered(tokenizer, t) for t in held])
    differ = abs(ours - loss) / loss
    print(f"loss       {ours:.9g} in seqd, {loss:.9g} in transformers: relative difference {differ:.2g}; "
          f"{n} and {targets} targets")
    bad += differ > 1e-5 or n != targets
    wrong = 0
    for i, talk in enumerate(held[:20]):
        ids = tokenizer.apply_chat_template(talk[:-1], add_generation_prompt=True, return_tensors="pt",
                                            return_dict=True)["input_ids"]
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False)
        text = tokenizer.decode(out[0][ids.shape[1]:], skip_special_tokens=True)
        body = next(a for a in answers if a["custom_id"] == str(i))["response"]["body"]
        wrong += (body.get("choices", [{}])[0].get("message", {}).get("content") != text or
                  body["usage"]["prompt_tokens"] != ids.shape[1])
    say("answers", wrong, 20)
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", nargs="?", default="build/release")
    parser.add_argument("--family", choices=sorted(FAMILIES), default="llama")
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2)
    o = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix="seqd-chat.") as home:
        bad = check(o, pathlib.Path(home))
    print(f"{o.family}: {'the same' if not bad else 'DIFFERENT'}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
