"""Hooks of schemathesis where a real model answers: every generated request asks for a few tokens.

A limit that is no number stays as it was generated: it is to be refused.
"""

from __future__ import annotations

import os
from typing import Any, Final

import schemathesis

MOST: Final = int(os.environ["CONFORMANCE_ANSWER_TOKENS"])
CHOICES: Final = 2
LIMITS: Final = {
    "/v1/chat/completions": ("max_completion_tokens", "max_tokens"),
    "/v1/completions": ("max_tokens",),
    "/v1/responses": ("max_output_tokens",),
}


@schemathesis.hook
def before_call(ctx: Any, case: Any, kwargs: Any) -> None:
    """Bound what one request may cost."""
    body, names = case.body, LIMITS.get(case.operation.path, ())
    if not (names and isinstance(body, dict)):
        return
    if not any(body.get(name) is not None for name in names):
        body[names[0]] = MOST
    for name, most in [*((name, MOST) for name in names), ("n", CHOICES), ("best_of", CHOICES)]:
        if type(body.get(name)) is int and body[name] > most:
            body[name] = most
