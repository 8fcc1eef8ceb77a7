#!/usr/bin/env python3
"""Writes worker/text/unicode_tables.inc: Unicode as the package `tokenizers` has it.

Its parts carry different versions of Unicode (regular expressions 16, normal forms 9, BERT's classes 8,
Rust's own classes the compiler's), so no library's tables would do. Every table here is measured: each
code point runs through the package. Needed only to make the file again:
pip install tokenizers==0.23.3 sentencepiece protobuf; python3 make_unicode.py"""
import io
import os
import sys
import tempfile
import unicodedata

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, normalizers as N, pre_tokenizers as P

CPS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
ALL = "".join(map(chr, CPS))
GC = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()
SCRIPTS = ("Latin Greek Cyrillic Armenian Hebrew Arabic Devanagari Bengali Tamil Thai Georgian Hangul Hiragana "
           "Katakana Bopomofo Han").split()


def removed(pre):
    """Code points that a pre-tokenizer with the behaviour "removed" takes out."""
    keep = bytearray(len(CPS))
    for _, (a, b) in pre.pre_tokenize_str(ALL):
        keep[a:b] = b"\1" * (b - a)
    return [c for i, c in enumerate(CPS) if not keep[i]]


def regex(cls):
    return removed(P.Split(Regex(cls), "removed"))


def ranges(cps):
    out = []
    for c in cps:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def alone(pre):
    """Code points that a pre-tokenizer keeps apart from a letter on either side."""
    out = []
    for part in range(0, len(CPS), 4096):
        cps = CPS[part:part + 4096]
        text = "a" + "".join(chr(c) + "a" for c in cps)
        at = set()
        for _, (a, b) in pre.pre_tokenize_str(text):
            at.update((a, b))
        out += [c for i, c in enumerate(cps) if 2 * i + 1 in at and 2 * i + 2 in at]
    return out


def table(f, name, numbers, width=None):
    f.write("static const uint32_t %s[] = {\n" % name)
    line = ""
    for n in numbers:
        word = "%#x," % n if n > 9 else "%d," % n
        if len(line) + len(word) > 118:
            f.write(line + "\n")
            line = ""
        line += word
    f.write(line + "\n};\n")


def set_of(f, name, cps):
    r = ranges(cps)
    table(f, "set_" + name, [n for lo, hi in r for n in (lo, hi)] or [1, 0])
    print(name, len(cps), "code points,", len(r), "ranges")


def classes(f):
    gc = {}
    for i, name in enumerate(GC):
        for c in regex(r"\p{%s}" % name):
            assert c not in gc, hex(c)
            gc[c] = i
    assert len(gc) == len(CPS)
    runs, last = [], None
    for c in CPS:
        if gc[c] != last:
            runs.append(c << 8 | gc[c])
            last = gc[c]
    table(f, "category_runs", runs)
    print("categories:", len(runs), "runs")
    for whole in "LMNPSZC":
        want = {c for c in CPS if GC[gc[c]][0] == whole}
        assert want == set(regex(r"\p{%s}" % whole)), whole
    set_of(f, "space", regex(r"\s"))
    set_of(f, "word", regex(r"\w"))
    assert regex(r"\d") == regex(r"\p{Nd}")
    for s in SCRIPTS:
        set_of(f, s.lower(), regex(r"\p{%s}" % s))
    folds = []
    for i in range(26):
        a = chr(97 + i)
        got = set(regex("(?i:%s)" % a))
        assert got == set(regex("(?i:%s)" % a.upper())) and {ord(a), ord(a.upper())} <= got
        folds += [(97 + i, c) for c in sorted(got - {ord(a), ord(a.upper())})]
    table(f, "fold_pairs", [n for p in folds for n in p])
    print("folds:", [(chr(a), hex(b)) for a, b in folds])


def rust(f):
    space = removed(P.WhitespaceSplit())
    assert space == regex(r"\s")
    set_of(f, "numeric", alone(P.Digits(True)))
    set_of(f, "punctuation", removed(P.Punctuation("removed")))
    not_word = set(alone(P.Whitespace())) | set(space)
    set_of(f, "word_rust", [c for c in CPS if c not in not_word])


