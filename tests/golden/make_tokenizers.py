#!/usr/bin/env python3
"""Writes tests/golden/tokenizers/KIND.json: small tokenizer.json files of the kinds that models have, and
KIND.txt: strings with their ids and what the ids decode to, by the package `tokenizers`.

Needed only to make the files again: pip install tokenizers==0.23.3 sentencepiece protobuf; python3 make_tokenizers.py

KIND.txt, a line for each string: the string in hexadecimal, its ids, its ids with the post-processor's,
and the decoded text in hexadecimal with all tokens and without the special ones, separated by tabs."""
import json
import os
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog. It didn't stop; they've seen 1234567 of them, 3.14 each!",
    "def forward(self, x):\n    return self.proj(x) + x  # residual\n\n\tfor i in range(10):\r\n        print(i)",
    "Größe und Maß: die Straße ist naß. Ça va? Où est l'élève? ¿Qué tal, señor? Łódź, Ελλάδα, Привет, мир!",
    "日本語のテキストと中文文本，還有한국어 텍스트. สวัสดีชาวโลก नमस्ते दुनिया العربية עברית",
    "HTTPServer parseJSON XMLHttpRequest camelCaseWords SCREAMING_SNAKE I'M WE'LL you're he'd SHE'S",
    "emoji 😀👍🏽👩‍👩‍👧 and ﬁne ligatures, ½ cups, x² + y² = z², №5, 10€ — “quotes” … the end the the the then there",
    "   leading and trailing   \n\n\n  blank lines \t tabs  a  b   c    d",
] * 3

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def train(tok, trainer):
    tok.train_from_iterator(CORPUS, trainer)
    return tok


def byte_level(split, size=600, specials=(), **options):
    tok = Tokenizer(models.BPE(**options))
    parts = [pre_tokenizers.Split(Regex(split), "isolated", False)] if split else []
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=not split)
    tok.pre_tokenizer = pre_tokenizers.Sequence(parts + [last]) if parts else last
    tok.decoder = decoders.ByteLevel()
    return train(tok, trainers.BpeTrainer(vocab_size=size, special_tokens=list(specials), show_progress=False,
                                          initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))


def gpt2():
    tok = byte_level(None, specials=["<|endoftext|>"])
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    tok.add_tokens([AddedToken("lstripped", lstrip=True), AddedToken("rstripped", rstrip=True),
                    AddedToken("single", single_word=True), AddedToken("le", normalized=False, single_word=True)])
    return tok


def llama3():
    tok = byte_level(LLAMA3, ignore_merges=True)
    tok.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>"])
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B:1",
                                      special_tokens=[("<|begin_of_text|>", tok.token_to_id("<|begin_of_text|>"))])])
    return tok


def qwen():
    tok = byte_level(QWEN)
    tok.normalizer = normalizers.NFC()
    tok.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tok.add_tokens([AddedToken("<think>", normalized=False), AddedToken("é", normalized=True)])
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return tok


def o200k():
    tok = byte_level(O200K, ignore_merges=True)
    tok.add_special_tokens(["<|start|>", "<|end|>", "<|message|>"])
    return tok


def sentencepiece_bpe(vocab=500):
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tok.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                     decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    return train(tok, trainers.BpeTrainer(vocab_size=vocab, special_tokens=special, show_progress=False,
                                          limit_alphabet=90))


def bos(tok):
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", tok.token_to_id("<s>"))])
    return tok


