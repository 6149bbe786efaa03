"""A model's parsers by its chat template; the templates here are cut to what tells them apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine_adapter.model_family import chat_template, parsers_of, tool_call_parser

QWEN_25 = """{%- if tools %}…<tools>{{ tool | tojson }}</tools> … within <tool_call></tool_call>:
<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>"""
TEMPLATES = {
    "qwen": QWEN_25,
    "hermes": "{{ tools|tojson }} <tool_call>\n{'arguments': <args-dict>}</tool_call>",
    "mistral": "[AVAILABLE_TOOLS] {{ tools }} [TOOL_CALLS] [",
    "llama3": "{%- if tools is not none %}Environment: ipython",
    "deepseekv3": "{% if tools %}<｜tool▁calls▁begin｜>",
    "": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    "auto": QWEN_25 + "{%- if enable_thinking is defined and enable_thinking is false %}",
}


@pytest.mark.parametrize("parser", TEMPLATES)
def test_the_parser_of_a_template(parser: str) -> None:
    assert tool_call_parser(TEMPLATES[parser]) == parser


def test_a_template_that_nobody_knows_is_left_to_sglang() -> None:
    assert tool_call_parser("{% if tools %}<<call>>{% endif %}") == "auto"


def test_templates_are_found_wherever_they_are(tmp_path: Path) -> None:
    assert chat_template(tmp_path) == ""
    assert parsers_of(tmp_path) == []
    config = tmp_path / "tokenizer_config.json"
    config.write_text("no JSON")
    assert chat_template(tmp_path) == ""
    config.write_text(json.dumps({"chat_template": QWEN_25}))
    assert parsers_of(tmp_path) == ["--tool-call-parser", "qwen"]
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": QWEN_25}]
    config.write_text(json.dumps({"chat_template": named}))
    assert chat_template(tmp_path) == QWEN_25
    (tmp_path / "chat_template.jinja").write_text("<think>")
    assert parsers_of(tmp_path) == ["--reasoning-parser", "auto"]


def test_thoughts_whose_end_is_several_tokens_stay_in_the_text(tmp_path: Path) -> None:
    """SGLang does not start with a parser for them."""
    (tmp_path / "chat_template.jinja").write_text("{{ '<think>' }}")
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text(json.dumps({"added_tokens": [], "model": {"vocab": {"think": 7}}}))
    assert parsers_of(tmp_path) == []
    tokenizer.write_text(json.dumps({"added_tokens": [{"id": 9, "content": "</think>"}]}))
    assert parsers_of(tmp_path) == ["--reasoning-parser", "auto"]
    tokenizer.write_text(json.dumps({"added_tokens": []}))
    (tmp_path / "chat_template.jinja").write_text("{{ '<|channel|>' }}")
    assert parsers_of(tmp_path) == ["--reasoning-parser", "auto"], "other marks"
