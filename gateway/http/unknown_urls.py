"""What to say of a URL that is not served: what to use instead, or which one was meant.

Only OpenAI's and Anthropic's own URLs have a sentence each; of any other the
nearest that exists is named.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from fastapi import Request

from api.errors import NotFound

_CHAT: Final = "use POST /v1/chat/completions"
INSTEAD: Final = {
    "messages": f"Anthropic's Messages API is not served: {_CHAT}, whose format most clients speak",
    "complete": f"Anthropic's Text Completions API is not served: {_CHAT}",
    "moderations": "no engine here serves a classifier: ask a model, "
    "with 'response_format' for a form of the answer",
    "images": "models here answer with text",
    "audio": "models here answer with text",
    "videos": "models here answer with text",
    "realtime": f"there is no realtime API: {_CHAT} with 'stream'",
    "assistants": f"the Assistants API is not served: {_CHAT} with 'tools'",
    "threads": f"the Assistants API is not served: {_CHAT} with 'tools'",
    "vector_stores": "there is no store of vectors: POST /v1/embeddings makes them",
    "fine_tuning": "models are not trained here",
    "engines": "a model is named in the body of a request, and GET /v1/models lists them",
    "containers": "code is not run here",
    "evals": "there are no evaluations: a batch (POST /v1/batches) answers their prompts",
    "rerank": "there is no reranking: POST /v1/embeddings makes vectors to compare",
    "score": "there is no scoring: POST /v1/completions with 'echo' and 'logprobs' gives "
    "log probabilities",
    "tokenize": "there is no tokenizer: 'usage' counts the tokens of each request",
}
"""The first part of a path below /v1, and what is said of it."""

_MAX_CHARS: Final = 200
_NEAR: Final = 0.7


def unknown_url(request: Request) -> NotFound:
    """The error for a URL that no route has."""
    path = request.url.path
    below = path.removeprefix("/v1").strip("/")
    message = f"Unknown request URL: {request.method} {path[:_MAX_CHARS]}."
    why = INSTEAD.get(below.partition("/")[0])
    if why is not None:
        return NotFound(f"{message} {why[0].upper()}{why[1:]}.", code="unknown_url")
    near = nearest(f"/v1/{below}"[:_MAX_CHARS], request.app.openapi()["paths"])
    return NotFound(message + (f" Did you mean {near}?" if near else ""), code="unknown_url")


def why_not_allowed(request: Request) -> str:
    """A sentence for who asks for what only OpenAI does; empty for any other."""
    below = request.url.path.removeprefix("/v1").strip("/")
    if request.method == "GET" and below in ("chat/completions", "completions"):
        return " Answers are not stored, with or without 'store', so there is no list of them."
    if below == "responses/compact":
        return " Contexts are not compacted here: with 'truncation': 'auto' a long one is cut."
    return ""


def nearest(path: str, routes: Iterable[str]) -> str:
    """The route that was meant, empty if none is near: as long, and each of its words alike."""
    parts = _words(path)
    near = {route: _likeness(parts, _words(route)) for route in routes}
    best = max(near, key=near.__getitem__, default="")
    return best if near.get(best, 0) >= _NEAR else ""


def _words(path: str) -> list[str]:
    """The parts of a path below /v1, however often that stands there."""
    parts = path.strip("/").split("/")
    while parts[0] == "v1" and len(parts) > 1:
        del parts[0]
    return parts


def _likeness(parts: list[str], route: list[str]) -> float:
    """How much like a route's least like word the path's is; whatever fills a variable is alike."""
    if len(parts) != len(route):
        return 0
    words = [pair for pair in zip(parts, route, strict=True) if not pair[1].startswith("{")]
    return min((difflib.SequenceMatcher(None, *pair).ratio() for pair in words), default=0)
