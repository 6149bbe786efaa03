"""What SGLang must be told of a model's family: how it writes tool calls and its reasoning.

SGLang has a parser for each notation and finds many by itself (`auto`). Others it knows and does
not find: they are told here by marks in the chat template. A template that shows no tools to its
model gets no parser: the service tells such a model of its tools in words (`api.tool_prompt`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

_TEMPLATES: Final = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")

# What SGLang 0.5.16 finds by itself is left to it: templates that switch thinking, or that hold a
# notation with marks of its own.
_FOUND_BY_SGLANG: Final = re.compile(
    r"enable_thinking|thinking is|<function=|<\|channel|<minimax:|\]<\]minimax\[|<mm:think>"
    r"|DSML|<\|tool_call_start\|>|<arg_key>|<tool_sep>|<steptml:|<function\s+name="
)
_TOOL_PARSERS: Final = (
    (re.compile(r"<｜tool▁calls▁begin｜>"), "deepseekv3"),
    (re.compile(r"<tool_call>.*<function-name>", re.DOTALL), "qwen"),
    (re.compile(r"<tool_call>"), "hermes"),
    (re.compile(r"\[TOOL_CALLS\]"), "mistral"),
    (re.compile(r"<\|python_tag\|>"), "llama3"),
    (re.compile(r"Environment: ipython"), "llama3"),
)
_SHOWS_TOOLS: Final = re.compile(r"\btools\b")
_THINKS_IN_TAGS: Final = re.compile(r"</?think>")
_MAY_REASON: Final = re.compile(r"think|reasoning|<\|?channel|<\|inner_prefix", re.IGNORECASE)


def parsers_of(model_dir: Path) -> list[str]:
    """Arguments for SGLang: the parsers of a model's family, none where it needs none."""
    template = chat_template(model_dir)
    argv = []
    tool_calls = tool_call_parser(template)
    if tool_calls:
        argv += ["--tool-call-parser", tool_calls]
    if _MAY_REASON.search(template) and _end_is_a_token(model_dir, template):
        argv += ["--reasoning-parser", "auto"]
    return argv


def tool_call_parser(template: str) -> str:
    """SGLang's name for the notation a template teaches; `auto` where it finds it; or empty."""
    if not _SHOWS_TOOLS.search(template):
        return ""
    if _FOUND_BY_SGLANG.search(template):
        return "auto"
    return next((name for mark, name in _TOOL_PARSERS if mark.search(template)), "auto")


def chat_template(model_dir: Path) -> str:
    """The chat template of a model folder; empty without one."""
    for name in _TEMPLATES:
        file = model_dir / name
        if not file.is_file():
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        found = text if file.suffix == ".jinja" else _template_in(text)
        if found:
            return found
    return ""


def _end_is_a_token(model_dir: Path, template: str) -> bool:
    """Whether the tag that ends thoughts is one token; else SGLang does not start with a parser."""
    tokenizer = model_dir / "tokenizer.json"
    if not (_THINKS_IN_TAGS.search(template) and tokenizer.is_file()):
        return True
    return '"</think>"' in tokenizer.read_text(encoding="utf-8", errors="replace")


def _template_in(text: str) -> str:
    """The template in a JSON file: a string, or the first of several that have names."""
    try:
        found: Any = json.loads(text)
    except json.JSONDecodeError:
        return ""
    template = found.get("chat_template") if isinstance(found, dict) else None
    if isinstance(template, list):
        by_name = {one.get("name"): one.get("template") for one in template}
        template = by_name.get("tool_use") or next(iter(by_name.values()), "")
    return template if isinstance(template, str) else ""
