#!/usr/bin/env python3
"""Chat templates against jinja2 as transformers calls it, outside CI.

    tests/golden/check_templates.py DIR [--n 50] [--seed 1] [--verbose]

Every *.jinja of DIR renders N generated conversations here and in C (tests/golden/render_templates.c, which
is built first); an exception in both counts as equal when raise_exception's text is the same. Needs Python
with transformers and jinja2."""
import argparse
import datetime
import glob
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import jinja2
from transformers.utils import chat_template_utils as hf

NOW = 1753660800 + 5 * 3600 + 7 * 60 + 9
RAISED = None


def compile_template(text):
    t = hf._compile_jinja_template(text)
    env = t.environment

    def raise_exception(message):
        global RAISED
        RAISED = str(message)
        raise jinja2.exceptions.TemplateError(message)

    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(
        NOW, datetime.timezone.utc).strftime(f)
    return t


def render(t, variables):
    """(text, spans in bytes, error, what raise_exception said)"""
    global RAISED
    RAISED = None
    blocks, indices = [], []
    try:
        with t.environment.activate_tracker(blocks, indices):
            for block in t.generate(**variables):
                blocks.append(block)
        text = "".join(blocks)
        spans = [(len(text[:a].encode()), len(text[:b].encode())) for a, b in indices]
        return text.encode(), spans, None, None
    except Exception as e:  # whatever Python raises is an error of the template
        return None, None, f"{type(e).__name__}: {e}", RAISED


TEXTS = ["", "hi", "  padded \n", "line one\nline two\n\n", "Grüße, 世界 👩‍👩‍👧 e\u0301", "<b>&amp; \"quotes\" 'single'</b>",
         "a\\b\t\u00a0\u200b\u2028", "<think>hm</think>the answer", "<|im_end|> </s> [INST]", "{{ x }} {% raw %}",
         "1. one\r\n2. two", "ǅ ß İ Σς ﬁ", "<think>\nno end", "x" * 300, "None", "[1, 2]", "</think>", "\x01\x1f\x7f"]


def text(r):
    return r.choice(TEXTS) if r.random() < 0.7 else " ".join(
        r.choice(["the", "Ωmega", "cat", "42", "-", "«x»", "naïve", "\n"]) for _ in range(r.randint(1, 12)))


def arguments(r):
    values = [1, -7, 2.5, 1e20, 1e-7, 100.0, True, False, None, "Paris", "ü", [1, "a"], {"k": [True]}, [], {}]
    return {k: r.choice(values) for k in r.sample(["city", "n", "opts", "flag", "länge"], r.randint(0, 3))}


def tools(r):
    out = []
    for name in r.sample(["get_weather", "add", "search_the_web"], r.randint(1, 2)):
        props = {}
        for key in r.sample(["city", "unit", "n", "tags", "nested"], r.randint(0, 4)):
            props[key] = r.choice([
                {"type": "string", "description": "The city's name"}, {"type": "integer"},
                {"type": "string", "enum": ["c", "f"]}, {"type": "number", "default": 1.0},
                {"type": "array", "items": {"type": "string"}}, {"type": ["string", "null"]},
                {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]},
                {"type": "boolean", "default": True}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}])
        parameters = {"type": "object", "properties": props}
        if r.random() < 0.7:
            parameters["required"] = list(props)[:2]
        function = {"name": name, "description": r.choice(["Does it.", "Wetter für \"x\" <b>", "two\nlines"]),
                    "parameters": parameters}
        if r.random() < 0.2:
            function["return"] = {"type": "string", "description": "what"}
        out.append({"type": "function", "function": function})
    return out


def call(r, i):
    c = {"type": "function", "function": {"name": r.choice(["get_weather", "add"]), "arguments": arguments(r)}}
    if r.random() < 0.7:
        c["id"] = r.choice(["call_%05d" % i, "abcdefgh%d" % (i % 10)])
    if r.random() < 0.15:
        c["function"]["arguments"] = json.dumps(c["function"]["arguments"])
    return c


PARTS = 0  # how often a content is a list of parts: of one conversation


def content(r):
    if r.random() < PARTS:
        return [{"type": "text", "text": text(r)} for _ in range(r.randint(0, 2))]
    return text(r)


def assistant(r, with_calls):
    m = {"role": "assistant", "content": content(r)}
    if r.random() < 0.3:
        m[r.choice(["reasoning_content", "reasoning_content", "thinking"])] = text(r)
    if with_calls:
        m["tool_calls"] = [call(r, i) for i in range(r.randint(1, r.choice([1, 1, 2])))]
        if r.random() < 0.3:
            m["content"] = r.choice([None, "", ""])
    return m


