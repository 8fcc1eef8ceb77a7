#!/usr/bin/env python3
"""Writes tests/golden/tools.jsonl: bodies of chats with tools, and the text that transformers renders
of them by tests/golden/qwen_tools.jinja: tests/golden/make_tools_golden.py >tests/golden/tools.jsonl

The template is that of Qwen2.5, with the end of that of Qwen3 (enable_thinking). The arguments of calls
are JSON text in a body, and objects for the template. Needs transformers and jinja2."""
import copy
import json
import os

from transformers.utils.chat_template_utils import render_jinja_template

TEMPLATE = open(os.path.join(os.path.dirname(__file__), "qwen_tools.jinja")).read()
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather <now> of a \"city\", in °C",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                   "required": ["city"]}}}
TIME = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}


def call(i, name, arguments):
    return {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": arguments}}


ASK = {"role": "user", "content": "How is Zürich?"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [
    call(0, "get_weather", '{"city": "Z\\u00fcrich", "days": [1, 2.5, null, {"a": "<b>\\n"}]}'), call(1, "now", "{}")]}
ANSWERS = [{"role": "tool", "tool_call_id": "call_0", "content": "{\"c\": 21}"},
           {"role": "tool", "tool_call_id": "call_1", "content": "12:00"}]
BODIES = [
    {"messages": [ASK]},
    {"messages": [ASK], "tools": [WEATHER, TIME]},
    {"messages": [{"role": "system", "content": "Be short."}, ASK, CALLED] + ANSWERS, "tools": [WEATHER, TIME]},
    {"messages": [ASK, dict(CALLED, content="Let me see."), ANSWERS[0], {"role": "assistant", "content": "21"}, ASK],
     "tools": [WEATHER], "tool_choice": "auto"},
    {"messages": [ASK], "tools": [WEATHER], "tool_choice": "none"},
    {"messages": [ASK], "chat_template_kwargs": {"enable_thinking": False}},
    {"messages": [ASK], "chat_template_kwargs": {"enable_thinking": True}},
]

for body in BODIES:
    given = copy.deepcopy(body)
    for m in given["messages"]:
        for c in m.get("tool_calls", []):
            c["function"]["arguments"] = json.loads(c["function"]["arguments"])
    tools = None if given.get("tool_choice") == "none" else given.get("tools")
    messages = [{k: v for k, v in m.items() if v is not None} for m in given["messages"]]
    text, _ = render_jinja_template([messages], tools=tools, chat_template=TEMPLATE, add_generation_prompt=True,
                                    **given.get("chat_template_kwargs", {}))
    print(json.dumps({"body": json.dumps(body, ensure_ascii=False), "out": text[0]}, ensure_ascii=False))
