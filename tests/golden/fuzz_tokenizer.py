#!/usr/bin/env python3
"""Compares worker/text with the package `tokenizers` on random strings, in both directions.

    fuzz_tokenizer.py [N] [FILE.json ...]     N strings for each file (default 100,000; all committed kinds)

Builds tests/golden/tokenize.c. Prints each difference, and exits with 1 where there is any. Needs
pip install tokenizers==0.23.3; SEED=n repeats a run."""
import glob
import os
import random
import struct
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../..")
BATCH = 500
WORDS = ["the", "The", " quick", "brown fox", "don't", "I'LL", "'S", "123", "4567", "3.14", "Größe", "Straße", "été",
         "ſ", "K", "日本語", "中文", "한국어", "สวัสดี", "नमस्ते", "العربية", "👩‍👩‍👧", "👍🏽", "½", "x²", "€", "…", "▁", "▁the", " ▁",
         "##ing", "<0x41>", "<0xE2>", "\r\n", "\n\n", "\t", "  ", "   ", "\u00a0", "\u3000", "\u0085", "\u200d", "\u200b",
         "\u180e", "\ufeff", "\ufffd", "\u0000", "e\u0301", "\u0344", "\u1100\u1161\u11a8", "각", "ﬁ", "Ⅷ", "ﷺ", "ｆｕ",
         "İ", "ΑΣ", "ǅ", "n't", " '", "' ", " .", " ,", " ?", "/", "_", "-", "```", "{}", "();", "a" * 70]
# What grapheme clusters are made of, in many orders.
CLUSTERS = ["e", "a", "E", "\u0301", "\u0308", "\u0304", "\u0344", "\u200d", "\u200c", "\u00a9", "\u00ae", "\u2122", "\U0001f44d",
            "\U0001f3fd", "\u0915", "\u0958", "\u094d", "\u0903", "\u0bbe", "\u1039", "\u0600", "\u0d4e", "\u1100", "\u1161",
            "\u11a8", "\uac00", "\uac01", "\U00016d63", "\U0001f1e6", "\r", "\n", "\t", "\u00ad", "\u200b", "\u0e33", "\ufb01",
            "\u00bd", "\U0001d165", "\u0e01", "\u0f40", "\u302a", "\u3099", "\u304b", "\uff76", "\uff9e"]


def rune(rng):
    kind = rng.randrange(13)
    if kind == 12:
        return rng.choice(CLUSTERS)
    if kind < 4:
        c = rng.randrange(0x20, 0x7F)
    elif kind < 6:
        c = rng.randrange(0x80, 0x250)
    elif kind < 7:
        c = rng.randrange(0x300, 0x370)
    elif kind < 10:
        c = rng.randrange(0x20, 0x10000)
    elif kind < 11:
        c = rng.randrange(0x10000, 0x20000)
    else:
        c = rng.randrange(0x110000)
    return chr(c) if not 0xD800 <= c < 0xE000 else "\ue000"


def text(rng, added):
    out = []
    for _ in range(rng.randrange(1, 14)):
        kind = rng.randrange(10)
        if kind < 4:
            out.append(rng.choice(WORDS))
        elif kind < 5 and added:
            out.append(rng.choice(added))
        elif kind < 6:
            out.append(" " * rng.randrange(1, 5))
        elif kind < 7:
            out.append(rng.choice([" ", "\n", "\r\n", "\t", "\u00a0", "'", ".", "a", "1"]) * rng.randrange(1, 6))
        elif kind < 8:
            out.append("".join(rng.choice(CLUSTERS) for _ in range(rng.randrange(1, 9))))
        else:
            out.append("".join(rune(rng) for _ in range(rng.randrange(1, 8))))
    return "".join(out)


def build(where):
    program = os.path.join(where, "tokenize")
    with open(os.path.join(ROOT, "tests/fuzz/fuzz_tokenizer.c")) as f:  # its first line names them
        words = f.readline().split()[2:]
    sources = [y for x in words if x.endswith(".c") for y in glob.glob(os.path.join(ROOT, x))]
    others = [x for x in words if not x.endswith(".c")]
    flags = os.environ.get("CFLAGS", "-O2").split()
    subprocess.run([os.environ.get("CC", "cc").split()[-1], "-std=c11", "-D_GNU_SOURCE", "-I", ROOT, *flags, "-o",
                    program, os.path.join(HERE, "tokenize.c"), *sources, *others, "-lm"], check=True)
    return program


