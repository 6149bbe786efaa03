"""Log probabilities in SGLang's answers: of every token, each with its own alternatives.

    a streamed chat    an event's tokens all get the first one's alternatives; those of a token that
                       has no text yet, as most parts of a character, are dropped
    a completion       alternatives are a JSON object, where tokens with one text are one

The modules that answer are in one process of an engine: there they are changed, once the manager of
the tokenizer is made. A release whose functions take other parameters than `ANSWERING` answers as it
does by itself, and the log says so: an engine serves without this.
"""

from __future__ import annotations

import functools
import inspect
import logging
import pkgutil
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from engine_adapter.sglang.guards import REPLACEMENT, PartialText

logger = logging.getLogger(__name__)

_OPENAI = "sglang.srt.entrypoints.openai."
ANSWERING: Final[Mapping[str, tuple[str, ...]]] = {
    _OPENAI + "serving_chat.OpenAIServingChat._process_logprobs_tokens": (
        "self", "logprobs", "use_token_index",
    ),
    _OPENAI + "serving_chat.OpenAIServingChat._generate_stream_content": (
        "self", "content", "index", "request", "stream_offsets", "reasoning_parser_dict",
        "parser_dict", "has_tool_calls", "choice_logprobs", "finish_reason_type",
        "continuous_usage_stats", "prompt_tokens", "reasoning_tokens", "completion_tokens",
    ),
    _OPENAI + "serving_completions.to_openai_style_logprobs": (
        "input_token_logprobs", "output_token_logprobs",
        "input_top_logprobs", "output_top_logprobs",
    ),
}  # fmt: skip
"""Functions that are wrapped, and the parameters that they are known with."""

MANAGER: Final = "sglang.srt.managers.tokenizer_manager.TokenizerManager.__init__"


def tell_all(_: object, *__: Any, **___: Any) -> None:
    """After the making of a tokenizer's manager: change the modules that answer."""
    if others := [text for symbol in ANSWERING if (text := _difference(symbol))]:
        logger.warning("coserve: log probabilities are SGLang's own: %s", "; ".join(others))
        return
    from sglang.srt.entrypoints.openai import serving_completions
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat

    chat: Any = OpenAIServingChat
    chat._process_logprobs_tokens = each_its_own(chat._process_logprobs_tokens)
    chat._generate_stream_content = of_all_tokens(chat._generate_stream_content)
    completions: Any = serving_completions
    completions.to_openai_style_logprobs = named(completions.to_openai_style_logprobs)


def _difference(symbol: str) -> str:
    try:
        parameters = tuple(inspect.signature(pkgutil.resolve_name(symbol)).parameters)
    except (ImportError, AttributeError) as error:
        return f"{symbol} is not there ({error})"
    wanted = ANSWERING[symbol]
    return "" if parameters == wanted else f"{symbol} takes {parameters}, expected {wanted}"


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
