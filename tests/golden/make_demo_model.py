#!/usr/bin/env python3
"""Writes client/examples/demo-model: what a directory of the Hub holds, but for its weights.

usage: make_demo_model.py      in the root of the repository

config.json of a Llama of 5 million parameters; tokenizer.json, a byte-level BPE of 1024 tokens that the
package `tokenizers` makes of this repository's own sources and documents; a chat template in ChatML.
A job takes it with model.init "random". The files are committed: needed only to make them again, and
then every demo's numbers change. pip install tokenizers==0.23.3"""
import json
import pathlib
import subprocess

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "client/examples/demo-model"
VOCAB = 1024
SPECIAL = END, START, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TEMPLATE = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- endif -%}
"""
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
    "intermediate_size": 1280, "hidden_act": "silu", "vocab_size": VOCAB,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0,
    "initializer_range": 0.02, "dtype": "float32",
}


def corpus():
    """As the demo's: sources and documents, no tables of numbers."""
    names = subprocess.run(["git", "ls-files", "*.c", "*.h", "*.md"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.split()
    for name in sorted(names):
        if not name.startswith("tests/golden/"):
            yield (ROOT / name).read_text()


def main():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    special = [AddedToken(s, special=True, normalized=False) for s in SPECIAL]
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    assert tok.get_vocab_size() == VOCAB and [tok.token_to_id(s) for s in SPECIAL] == [0, 1, 2]
    files = {
        "config.json": CONFIG,
        "tokenizer.json": json.loads(tok.to_str()),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END,
            "model_max_length": 4096, "clean_up_tokenization_spaces": False},
        "generation_config.json": {"eos_token_id": [0, 2], "pad_token_id": 0},
    }
    OUT.mkdir(exist_ok=True)
    for name, value in files.items():
        dense = name == "tokenizer.json"
        text = json.dumps(value, ensure_ascii=False, indent=None if dense else 1,
                          separators=(",", ":") if dense else None)
        (OUT / name).write_text(text + "\n")
    (OUT / "chat_template.jinja").write_text(TEMPLATE)
    for path in sorted(OUT.iterdir()):
        path.chmod(0o644)
        print(f"{path.stat().st_size:7} {path.name}")


if __name__ == "__main__":
    main()