class Ours:
    def __init__(self, program, path):
        self.p = subprocess.Popen([program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, requests):
        # Answers are smaller than a pipe's buffer only in small batches: requests go out by a thread's leave.
        import threading
        data = b"".join(requests)
        t = threading.Thread(target=lambda: (self.p.stdin.write(data), self.p.stdin.flush()))
        t.start()
        for r in requests:
            n, = struct.unpack("<i", self.read(4))
            if n < 0:
                m, = struct.unpack("<i", self.read(4))
                yield self.read(m).decode()
            elif r[:1] in b"ESO":
                yield list(struct.unpack("<%di" % n, self.read(4 * n)))
            else:
                yield self.read(n).decode("utf-8", "surrogateescape")
        t.join()

    def read(self, n):
        data = self.p.stdout.read(n)
        if len(data) != n:
            raise SystemExit("the program ended: %s" % self.p.wait())
        return data


def encode_request(kind, s):
    b = s.encode()
    return kind + struct.pack("<i", len(b)) + b


def decode_request(kind, ids):
    return kind + struct.pack("<i%di" % len(ids), len(ids), *ids)


def differ(what, given, ours, theirs):
    print("  %s of %s\n    ours   %s\n    theirs %s" % (what, ascii(given)[:300], ascii(ours)[:400], ascii(theirs)[:400]))


def places(s, offsets):
    """Bytes of the characters [a, b) for each of the package's offsets."""
    at = [0]
    for c in s:
        at.append(at[-1] + len(c.encode()))
    return [n for a, b in offsets for n in (at[a], at[b])]


def whole_characters(s, spans):
    b = s.encode()

    def edge(i, step):
        while 0 < i < len(b) and b[i] & 0xC0 == 0x80:
            i += step
        return i
    return [edge(n, 1 if i % 2 else -1) for i, n in enumerate(spans)]


def compare_places(tok, ours, strings):
    """Of files without a normalizer: with one, our spans are those of whole changed segments."""
    bad = 0
    want = [places(s, e.offsets) for s, e in zip(strings, tok.encode_batch(strings, add_special_tokens=False))]
    for s, got, theirs in zip(strings, ours.ask([encode_request(b"O", s) for s in strings]), want):
        if whole_characters(s, got) != theirs:
            bad += 1
            if bad <= 2:
                differ("places", s, whole_characters(s, got), theirs)
    return bad


def compare(program, path, n, rng):
    tok = Tokenizer.from_file(path)
    tok.no_padding(), tok.no_truncation()
    ours = Ours(program, path)
    added = [t.content for t in tok.get_added_tokens_decoder().values()]
    size, bad = tok.get_vocab_size(), 0
    for _ in range(0, n, BATCH):
        strings = [text(rng, added) for _ in range(BATCH)]
        plain = [e.ids for e in tok.encode_batch(strings, add_special_tokens=False)]
        whole = [e.ids for e in tok.encode_batch(strings, add_special_tokens=True)]
        if tok.normalizer is None and "ByteLevel" in str(tok.pre_tokenizer):
            bad += compare_places(tok, ours, strings)
        cut = [ids[:rng.randrange(len(ids) + 1)] if rng.random() < .3 else ids for ids in whole]
        free = [[rng.randrange(size) for _ in range(rng.randrange(12))] for _ in range(BATCH // 4)]
        lists = cut + free
        work = [("ids", strings, [encode_request(b"E", s) for s in strings], plain),
                ("ids with specials", strings, [encode_request(b"S", s) for s in strings], whole),
                ("text", lists, [decode_request(b"D", i) for i in lists], tok.decode_batch(lists, skip_special_tokens=False)),
                ("text without specials", lists, [decode_request(b"K", i) for i in lists],
                 tok.decode_batch(lists, skip_special_tokens=True))]
        for what, given, requests, want in work:
            for g, a, b in zip(given, ours.ask(requests), want):
                if a != b:
                    bad += 1
                    if bad <= 5:
                        differ(what, g, a, b)
    print("%s: %d strings, %d differences" % (os.path.basename(path), n, bad), flush=True)
    return bad


def main():
    args = sys.argv[1:]
    n = int(args.pop(0)) if args and args[0].isdigit() else 100000
    files = args or sorted(glob.glob(os.path.join(HERE, "tokenizers/*.json")))
    seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
    print("seed", seed)
    with tempfile.TemporaryDirectory() as where:
        program = build(where)
        return 1 if sum(compare(program, f, n, random.Random(seed)) for f in files) else 0


if __name__ == "__main__":
    sys.exit(main())
