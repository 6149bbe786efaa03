"""Log probabilities in SGLang's answers: of every token, each with its own alternatives.

    a streamed chat    an event's tokens all get the first one's alternatives; those of a token that
                       has no text yet, as most parts of a character, are dropped
    a completion       alternatives are a JSON object, where tokens with one text are one

The modules that answer are in one process of an engine. There they are changed once the tokenizer's
manager is made, as far as they are what we know: without it an engine serves, too.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from engine_adapter.sglang.guards import REPLACEMENT, PartialText

logger = logging.getLogger(__name__)

MANAGER: Final = "sglang.srt.managers.tokenizer_manager.TokenizerManager.__init__"


def tell_all(_: object, *__: Any, **___: Any) -> None:
    """After the making of a tokenizer's manager: change the modules that answer."""
    from sglang.srt.entrypoints.openai import serving_completions
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat

    for owner, name, takes, change in (
        (OpenAIServingChat, "_process_logprobs_tokens", "use_token_index", each_its_own),
        (OpenAIServingChat, "_generate_stream_content", "choice_logprobs", of_all_tokens),
        (serving_completions, "to_openai_style_logprobs", "output_top_logprobs", named),
    ):
        known = getattr(owner, name, None)
        if known is None or takes not in inspect.signature(known).parameters:
            logger.warning("coserve: %s is not what it was; log probabilities may lack some", name)
            continue
        setattr(owner, name, change(known))


def each_its_own(process: Callable[..., Any]) -> Callable[..., Any]:
    """SGLang's log probabilities of a chat, by each token's own place."""

    @functools.wraps(process)
    def wrapped(self: Any, logprobs: Any, use_token_index: bool = True) -> Any:
        return process(self, logprobs, use_token_index=True)

    return wrapped


def of_all_tokens(
    generate: Callable[..., AsyncIterator[str]],
) -> Callable[..., AsyncIterator[str]]:
    """A step of a streamed chat: what has no text yet leaves beside none."""

    @functools.wraps(generate)
    async def wrapped(self: Any, **step: Any) -> AsyncIterator[str]:
        nothing_sent = True
        async for chunk in generate(self, **step):
            nothing_sent = False
            yield chunk
        if nothing_sent and step["choice_logprobs"] is not None:
            from sglang.srt.entrypoints.openai.sse_utils import build_sse_content

            yield build_sse_content(
                chunk_id=step["content"]["meta_info"]["id"],
                created=0,  # the service has its own
                model=step["request"].model,
                index=step["index"],
                content="",
                logprobs=step["choice_logprobs"],
            )

    return wrapped


def named(convert: Callable[..., Any]) -> Callable[..., Any]:
    """SGLang's log probabilities of a completion, each token under a name of its own."""

    @functools.wraps(convert)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("tokenizer", None)  # newer ones write parts of characters as Latin-1 with it
        logprobs = convert(*args, **kwargs)
        logprobs.tokens = [token_name(text) for text in logprobs.tokens]
        logprobs.top_logprobs = [listed and once(listed) for listed in logprobs.top_logprobs]
        return logprobs

    return wrapped


def once(listed: Mapping[str, float]) -> dict[str, float]:
    """Alternatives by their names, of which each is there but once."""
    found: dict[str, float] = {}
    for text, logprob in listed.items():
        found.setdefault(token_name(text), logprob)  # the likeliest comes first
    return found


def token_name(text: str) -> str:
    """What a completion calls a token: its text, or `bytes:` and its bytes if it is a part."""
    if isinstance(text, PartialText) and REPLACEMENT in text:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in text.raw)
    return str(text)
