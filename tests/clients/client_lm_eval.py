#!/usr/bin/env python3
"""client_lm_eval.py: lm-evaluation-harness against a job that serves, and its `hf` backend on the
same weights (run.sh). A multiple-choice task, a perplexity task and a task that generates, on
documents of tests/data.

CLIENTS_HF      the model's directory, as transformers reads it
CLIENTS_TEXT    a text file of which the tasks are made
CLIENTS_TASKS   a folder for the tasks' files
"""
import contextlib
import json
import os
import random
import sys

from checks import MODEL, NOT_INSTALLED, SEQ_LEN, URL, check, checked, end, left_out, same

os.environ.update(HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1",
                  TOKENIZERS_PARALLELISM="false")
try:
    import lm_eval
    import datasets  # noqa: F401
    import torch  # noqa: F401
except ImportError:
    sys.exit(NOT_INSTALLED)

# Sums of log-probabilities in fp32, over at most SEQ_LEN tokens.
TOLERANCE = 1e-3
HF, FOLDER = os.environ["CLIENTS_HF"], os.environ["CLIENTS_TASKS"]
COMPLETIONS = {"model": MODEL, "base_url": URL + "/completions", "tokenizer": HF,
               "tokenizer_backend": "huggingface", "max_length": SEQ_LEN}
# The API backend leaves a position for the token that it asks for, and one for the prefix: these
# windows are those of hf.
ON_HF = {"pretrained": HF, "dtype": "float32", "device": "cpu", "max_length": SEQ_LEN - 2}
CHAT = {"model": MODEL, "base_url": URL + "/chat/completions"}


def write(name, rows):
    path = os.path.join(FOLDER, name + ".jsonl")
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(r) + "\n" for r in rows)
    return {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": path}},
            "test_split": "test"}


def make_tasks():
    """Questions are the first half of a paragraph and four continuations, one of them its own."""
    text = open(os.environ["CLIENTS_TEXT"], encoding="utf-8").read()
    paragraphs = [p.strip() for p in text.split("\n\n") if 80 < len(p.strip()) < 900][:24]
    words, draw, rows = text.split(), random.Random(1), []
    for p in paragraphs:
        w = p.split(" ")
        n = max(6, len(w) // 2)
        choices = [" ".join(w[n:n + 3])] + [" ".join(draw.sample(words, 3)) for _ in range(3)]
        order = draw.sample(range(4), 4)
        rows.append({"query": " ".join(w[:n]), "choices": [choices[i] for i in order],
                     "gold": order.index(0)})
    choice = {**write("choice", rows), "output_type": "multiple_choice", "doc_to_text": "{{query}}",
              "doc_to_choice": "{{choices}}", "doc_to_target": "{{gold}}",
              "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]}
    # Long documents take several windows.
    texts = [{"text": p} for p in paragraphs[:6]] + [{"text": text[:6000]}]
    rolling = {**write("rolling", texts), "output_type": "loglikelihood_rolling", "doc_to_text": "",
               "doc_to_target": "{{text}}", "metric_list": [{"metric": "word_perplexity"},
                                                            {"metric": "bits_per_byte"}]}
    generate = {**write("generate", rows), "output_type": "generate_until", "doc_to_text": "{{query}}",
                "doc_to_target": "{{choices[gold]}}", "metric_list": [{"metric": "exact_match"}],
                "generation_kwargs": {"until": ["\n\n", "."], "max_gen_toks": 16, "do_sample": False}}
    return [choice, rolling], [generate]


def evaluate(model, args, tasks, **more):
    with contextlib.redirect_stdout(sys.stderr):
        out = lm_eval.simple_evaluate(model=model, model_args=args, tasks=tasks, log_samples=True,
                                      bootstrap_iters=0, **more)
    return out["results"], {t: [s["filtered_resps"] for s in out["samples"][t]] for t in out["samples"]}


def flat(x):
    for y in x if isinstance(x, (list, tuple)) else ():
        yield from flat(y)
    if not isinstance(x, (list, tuple)):
        yield float(x)


def likelihoods(tasks, want):
    ways = {"ids, one at a time": {}, "three at once": {"num_concurrent": 3},
            "texts": {"tokenized_requests": False}, "lists of four": {"batch_size": 4}}
    for way, more in ways.items():
        with checked(way):
            try:
                results, answers = evaluate("local-completions", {**COMPLETIONS, **more, "max_retries": 1}, tasks)
            except Exception as e:  # noqa: BLE001
                if way.startswith("lists") and "400" in str(e):
                    left_out(way, e)
                    continue
                raise
            for t, answer in answers.items():
                got, ours = list(flat(answer)), list(flat(want[1][t]))
                far = max(abs(a - b) for a, b in zip(got, ours, strict=True))
                check(f"{way}: {t}: {len(got)} numbers within {far:.1e}", far <= TOLERANCE, far)
            same(f"{way}: accuracy", [results["choice"][m] for m in ("acc,none", "acc_norm,none")],
                 [want[0]["choice"][m] for m in ("acc,none", "acc_norm,none")])
            near = abs(results["rolling"]["bits_per_byte,none"] - want[0]["rolling"]["bits_per_byte,none"])
            check(f"{way}: bits per byte", near < 1e-5, near)


def generations(tasks):
    _, want = evaluate("hf", ON_HF, tasks)
    _, got = evaluate("local-completions", COMPLETIONS, tasks)
    same("generate: the texts of hf", got, want)
    _, got = evaluate("local-completions", {**COMPLETIONS, "num_concurrent": 3}, tasks)
    same("generate: three at once", got, want)
    _, want = evaluate("hf", ON_HF, tasks, apply_chat_template=True)
    for more in ({}, {"num_concurrent": 3}):
        _, got = evaluate("local-chat-completions", {**CHAT, **more}, tasks, apply_chat_template=True)
        same(f"generate: chats, {len(more) * 2 + 1} at once", got, want)


scored, generated = make_tasks()
with checked("hf"):
    hf = evaluate("hf", ON_HF, scored)
    likelihoods(scored, hf)
with checked("generations"):
    generations(generated)
end()