def dropped(norm):
    return [c for c in CPS if not norm.normalize_str(chr(c))]


def bert(f):
    clean = N.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    set_of(f, "bert_control", dropped(clean))
    set_of(f, "bert_mark", dropped(
        N.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)))
    set_of(f, "mark", dropped(N.StripAccents()))
    lower = N.Lowercase()
    pairs = []
    for c in CPS:
        t = lower.normalize_str(chr(c))
        if t != chr(c):
            assert len(t) == 1 or (c == 0x130 and t == "i\u0307"), hex(c)
            pairs.append((c, ord(t[0])))
    # Runs: first, last, step, and what is added: cased letters alternate or lie side by side.
    runs = []
    for a, b in pairs:
        if runs and b - a == runs[-1][3]:
            first, last, step, _ = runs[-1]
            if first == last and a - last <= 2:
                runs[-1][1:3] = [a, a - last]
                continue
            if a - last == step:
                runs[-1][1] = a
                continue
        runs.append([a, a, 1, b - a])
    table(f, "lower_runs", [n & 0xFFFFFFFF for r in runs for n in r])
    print("lowercase:", len(pairs), "in", len(runs), "runs")


def classes_of_marks(nfd):
    """The combining class of every code point that is no starter: its order is measured."""
    guess = {c: unicodedata.combining(chr(c)) for c in CPS if unicodedata.combining(chr(c))}

    def swaps(a, b):  # does b move before a?
        return a != b and nfd(chr(a) + chr(b)) == chr(b) + chr(a)
    plain = [c for c in guess if nfd(chr(c)) == chr(c)]
    refs = {}
    for c in plain:
        if guess[c] not in refs and (swaps(0x301, c) or swaps(c, 0x334)):
            refs[guess[c]] = c
    order = sorted(refs)
    for i, a in enumerate(order):
        for b in order[i + 1:]:
            assert swaps(refs[b], refs[a]) and not swaps(refs[a], refs[b]), (a, b)
    out = {}
    for c in CPS:
        if nfd(chr(c)) != chr(c) or not (swaps(0x301, c) or swaps(c, 0x334)):
            continue
        same = [k for k in order if not swaps(refs[k], c) and not swaps(c, refs[k])]
        assert len(same) == 1, hex(c)
        out[c] = same[0]
    print("combining classes:", len(out), "of", len(guess), "in Python's Unicode", unicodedata.unidata_version)
    return out


def normal_forms(f):
    nfd, nfkd, nfc = N.NFD().normalize_str, N.NFKD().normalize_str, N.NFC().normalize_str
    ccc = classes_of_marks(nfd)
    runs = []
    for c in sorted(ccc):
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == ccc[c]:
            runs[-1][1] = c
        else:
            runs.append([c, c, ccc[c]])
    table(f, "combining_runs", [n for lo, hi, k in runs for n in (lo << 8 | k, hi)])

    hangul = range(0xAC00, 0xD7A4)
    canonical = {c: nfd(chr(c)) for c in CPS if c not in hangul and nfd(chr(c)) != chr(c)}
    compat = {c: nfkd(chr(c)) for c in CPS if c not in hangul and nfkd(chr(c)) != chr(c)}
    compat = {c: t for c, t in compat.items() if t != canonical.get(c)}
    pairs = []
    for c, t in canonical.items():
        if nfc(chr(c)) == chr(c):
            a = nfc(t[:-1])
            assert len(a) == 1 and nfc(a + t[-1]) == chr(c), hex(c)
            pairs.append((ord(a), ord(t[-1]), c))
    for name, d in (("canonical", canonical), ("compat", compat)):
        pool, index = [], []
        for c in sorted(d):
            cps = [ord(x) for x in d[c]]
            index += [c, len(pool) << 8 | len(cps)]
            pool += cps
        table(f, name + "_index", index)
        table(f, name + "_pool", pool)
        print(name, len(d), "decompositions")
    table(f, "compositions", [n for p in sorted(pairs) for n in p])
    print("compositions:", len(pairs))


