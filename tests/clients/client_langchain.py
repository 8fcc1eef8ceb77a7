#!/usr/bin/env python3
"""client_langchain.py: LangChain's ChatOpenAI and OpenAI against a job that serves (run.sh)."""
import asyncio
import sys
from typing import Literal

from checks import EMBEDDER, MODEL, NOT_INSTALLED, URL, check, checked, end, left_out, raises, refused_by_name, same

try:
    import openai
    from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
    from pydantic import BaseModel, Field
except ImportError:
    sys.exit(NOT_INSTALLED)

SET = {"model": MODEL, "base_url": URL, "max_tokens": 8, "temperature": 0, "max_retries": 60}
chat = ChatOpenAI(**SET, stream_usage=True)


class Person(BaseModel):
    """A person. The model is untrained: it ends no text by itself, so each value is one of few."""
    name: Literal["Ann", "Bob"] = Field(description="The name.")
    grown: bool


def weather(city: str) -> str:
    """The weather of a city."""
    return city


def answers():
    a = chat.invoke("Who are you?")
    check("invoke: text and usage", isinstance(a.content, str)
          and a.usage_metadata["output_tokens"] <= 8 and a.response_metadata["model_name"] == MODEL, a)
    same("messages", chat.invoke([("human", "Who are you?")]).content, a.content)
    parts = list(chat.stream("Who are you?"))
    same("stream has the same text", "".join(p.content for p in parts), a.content)
    whole = parts[0]
    for p in parts[1:]:
        whole += p
    same("and its usage", whole.usage_metadata["total_tokens"], a.usage_metadata["total_tokens"])
    same("batch", [b.content for b in chat.batch(["Who are you?"] * 3)], [a.content] * 3)
    turns = [("human", "Who are you?"), ("ai", a.content or "."), ("human", "Why?")]
    check("a second turn", isinstance(chat.invoke(turns).content, str))
    b = chat.bind(logprobs=True, top_logprobs=2, stop=["zz"]).invoke("Who are you?")
    check("bind", len(b.response_metadata["logprobs"]["content"][0]["top_logprobs"]) == 2, b)

    async def gather():
        return await asyncio.gather(*[chat.ainvoke(f"Question {i}") for i in range(12)])
    same("12 at once, with retries", len(asyncio.run(gather())), 12)


def completions():
    llm = OpenAI(**SET)
    a = llm.invoke("The ranks of")
    check("OpenAI: invoke", isinstance(a, str))
    same("OpenAI: stream", "".join(llm.stream("The ranks of")), a)
    try:
        same("OpenAI: batch, a list of prompts", llm.batch(["The ranks of"] * 2), [a] * 2)
    except openai.BadRequestError as e:
        left_out("OpenAI: batch", (e.body or {}).get("message"))


def try_part(what, call, holds):
    """A part that a server may refuse by name."""
    try:
        got = call()
    except openai.BadRequestError as e:
        if check(f"{what} is answered or refused by name", refused_by_name(e), e.body):
            left_out(what, (e.body or {}).get("message"))
        return
    except openai.LengthFinishReasonError:
        check(f"{what}: an untrained model ends no text", what.endswith("json_mode"))
        return
    check(what, holds(got), got)


def structured():
    for method in ("json_schema", "function_calling", "json_mode"):
        model = ChatOpenAI(**{**SET, "max_tokens": 96})
        try_part(f"with_structured_output {method}",
                 lambda: model.with_structured_output(Person, method=method, include_raw=True)
                 .invoke("Ann is grown. Answer in JSON."),
                 lambda got: got["parsing_error"] is None or method == "json_mode")
    try_part("bind_tools", lambda: chat.bind_tools([weather]).invoke("The weather of Rome?"),
             lambda a: isinstance(a.tool_calls, list))
    try_part("bind_tools of one tool", lambda: ChatOpenAI(**{**SET, "max_tokens": 96})
             .bind_tools([weather], tool_choice="weather").invoke("The weather of Rome?"),
             lambda a: a.tool_calls and a.tool_calls[0]["name"] == "weather")


def embeddings():
    if EMBEDDER is None:
        left_out("OpenAIEmbeddings", "no job answers embeddings")
        return
    # The server counts tokens: the package's own tokenizer is that of OpenAI's models.
    e = OpenAIEmbeddings(model=EMBEDDER, base_url=URL, check_embedding_ctx_length=False)
    two = e.embed_documents(["The ranks of a ring", "A second text"])
    same("OpenAIEmbeddings: the same of a query", e.embed_query("A second text"), two[1])


def errors():
    raises("an error has its member", openai.BadRequestError,
           lambda: chat.bind(temperature=-1).invoke("a"), lambda e: e.param == "temperature")


for part in (answers, completions, structured, embeddings, errors):
    with checked(part.__name__):
        part()
end()
