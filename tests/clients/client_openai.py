#!/usr/bin/env python3
"""client_openai.py: the package `openai` against a job that serves (run.sh): answers, streams,
errors, retries, timeouts, cancellation.

KILL_RANK    a shell command that kills a rank of the job
"""
import asyncio
import json
import os
import subprocess
import sys
import threading
import time

from checks import EMBEDDER, MODEL, NOT_INSTALLED, SEQ_LEN, check, checked, end, left_out, raises, refused_by_name, same

try:
    import openai
except ImportError:
    sys.exit(NOT_INSTALLED)

client = openai.OpenAI(max_retries=0, timeout=60)
PROMPT = "The ranks of"
TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who are you?"}]
LONG = {"model": MODEL, "prompt": "a", "max_tokens": SEQ_LEN - 8, "extra_body": {"ignore_eos": True}}


def complete(c=client, **more):
    return c.completions.create(**{"model": MODEL, "prompt": PROMPT, "max_tokens": 8, **more})


def chat(c=client, **more):
    return c.chat.completions.create(**{"model": MODEL, "messages": TALK, "max_tokens": 8, **more})


def models():
    check("models.list", MODEL in [m.id for m in client.models.list()])
    same("models.retrieve", client.models.retrieve(MODEL).id, MODEL)
    raises("models.retrieve of none", openai.NotFoundError, lambda: client.models.retrieve("none"),
           lambda e: e.code == "model_not_found")


def completions():
    a = complete()
    text = a.choices[0].text
    check("completions: text, usage, finish_reason",
          text and a.choices[0].finish_reason in ("length", "stop")
          and a.usage.total_tokens == a.usage.prompt_tokens + a.usage.completion_tokens
          and a.usage.completion_tokens <= 8 and a.object == "text_completion", a)
    same("the same again", complete().choices[0].text, text)
    ids = client.post("/tokenize", body={"model": MODEL, "prompt": PROMPT}, cast_to=object)["tokens"]
    same("usage counts the prompt's tokens", a.usage.prompt_tokens, len(ids))
    same("a prompt of ids", complete(prompt=ids).choices[0].text, text)
    same("a list with one list of ids", complete(prompt=[ids]).choices[0].text, text)
    same("a list with one string", complete(prompt=[PROMPT]).choices[0].text, text)
    b = complete(n=3, temperature=0.9, seed=7)
    same("n", [c.index for c in b.choices], [0, 1, 2])
    same("a seed repeats", [c.text for c in complete(n=3, temperature=0.9, seed=7).choices],
         [c.text for c in b.choices])
    e = complete(logprobs=2, echo=True, max_tokens=1).choices[0]
    check("echo with logprobs: one list, null first", e.text.startswith(PROMPT)
          and len(e.logprobs.tokens) == len(ids) + 1 == len(e.logprobs.token_logprobs)
          and e.logprobs.token_logprobs[0] is None
          and all(x <= 0 for x in e.logprobs.token_logprobs[1:]), e)
    z = complete(logprobs=1, echo=True, max_tokens=0).choices[0]
    same("max_tokens 0 with echo", z.text, PROMPT)
    parts = list(complete(logprobs=0, echo=True, max_tokens=1, stream=True))
    same("a stream with echo has the same text", "".join(p.choices[0].text for p in parts if p.choices), e.text)
    stop = text[2:4]
    same("stop", complete(stop=[stop]).choices[0].text, text[:text.find(stop)])
    parts = list(complete(stream=True, stream_options={"include_usage": True}))
    same("a stream has the same text", "".join(p.choices[0].text for p in parts if p.choices), text)
    same("and the usage at its end", parts[-1].usage, a.usage)


def lists():
    try:
        two = complete(prompt=[PROMPT, "A token"])
    except openai.BadRequestError as e:
        left_out("lists of prompts", e.body.get("message"))
        return
    same("a list of prompts", [c.index for c in two.choices], [0, 1])
    same("has the text of each", [c.text for c in two.choices],
         [complete(prompt=p).choices[0].text for p in (PROMPT, "A token")])
    four = complete(prompt=[PROMPT, "A token"], n=2, temperature=0.9, seed=3)
    same("with n", [c.index for c in four.choices], [0, 1, 2, 3])
    parts = list(complete(prompt=[PROMPT, "A token"], stream=True))
    for i in (0, 1):
        same(f"streamed, text {i}", "".join(p.choices[0].text for p in parts if p.choices[0].index == i),
             two.choices[i].text)


