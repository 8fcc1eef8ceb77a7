#!/usr/bin/env python3
"""Writes tests/golden/embed_bert: a tiny published embedding model, and what sentence-transformers
makes of its texts, in float64.

It is saved from its base class (BertModel): names without "bert.", no head. modules.json and what it
names are in the layout of published models. Needs torch, transformers, sentence-transformers.

    texts.jsonl         {"text"}; the last one is longer than max_seq_length
    vectors.txt         a line for each text
    vectors_query.txt   the same with the prompt "query"
    vectors_whole.txt   the same as vectors.txt with no text cut
"""
import json
import pathlib
import shutil

import torch
from sentence_transformers import SentenceTransformer
from transformers import BertConfig, BertModel

HERE = pathlib.Path(__file__).parent
OUT = HERE / "embed_bert"
LONGEST = 24
TEXTS = ["Hello, world", "a", "the quick brown fox jumps over the lazy dog", "Embed this! And that?",
         "one two three four five six seven eight nine ten eleven twelve thirteen"]


def put(name, value):
    (OUT / name).parent.mkdir(exist_ok=True)
    (OUT / name).write_text(json.dumps(value, indent=1) + "\n")


def model():
    torch.manual_seed(20)
    c = BertConfig(vocab_size=400, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                   intermediate_size=32, max_position_embeddings=64)
    m = BertModel(c)
    for name, p in m.named_parameters():
        torch.nn.init.normal_(p, 1.0 if name.endswith("LayerNorm.weight") else 0.0, 0.3)
    m.save_pretrained(OUT)


def files():
    shutil.copy(HERE / "tokenizers/bert.json", OUT / "tokenizer.json")
    put("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "cls_token": "[CLS]",
                                  "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]",
                                  "mask_token": "[MASK]"})
    put("modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize",
         "type": "sentence_transformers.models.Normalize"}])
    put("1_Pooling/config.json", {
        "word_embedding_dimension": 16, "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False})
    put("config_sentence_transformers.json", {
        "__version__": {"sentence_transformers": "3.0.0"},
        "prompts": {"query": "find the text: ", "document": ""}, "default_prompt_name": None})
    put("sentence_bert_config.json", {"max_seq_length": LONGEST, "do_lower_case": False})
    (OUT / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))


def vectors(name, m, **kw):
    rows = m.encode(TEXTS, convert_to_numpy=True, **kw)
    lines = (" ".join(f"{x:.10f}" for x in row) for row in rows)
    (OUT / name).write_text("\n".join(lines) + "\n")


def main():
    OUT.mkdir(exist_ok=True)
    model()
    files()
    m = SentenceTransformer(str(OUT), device="cpu", model_kwargs={"dtype": torch.float64})
    vectors("vectors.txt", m)
    vectors("vectors_query.txt", m, prompt_name="query")
    m.max_seq_length = 64
    vectors("vectors_whole.txt", m)


main()
