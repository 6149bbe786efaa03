"""What the fake engine answers, told by the prompt itself.

A test on the far side of a socket can only reach the fake engine through a request. So the last
message (or the prompt) may hold orders, words of the form `fake:NAME=VALUE`:

    fake:text=Paris       the answer (underscores are blanks)
    fake:call=NAME        the answer is a call of that function, as the prompt for tools asks for
    fake:arguments={...}  the arguments of that call, as JSON (underscores are blanks)
    fake:tokens=40        the answer's length in tokens
    fake:width=4000       each token's length in characters, at least
    fake:token_ms=20      pause before each token
    fake:clock=1          each token is the instant at which it was made, in ns (monotonic)
    fake:status=503       answer with this HTTP status
    fake:finish=abort     finish reason of the answer
    fake:die_after=3      break the connection after this many tokens
    fake:fail_after=3     an error event after this many tokens

Without orders it answers numbers: "1 2 3 …", one token each. Where the caller forces a tool call
it answers as SGLang without a tool-call parser does: a list of calls, as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from engine_adapter.client.base import CHAT_PATH, EMBEDDINGS_PATH

DEFAULT_TOKENS = 8
_USUAL_ARGUMENTS = '{"city": "a }] b"}'
"""They hold what could end a call."""
_WORD = re.compile(r"[^ \t\r\n]+")  # other blanks belong to a word: answers may hold any


@dataclass(frozen=True)
class Numbers(Sequence[str]):
    """The tokens "1", " 2", " 3"…, each made when it is asked for: a long answer costs no memory.

    Attributes:
        num: How many there are.
        width: Characters that each has at least.
    """

    num: int
    width: int = 0

    def __len__(self) -> int:
        return self.num

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...

    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        found = range(1, self.num + 1)[index]
        return tuple(map(self._token, found)) if isinstance(found, range) else self._token(found)

    def _token(self, number: int) -> str:
        return f"{'' if number == 1 else ' '}{number:>{self.width}}"


@dataclass(frozen=True)
class Script:
    """One answer of the fake engine, token by token."""

    tokens: Sequence[str]
    finish: str
    prompt_tokens: int
    token_s: float
    status: int = 200
    die_after: int | None = None
    fail_after: int | None = None
    request_class: str = "online"
    clock: bool = False

    @property
    def text(self) -> str:
        """The whole answer."""
        return "".join(self.tokens)


def prompt_text(path: str, body: Mapping[str, Any]) -> str:
    """The whole prompt as text."""
    if path != CHAT_PATH:
        prompt = body.get("input" if path == EMBEDDINGS_PATH else "prompt", "")
        return prompt if isinstance(prompt, str) else " ".join(str(token) for token in prompt)
    parts: list[str] = []
    for message in body.get("messages", ()):
        content = message.get("content") or ""
        if isinstance(content, list):
            content = " ".join(part.get("text", "") for part in content)
        parts.append(content)
    return "\n".join(parts)


def script_for(path: str, body: Mapping[str, Any], token_s: float) -> Script:
    """The answer to a request."""
    prompt = prompt_text(path, body)
    words = _WORD.findall(prompt)
    orders = dict(
        word.removeprefix("fake:").split("=", 1)
        for word in words
        if word.startswith("fake:") and "=" in word
    )
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    answer: Sequence[str]
    if "text" in orders:
        answer = _tokens_of(orders["text"].replace("_", " "))
    elif "call" in orders:
        arguments = orders.get("arguments", _USUAL_ARGUMENTS).replace("_", " ")
        answer = _tokens_of(_ordered_call(orders["call"], arguments, body))
    elif path == CHAT_PATH and _is_forced(body):
        answer = _tokens_of(_forced_calls(body))
    else:
        usual = 1 if path == EMBEDDINGS_PATH else DEFAULT_TOKENS
        wanted = int(orders.get("tokens", limit or usual))
        answer = Numbers(wanted, int(orders.get("width", 0)))
    cut = limit is not None and len(answer) > limit
    finish = "length" if cut or (limit is not None and len(answer) == limit) else "stop"
    return Script(
        tokens=answer[:limit] if cut else answer,
        finish=orders.get("finish", finish),
        prompt_tokens=max(1, len(words)),
        token_s=float(orders["token_ms"]) / 1000 if "token_ms" in orders else token_s,
        status=int(orders.get("status", 200)),
        die_after=int(orders["die_after"]) if "die_after" in orders else None,
        fail_after=int(orders["fail_after"]) if "fail_after" in orders else None,
        request_class=_class_word(body),
        clock="clock" in orders,
    )


def _class_word(body: Mapping[str, Any]) -> str:
    """The class the service gave the request (engine_adapter/client/fields.py)."""
    ours = (body.get("custom_params") or {}).get("coserve") or {}
    return str(ours.get("class", "online"))


def _parameters(function: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = (function.get("parameters") or {}).get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _forced_calls(body: Mapping[str, Any]) -> str:
    """One call of each function that may be called; each of its parameters is a number in words."""
    functions = [tool["function"] for tool in body.get("tools") or ()]
    choice = body["tool_choice"]
    if isinstance(choice, Mapping):
        functions = [one for one in functions if one["name"] == choice["function"]["name"]]
    elif body.get("parallel_tool_calls") is False:
        functions = functions[:1]
    calls = [
        {
            "name": function["name"],
            "parameters": {name: f"number {i}" for i, name in enumerate(_parameters(function))},
        }
        for function in functions
    ]
    # SGLang's grammar has a blank after each separator (--constrained-json-disable-any-whitespace).
    return json.dumps(calls, ensure_ascii=False)


def _has_form(body: Mapping[str, Any]) -> bool:
    """Whether the grammar says: calls, or a form (`api/tool_prompt.py`)."""
    grammar = (body.get("response_format") or {}).get("format") or {}
    return bool(grammar.get("type") == "or")


def _is_forced(body: Mapping[str, Any]) -> bool:
    return body.get("tool_choice") not in (None, "none", "auto")


def _ordered_call(name: str, arguments: str, body: Mapping[str, Any]) -> str:
    """A call; words before it unless it stands alone."""
    if _is_forced(body):
        return f'[{{"name": {json.dumps(name)}, "parameters": {arguments}}}]'
    call = f'{{"name": {json.dumps(name)}, "arguments": {arguments}}}'
    return f"{'' if _has_form(body) else 'I look. '}<tool_call>\n{call}\n</tool_call>"


def _tokens_of(text: str) -> tuple[str, ...]:
    first, *rest = text.split(" ")
    return (first, *(f" {word}" for word in rest))