def chats():
    a = chat()
    text = a.choices[0].message.content
    check("chat: role, text, usage", a.choices[0].message.role == "assistant" and text is not None
          and a.object == "chat.completion" and a.usage.completion_tokens <= 8, a)
    same("max_completion_tokens", chat(max_tokens=openai.NOT_GIVEN, max_completion_tokens=8)
         .choices[0].message.content, text)
    same("text in parts", chat(messages=[TALK[0], {"role": "user", "content": [
        {"type": "text", "text": TALK[1]["content"]}]}]).choices[0].message.content, text)
    b = chat(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    check("logprobs", all(len(t.top_logprobs) == 2 and t.logprob <= 0 for t in b)
          and b"".join(bytes(t.bytes or []) for t in b).decode("utf-8", "replace") == text, b)
    parts = list(chat(stream=True, stream_options={"include_usage": True}))
    same("a stream begins with its role", parts[0].choices[0].delta.role, "assistant")
    same("and has the same text",
         "".join(p.choices[0].delta.content or "" for p in parts if p.choices), text)
    same("and the usage", parts[-1].usage, a.usage)
    with client.chat.completions.stream(model=MODEL, messages=TALK, max_tokens=8) as s:
        same("chat.completions.stream", "".join(e.delta for e in s if e.type == "content.delta"), text)
    same("n", [c.index for c in chat(n=2, temperature=0.8, seed=1).choices], [0, 1])


def schema_and_tools():
    """Members of helper libraries; a server without them refuses them by name."""
    schema = {"type": "object", "properties": {"name": {"type": "string", "enum": ["Ann", "Bob"]}},
              "required": ["name"], "additionalProperties": False}
    tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    for what, more in (("response_format json_schema", {"response_format": {
            "type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}}),
                       ("response_format json_object", {"response_format": {"type": "json_object"}}),
                       ("tools", {"tools": [tool]}),
                       ("a named tool", {"tools": [tool], "tool_choice": {
                           "type": "function", "function": {"name": "weather"}}}),
                       ("logit_bias", {"logit_bias": {"5": -100}})):
        try:
            a = chat(max_tokens=48, **more)
            said = a.choices[0].message
            check(what, json.loads(said.content)["name"] in ("Ann", "Bob") if what.endswith("json_schema")
                  else said.tool_calls[0].function.name == "weather" if what == "a named tool" else said, a)
        except openai.BadRequestError as e:
            if check(f"{what} is answered or refused by name", refused_by_name(e), e.body):
                left_out(what, e.body.get("message"))


def embeddings():
    if EMBEDDER is None:
        left_out("embeddings", "no job answers them")
        return
    texts = ["The ranks of a ring", "A second text"]
    a = client.embeddings.create(model=EMBEDDER, input=texts)  # as base64, which the package decodes
    b = client.embeddings.create(model=EMBEDDER, input=texts, encoding_format="float")
    same("embeddings: one of each text", [d.index for d in a.data], [0, 1])
    check("as base64 and as numbers: the same",
          all(abs(x - y) <= 1e-6 for d, e in zip(a.data, b.data) for x, y in zip(d.embedding, e.embedding)))
    one = client.embeddings.create(model=EMBEDDER, input=texts[1])
    same("a text alone has the same", one.data[0].embedding, a.data[1].embedding)
    check("usage", a.usage.prompt_tokens == a.usage.total_tokens > one.usage.prompt_tokens > 0, a.usage)
    raises("a wrong encoding names its member", openai.BadRequestError, lambda: client.embeddings.create(
        model=EMBEDDER, input="a", encoding_format="hex"), lambda e: e.param == "encoding_format")
    raises("a model that generates", openai.BadRequestError,
           lambda: client.embeddings.create(model=MODEL, input="a"))


def errors():
    raises("a wrong value names its member", openai.BadRequestError, lambda: complete(max_tokens=-1),
           lambda e: e.param == "max_tokens" and e.type == "invalid_request_error")
    raises("no such model", openai.NotFoundError, lambda: complete(model="other"),
           lambda e: e.code == "model_not_found" and e.param == "model")
    raises("a prompt that is too long", openai.BadRequestError, lambda: complete(prompt="The ranks. " * SEQ_LEN),
           lambda e: e.code == "context_length_exceeded" and e.param == "prompt")
    raises("an error before a stream", openai.BadRequestError,
           lambda: list(complete(stream=True, temperature=-1)), lambda e: e.param == "temperature")
    raises("no token", openai.AuthenticationError,
           lambda: complete(openai.OpenAI(api_key="none", max_retries=0)))
    raises("no such path", openai.NotFoundError,
           lambda: client.responses.create(model=MODEL, input="a"))
    raises("a member that the API has and the server has not", openai.BadRequestError,
           lambda: complete(extra_body={"best": 3}), lambda e: e.param == "best")


async def many(n, retries, **more):
    c = openai.AsyncOpenAI(max_retries=retries, timeout=120)
    asked = [{"model": MODEL, "prompt": f"Rank {i}", "max_tokens": 32, **more} for i in range(n)]
    got = await asyncio.gather(*[c.completions.create(**a) for a in asked], return_exceptions=True)
    await c.close()
    return got


def full():
    # four slots, and a queue of four
    got = asyncio.run(many(24, 0, **LONG))
    refused = [e for e in got if isinstance(e, Exception)]
    check("a full queue: 429 with Retry-After", refused and all(
        isinstance(e, openai.RateLimitError) and e.response.headers.get("retry-after") for e in refused),
          refused)
    check("and the others are answered", 8 <= len(got) - len(refused) < 24, len(refused))
    got = asyncio.run(many(24, 60))
    check("24 at once, with retries", all(not isinstance(a, Exception) for a in got), got)


def cancellation():
    streams = [client.completions.create(**LONG, stream=True) for _ in range(4)]
    for s in streams:
        next(iter(s))
        s.close()
    raises("a timeout", openai.APITimeoutError, lambda: client.completions.create(**LONG, timeout=0.05))
    check("closed streams free their slots", complete(openai.OpenAI(max_retries=9)).choices[0].text)


def lost():
    if "KILL_RANK" not in os.environ:
        return
    stream = client.completions.create(**LONG, stream=True)
    next(iter(stream))
    killer = threading.Thread(target=lambda: subprocess.run(os.environ["KILL_RANK"], shell=True, check=False))
    killer.start()
    # A job of few tokens may end its stream before the kill reaches it.
    try:
        for _ in stream:
            pass
        left_out("a stream that its rank leaves", "it had ended before")
    except openai.APIError as e:
        check("a stream ends with its rank, in an error", "ask again" in str(e), e)
    killer.join()
    begun = time.monotonic()
    patient = openai.OpenAI(max_retries=60, timeout=60)
    check("retries reach the job when it serves again", complete(patient).choices[0].text)
    print(f"     after {time.monotonic() - begun:.1f} s")


for part in (models, completions, lists, chats, schema_and_tools, embeddings, errors, full,
             cancellation, lost):
    with checked(part.__name__):
        part()
end()