def charsmap(rules):
    """SentencePiece's form of a normalization; it makes one of a table of rules."""
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as f:
        for a, b in rules.items():
            f.write(" ".join("%X" % ord(c) for c in a) + "\t" + " ".join("%X" % ord(c) for c in b) + "\n")
        f.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["a b c d e f"] * 10), model_writer=model, vocab_size=11, minloglevel=2,
            normalization_rule_tsv=f.name, hard_vocab_limit=False)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto.normalizer_spec.precompiled_charsmap


def graphemes(f):
    """Of Precompiled: it takes a cluster of at most five bytes whole if a key begins it, so that one key tells where
    clusters end. Hangul syllables and pairs of flags have more; of these only the first can be told apart."""
    def by(key):
        return N.Precompiled(charsmap({key: "Z"})).normalize_str
    acute, ka, zwj = "\u0301", "\u0958", "\u200d"
    letter, mark, picture, consonant = by("a"), by(acute), by("\u00a9"), by(ka)
    join = {c for c in CPS if letter("a" + chr(c)) == "Z"}
    extend = {c for c in join if picture("\u00a9" + chr(c) + zwj + "\u00a9" + acute).endswith("Z" + acute)}
    assert {0x200C, 0x200D} == extend ^ {
        c for c in join if consonant(ka + "\u094d" + chr(c) + ka + acute).endswith(acute)}
    linker = {c for c in join if consonant(ka + chr(c) + ka + acute).endswith(acute)}
    control = {c for c in CPS if mark(chr(c) + acute * 2) == chr(c) + "Z"}
    prepend = {c for c in CPS if letter(chr(c) + "a" + acute).endswith("Z" + acute)} - {ord("a")}
    begins = {c for c in CPS if consonant(chr(c) + "\u094d" + ka + acute).endswith(acute)}
    pictures = {c for c in CPS if picture("\u00a9" + zwj + chr(c)).startswith("Z" + zwj)} - join
    before = [{c for c in CPS if part(chr(c) + j + acute).endswith(acute)} - prepend
              for j in ("\u1100", "\u1161", "\u11a8") for part in [by(j)]]
    assert linker <= extend and 0x200C in extend and not join & (control | prepend | begins)
    lv = {c for c in range(0xAC00, 0xD7A4) if (c - 0xAC00) % 28 == 0}
    lvt = set(range(0xAC00, 0xD7A4)) - lv
    l, v, t = before[0], before[1] - before[0] - lv, before[2] - before[1] - lvt
    assert before == [l, l | v | lv, v | t | lv | lvt]
    kinds = [(control, 1), (extend, 2), (linker, 3), ({0x200D}, 4), (join - extend - {0x200D}, 5), (prepend, 6), (begins, 7),
             (pictures, 8), (l, 9), (v, 10), (t, 11), (lv, 12), (lvt, 13), ({13}, 14), ({10}, 15), ({0x200C}, 16)]
    of = {c: k for cps, k in kinds for c in cps}
    runs = [c << 8 | of.get(c, 0) for c in CPS if c == 0 or of.get(c, 0) != of.get(c - 1, 0)]
    table(f, "break_runs", runs)
    print("grapheme clusters:", [(k, len(cps)) for cps, k in kinds], len(runs), "runs")


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    with open(os.path.join(root, "worker/text/unicode_tables.inc"), "w") as f:
        f.write("/* unicode_tables.inc: written by tests/golden/make_unicode.py from tokenizers %s. */\n"
                "/* clang-format off */\n" % tokenizers.__version__)
        f.write("#define CATEGORIES \"%s\"\n" % "".join(GC))
        classes(f)
        rust(f)
        bert(f)
        normal_forms(f)
        graphemes(f)
        f.write("/* clang-format on */\n")


if __name__ == "__main__":
    sys.exit(main())