def conversation(r):
    global PARTS
    PARTS = 0.5 if r.random() < 0.12 else 0
    messages = []
    if r.random() < 0.45:
        messages.append({"role": r.choice(["system", "system", "system", "developer"]), "content": content(r)})
    use_tools = r.random() < 0.35
    for _ in range(r.randint(0 if r.random() < 0.1 else 1, 4)):
        messages.append({"role": "user", "content": content(r)})
        if use_tools and r.random() < 0.6:
            turn = assistant(r, True)
            messages.append(turn)
            for c in turn["tool_calls"]:
                reply = {"role": "tool", "content": r.choice([text(r), json.dumps(arguments(r))])}
                if r.random() < 0.6:
                    reply["name"] = c["function"]["name"]
                if "id" in c and r.random() < 0.8:
                    reply["tool_call_id"] = c["id"]
                messages.append(reply)
        if r.random() < 0.93:
            messages.append(assistant(r, False))
    if r.random() < 0.05:
        messages.append({"role": r.choice(["user", "assistant", "tool", "strange"]), "content": text(r)})
    v = {"messages": messages, "tools": tools(r) if use_tools and r.random() < 0.9 else None, "documents": None,
         "add_generation_prompt": r.random() < 0.5, "bos_token": "<s>", "eos_token": "</s>"}
    for name in ("enable_thinking", "thinking", "keep_all_reasoning", "preserve_thinking"):
        if r.random() < 0.2:
            v[name] = r.random() < 0.5
    if r.random() < 0.15:
        v["reasoning_effort"] = r.choice(["low", "high"])
    if r.random() < 0.1:
        v["documents"] = [{"title": "T" + str(i), "text": text(r)} for i in range(2)]
    if r.random() < 0.1:
        v["date_string"] = "26 Jul 2024"
    if r.random() < 0.5:
        v["messages"] = hf._alias_reasoning_fields(messages)
    return v


class Rendered:
    """The C program with one template."""

    def __init__(self, program, path):
        self.p = subprocess.Popen([program, path, str(NOW)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, variables):
        try:
            self.p.stdin.write(json.dumps(variables, ensure_ascii=False).encode() + b"\n")
            self.p.stdin.flush()
        except BrokenPipeError:
            pass
        head = self.p.stdout.readline().decode().rstrip("\n")
        word, _, rest = head.partition(" ")
        if word != "ok":
            while self.p.poll() is None and word == "error" and self.more():
                rest += "\n" + self.p.stdout.readline().decode().rstrip("\n")
            return None, None, head if not rest else word + " " + rest
        size, n = map(int, rest.split())
        out = self.p.stdout.read(size)
        self.p.stdout.read(1)
        return out, [tuple(map(int, self.p.stdout.readline().split())) for _ in range(n)], None

    def more(self):
        import select
        return bool(select.select([self.p.stdout], [], [], 0)[0])


def same(want, got):
    if want[2] is None:
        return got[2] is None and want[0] == got[0] and want[1] == [s for s in got[1]]
    if got[2] is None:
        return False
    return want[3] is None or want[3][:400] in got[2]


def build():
    program = os.path.join(tempfile.mkdtemp(), "render_templates")
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with open(os.path.join(root, "tests/fuzz/fuzz_template.c")) as f:  # its first line names them
        sources = [os.path.join(root, x) for x in f.readline().split()[2:]]
    subprocess.run([*os.environ.get("CC", "cc").split(), "-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-w", "-I", root,
                    *os.environ.get("CFLAGS", "").split(), "-o", program,
                    os.path.join(root, "tests/golden/render_templates.c"), *sources, "-lm"], check=True)
    return program


def main():
    a = argparse.ArgumentParser()
    a.add_argument("dir")
    a.add_argument("--n", type=int, default=50)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--only", default="")
    a.add_argument("--verbose", action="store_true")
    a = a.parse_args()
    program = build()
    wrong = total = errors = refused = 0
    for path in sorted(glob.glob(os.path.join(a.dir, "*.jinja"))):
        name = os.path.basename(path)
        if a.only not in name:
            continue
        source = open(path, newline="").read()
        r = random.Random(f"{a.seed} {name}")
        try:
            t = compile_template(source)
        except Exception as e:
            t, why = None, e
        c = Rendered(program, path)
        bad = raised = 0
        for i in range(a.n):
            v = conversation(r)
            want = render(t, v) if t else (None, None, str(why), None)
            got = c.render(v)
            total += 1
            raised += want[2] is not None
            if got[2] is not None and got[2].startswith("refused"):
                if t:
                    print(f"{name}: {got[2]}")
                    refused += 1
                break
            if same(want, got):
                continue
            bad += 1
            if bad <= (3 if a.verbose else 1):
                print(f"{name} #{i}: {json.dumps(v, ensure_ascii=False)[:2000]}")
                w, g = want[0] or b"", got[0] or b""
                at = next((k for k in range(min(len(w), len(g))) if w[k] != g[k]), min(len(w), len(g)))
                print("   want", want[2] or want[3] or w[max(0, at - 60):at + 80], want[1])
                print("   got ", got[2] or g[max(0, at - 60):at + 80], got[1])
        wrong += bad
        errors += raised
        print(f"{name}: {a.n} conversations, {raised} raise, {bad} mismatches")
        c.p.stdin.close()
    print(f"{total} renderings ({errors} raise in both or one), {wrong} mismatches, {refused} templates refused")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