def without_byte_tokens(tok):
    """The trainer's special tokens for bytes are added tokens; published files have only the first three."""
    j = json.loads(tok.to_str())
    j["added_tokens"] = [t for t in j["added_tokens"] if not t["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(j))


def llama2():
    return without_byte_tokens(bos(sentencepiece_bpe()))


def mistral():
    tok = without_byte_tokens(bos(sentencepiece_bpe()))
    tok.normalizer = None
    tok.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", "first", split=False)
    tok.add_tokens([AddedToken("[INST]", special=True), AddedToken("▁▁", normalized=False),
                    AddedToken("<r>", rstrip=True), AddedToken("<l>", lstrip=True, normalized=False)])
    j = json.loads(tok.to_str())
    j["model"]["merges"] = [" ".join(m) for m in j["model"]["merges"]]  # as older files have them
    return Tokenizer.from_str(json.dumps(j))


def gemma():
    tok = without_byte_tokens(bos(sentencepiece_bpe()))
    tok.normalizer = normalizers.Replace(" ", "\u2581")
    tok.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous", False)
    tok.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tok.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("<start_of_turn>", special=True)])
    return tok


def bert():
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer()
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    train(tok, trainers.WordPieceTrainer(vocab_size=400, show_progress=False,
                                         special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    tok.post_processor = processors.BertProcessing(("[SEP]", tok.token_to_id("[SEP]")), ("[CLS]", tok.token_to_id("[CLS]")))
    return tok


def bert_cased():
    tok = bert()
    tok.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=True, clean_text=False)
    tok.decoder = decoders.WordPiece(cleanup=False)
    tok.add_tokens(["Größe", AddedToken("single", single_word=True)])
    return tok


def words():
    """What is left of normalizers and pre-tokenizers, one after the other."""
    tok = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##", end_of_word_suffix="</w>"))
    tok.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                           normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")])
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Punctuation("contiguous")])
    tok.decoder = decoders.BPEDecoder("</w>")
    train(tok, trainers.BpeTrainer(vocab_size=400, show_progress=False, special_tokens=["[UNK]", "[CLS]", "[SEP]"],
                                   continuing_subword_prefix="##", end_of_word_suffix="</w>"))
    tok.post_processor = processors.RobertaProcessing(("[SEP]", 2), ("[CLS]", 1), trim_offsets=False)
    return tok


def splits():
    """Every behaviour of a split, spaces kept, and no decoder."""
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tok.normalizer = normalizers.NFKC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split("e", "merged_with_previous"), pre_tokenizers.Split("  ", "merged_with_next"),
        pre_tokenizers.Split(Regex(r"[a-z]+"), "contiguous", invert=True), pre_tokenizers.Split(Regex(r"o*"), "isolated"),
        pre_tokenizers.Split("a", "removed"), pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.WhitespaceSplit()])
    return train(tok, trainers.WordPieceTrainer(vocab_size=400, show_progress=False, special_tokens=["[UNK]"]))


def unigram():
    tok = Tokenizer(models.Unigram())
    tok.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    tok.decoder = decoders.Metaspace()
    train(tok, trainers.UnigramTrainer(vocab_size=300, show_progress=False, unk_token="<unk>",
                                       special_tokens=["<pad>", "</s>", "<unk>"]))
    tok.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return tok


