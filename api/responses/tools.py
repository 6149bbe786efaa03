"""Tools of a response: which of them the model gets, under which names, and what is skipped.

    {"type": "function", "name": "f"}                          f
    {"type": "namespace", "name": "crm", "tools": [f, g]}      crm__f, crm__g; calls say both parts
    {"type": "web_search"}, "custom", "local_shell", …         skipped, and the response says so

A client such as Codex offers all of its tools and forces none: it works with those that are served.
A tool that is forced and cannot be served is refused (`request`). Items of a history that only such
tools make are skipped alike. The tools of `additional_tools` items join those of the body.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

Tool = Mapping[str, Any]

MAX_NAME_CHARS: Final = 64
ADDITIONAL_TOOLS: Final = "additional_tools"
NAMESPACE: Final = "namespace"

SKIPPED_TOOLS: Final = frozenset({
    "apply_patch", "code_interpreter", "computer", "computer_use_preview", "custom", "file_search",
    "image_generation", "local_shell", "mcp", "programmatic_tool_calling", "shell", "tool_search",
    "web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11",
})  # fmt: skip
"""Kinds of tools that OpenAI runs, or whose calls are no functions."""

SKIPPED_ITEMS: Final = frozenset({
    "apply_patch_call", "apply_patch_call_output", "code_interpreter_call", "compaction",
    "compaction_trigger", "computer_call", "computer_call_output", "configuration_update",
    "custom_tool_call",
    "custom_tool_call_output", "file_search_call", "image_generation_call", "local_shell_call",
    "local_shell_call_output", "mcp_approval_request", "mcp_approval_response", "mcp_call",
    "mcp_list_tools", "program", "program_output", "shell_call", "shell_call_output",
    "tool_search_call", "tool_search_output", "web_search_call",
})  # fmt: skip
"""Kinds of items that nothing here makes, and no model here can read."""


def with_additional_tools(body: dict[str, Any]) -> dict[str, Any]:
    """The body with the tools of its `additional_tools` items among its own, and without those.

    What has a wrong shape is left for the checks.
    """
    items, tools = body.get("input"), body.get("tools") or []
    if type(items) is not list or type(tools) is not list:
        return body
    more = [item for item in items if _adds_tools(item)]
    if not more:
        return body
    rest = [item for item in items if not _adds_tools(item)]
    return {**body, "input": rest, "tools": [*tools, *(one for it in more for one in it["tools"])]}


def _adds_tools(item: Any) -> bool:
    return (
        type(item) is dict
        and item.get("type") == ADDITIONAL_TOOLS
        and type(item.get("tools")) is list
    )


def functions(body: Mapping[str, Any]) -> Iterator[tuple[str, Tool, str | None]]:
    """The functions of checked tools: the name a model gets, the function, and its namespace."""
    for tool in body.get("tools") or ():
        if tool["type"] == "function":
            yield tool["name"], tool, None
        elif tool["type"] == NAMESPACE:
            for one in tool["tools"]:
                if one["type"] == "function":
                    yield flat_name(one["name"], tool["name"]), one, tool["name"]


def function_paths(body: Mapping[str, Any]) -> dict[str, str]:
    """Where each function lies in a checked body, by the name that a model gets."""
    found: dict[str, str] = {}
    for place, tool in enumerate(body.get("tools") or ()):
        if tool["type"] == "function":
            found[tool["name"]] = f"tools[{place}]"
        elif tool["type"] == NAMESPACE:
            for inner, one in enumerate(tool["tools"]):
                if one["type"] == "function":
                    flat = flat_name(one["name"], tool["name"])
                    found[flat] = f"tools[{place}].tools[{inner}]"
    return found


def flat_name(name: str, namespace: str | None) -> str:
    """The name a model gets for a function; one that is too long ends with digits of its own."""
    if not namespace:
        return name
    whole = f"{namespace.removesuffix('__')}__{name}"
    if len(whole) <= MAX_NAME_CHARS:
        return whole
    digits = hashlib.blake2b(whole.encode(), digest_size=4).hexdigest()
    return f"{whole[: MAX_NAME_CHARS - len(digits) - 1]}_{digits}"


def called(body: Mapping[str, Any], name: str) -> dict[str, str]:
    """What a call says of its function: its name, and its namespace if it has one."""
    for flat, tool, namespace in functions(body):
        if flat == name and namespace is not None:
            return {"name": tool["name"], "namespace": namespace}
    return {"name": name}


def warnings_of(body: Mapping[str, Any]) -> list[dict[str, str]]:
    """What was skipped of a checked body, one warning for each kind."""
    tools = [*(body.get("tools") or ())]
    tools += [one for tool in tools if tool["type"] == NAMESPACE for one in tool["tools"]]
    kinds = dict.fromkeys(tool["type"] for tool in tools if tool["type"] in SKIPPED_TOOLS)
    items = body.get("input")
    own = items if isinstance(items, list) else []
    skipped = dict.fromkeys(item["type"] for item in own if item.get("type") in SKIPPED_ITEMS)
    return [
        *(_warning("tools", f"Tools of type '{kind}'") for kind in kinds),
        *(_warning("input", f"Items of type '{kind}'") for kind in skipped),
    ]


def _warning(param: str, what: str) -> dict[str, str]:
    message = f"{what} are not served here, and were skipped."
    return {"code": "skipped", "param": param, "message": message}
