"""What to say of a URL that is not served: what to use instead, or which one was meant.

Only OpenAI's and Anthropic's own URLs have a sentence each; of any other the
nearest that exists is named.
"""

from __future__ import annotations

import difflib
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
    "containers": "code is not run here",
    "evals": "there are no evaluations: a batch (POST /v1/batches) answers their prompts",
    "rerank": "there is no reranking: POST /v1/embeddings makes vectors to compare",
    "score": "there is no scoring: POST /v1/completions with 'echo' and 'logprobs' gives "
    "log probabilities",
    "tokenize": "there is no tokenizer: 'usage' counts the tokens of each request",
}
"""The first part of a path below /v1, and what is said of it."""

_MAX_CHARS: Final = 200
_NEAR: Final = 0.75


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


def nearest(path: str, routes: dict[str, object]) -> str:
    """The route that a path looks most like, empty if none does."""
    parts = path.split("/")
    by_look = {_filled(route, parts): route for route in routes}
    found = difflib.get_close_matches(path, by_look, n=1, cutoff=_NEAR)
    return by_look[found[0]] if found else ""


def _filled(route: str, parts: list[str]) -> str:
    """A route with the path's own words in the place of its variables."""
    pieces = route.split("/")
    for i, piece in enumerate(pieces):
        if piece.startswith("{") and i < len(parts):
            pieces[i] = parts[i]
    return "/".join(pieces)