def unigram_bytes():
    tok = unigram()
    j = json.loads(tok.to_str())
    j["model"]["byte_fallback"] = True
    j["model"]["vocab"] += [["<0x%02X>" % b, 0.0] for b in range(256)]
    j["normalizer"] = None
    j["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}]}
    j["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, j["decoder"]]}
    return Tokenizer.from_str(json.dumps(j))


def charsmap():
    """SentencePiece's normalization: keys of one and of more characters, keys that begin others, deletions."""
    from make_unicode import charsmap as made
    rules = {c: unicodedata.normalize("NFKC", c) for c in "ﬁﬂ½Ⅷ①ｆｕｌﷺ㎏№…\u00a0\u3000\u0958\u095f\u0344"}
    rules |= {"\u200b": "", "\t": " ", "\n": " ", "\r\n": "/", "\u0301": "'", "e\u0301": "é", "E\u0301": "É",
              "a\u0308": "ä", "a\u0308\u0304": "ǟ", "\u00a9": "(c)", "\u00e9": "E", "\u0600": "<", "\u0950": "om",
              "\u1100": "k", "\u1161": "a", "\u11a8": "g", "\u1100\u1161": "ka", "\u200d": "+", "👍": "+1", "中": "zhong"}
    tok = unigram_bytes()  # whose tokens show every character
    tok.normalizer = normalizers.Sequence([normalizers.Precompiled(made(rules)), normalizers.Replace(Regex(" {2,}"), " ")])
    return tok


def patterns():
    """Constructs that few published patterns have."""
    tok = byte_level(r"\d{1,3}(?=(?:\d{3})*\b)|\A\s+|\s+\z|^-|\w+$|[\p{L}&&[^\p{Lu}\p{Han}]]++|[^\s[a-z]]|\B ")
    return tok


KINDS = {f.__name__: f for f in (gpt2, llama3, qwen, o200k, llama2, mistral, gemma, bert, bert_cased, words, splits,
                                 unigram, unigram_bytes, charsmap, patterns)}

STRINGS = [
    "", " ", "  ", "\n", "\r\n", "\t", "a", " a", "Hello, world!", "Hello,  world! 123 4567", "½5 x²", "a\r\n\r\n b",
    "  \n  c", "x\u0301y", "\u0661\u0662\u0663\u0664", "a\u180eb", "\u3000\u3000a", "don'T 'ſx I'LL", "!!!\n\nx",
    "\ta", "a\u0085b", "é e\u0301 \u0344", "\U00011935\U00011930", "각 \u1100\u1161\u11a8", "\u0000\u0001a\u0000",
    "👩‍👩‍👧 👍🏽 😀😀", "a\u200db\u200cc", "שלום العربية", "hello</s>hello", "</s> hello", " hello", "<s>x</s>",
    "<|begin_of_text|>hi<|eot_id|> <|endoftext|>x", "<|im_start|>user\nHi<|im_end|>\n<think>", "<0x41>\u2581x",
    "a  lstripped  b rstripped  c single singles le lele", "Straße ﬁne №5 Ⅷ", "HTTPServer's parseJSON WE'LL", "a" * 300,
    "the " * 40, "日本語のテキスト中文", "\U0010ffff\ufffd\ufeff", "[CLS] the [MASK] fox [SEP]", "Ça VA? Œuvre À l'été",
    "10€ — “quotes” …", "x" + "\u0327\u0301" * 3 + "y", "a\u00a0b\u2028c\u2029d", "ﷺ ｆｕｌｌ ㎏ ①",
]
MORE = {"charsmap": [  # where clusters of characters end
    "e\u0301 e\u0301\u0302 e\u200d \u00e9\u0301 \u00a9\u0301 \u00a9\u200d\u00a9\u0301 \u00a9\u200d", "a\u0308\u0304 a\u0308\u0301",
    "\u0915\u094d\u0958\u0301 \u0915\u0958\u0301 \u0600\u0301 \u0600a\u0301 \t\u0301\u0301 x\r\ny \r \n", "\u200be\u200b\u200b",
]}


def line(tok, s):
    ids = tok.encode(s, add_special_tokens=False).ids
    whole = tok.encode(s).ids
    text = [tok.decode(whole, skip_special_tokens=k) for k in (False, True)]
    return "\t".join([s.encode().hex(), " ".join(map(str, ids)), " ".join(map(str, whole))] +
                     [t.encode().hex() for t in text])


def main():
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizers")
    os.makedirs(here, exist_ok=True)
    for name in sys.argv[1:] or KINDS:
        tok = Tokenizer.from_str(json.dumps(json.loads(KINDS[name]().to_str())))
        with open(os.path.join(here, name + ".json"), "w") as f:
            f.write(json.dumps(json.loads(tok.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
        with open(os.path.join(here, name + ".txt"), "w") as f:
            for s in STRINGS + MORE.get(name, []):
                f.write(line(tok, s) + "\n")
        print(name, tok.get_vocab_size())


if __name__ == "__main__":
    main()
