"""Numbers of a request that become an index or a size in an engine, and what bounds them.

An index beyond a table ends an engine: SGLang looks token 49,152 of a vocabulary of 49,152 up, and
the exception takes every other request along. So each such number is checked three times:

    at the gateway      before a request is sent     `check_numbers`, by what engines report
    at a batch's check  before a row exists          the same, by what engines were seen to report
    in the engine       each request alone           `sglang.refusals`, by the model itself

Where nothing is known of a model yet, the bounds of `ANY_MODEL` hold: no model is larger.
`NUMBERS` is the whole table; a test compares it with the fields that the installed SGLang has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from api.errors import ContextLengthExceeded, InvalidRequest
from api.rules import MAX_TOKEN_ID, wrong


class ModelSizes(NamedTuple):
    """What an engine says of its model; 0 where it does not say."""

    vocab_size: int = 0
    context_tokens: int = 0
    hidden_size: int = 0


UNKNOWN: Final = ModelSizes()
ANY_MODEL: Final = ModelSizes(MAX_TOKEN_ID + 1, 1 << 31, 1 << 16)


def largest_sizes(
    told: Mapping[str, Iterable[tuple[int, int, int]]],
) -> dict[str, ModelSizes]:
    """By model, the largest that one of its engines told: no engine could do more."""
    return {model: ModelSizes(*map(max, *sizes, UNKNOWN)) for model, sizes in told.items()}


@dataclass(frozen=True)
class Number:
    """One number of an engine's request.

    Attributes:
        engine: Its name in SGLang's `SamplingParams`, `GenerateReqInput` or `EmbeddingReqInput`.
        fields: What callers set it with, over all endpoints; empty where none can.
        bound: What it must be below, at most, or among.
        since: The first release of SGLang that has it, where not all that are served do.
    """

    engine: str
    fields: tuple[str, ...]
    bound: str
    since: str = ""


VOCABULARY: Final = "below the vocabulary's size"
CONTEXT: Final = "the context's length at most"
HIDDEN: Final = "the hidden size at most"
FIXED: Final = "a fixed range"
OURS: Final = "set by the service"
NOT_OFFERED: Final = "never sent"

NUMBERS: Final = (
    Number("input_ids", ("prompt", "input"), VOCABULARY),
    Number("stop_token_ids", ("stop_token_ids",), VOCABULARY),
    Number("logit_bias", ("logit_bias",), VOCABULARY),
    Number("top_logprobs_num", ("logprobs", "top_logprobs"), VOCABULARY),
    Number("max_new_tokens", ("max_tokens", "max_completion_tokens", "max_output_tokens"), CONTEXT),
    Number("min_new_tokens", ("min_tokens",), "the answer's longest length at most"),
    Number("dimensions", ("dimensions",), HIDDEN),
    Number("top_k", ("top_k",), FIXED),
    Number("temperature", ("temperature",), FIXED),
    Number("top_p", ("top_p",), FIXED),
    Number("min_p", ("min_p",), FIXED),
    Number("frequency_penalty", ("frequency_penalty",), FIXED),
    Number("presence_penalty", ("presence_penalty",), FIXED),
    Number("repetition_penalty", ("repetition_penalty",), FIXED),
    Number("sampling_seed", ("seed",), FIXED),
    Number("n", ("n", "best_of"), OURS),
    Number("priority", ("service_tier",), OURS),
    Number("rid", (), OURS),
    Number("custom_params", (), OURS),
    Number("logprob_start_len", ("echo",), OURS),
    Number("token_ids_logprob", (), NOT_OFFERED),
    Number("stream_interval", (), NOT_OFFERED),
    Number("input_embeds", (), NOT_OFFERED),
    Number("lora_id", (), NOT_OFFERED),
    Number("lora_path", (), NOT_OFFERED),
    Number("session_id", (), NOT_OFFERED),
    Number("session_params", (), NOT_OFFERED),
    Number("bootstrap_port", (), NOT_OFFERED),
    Number("bootstrap_room", (), NOT_OFFERED),
    Number("routed_dp_rank", (), NOT_OFFERED),
    Number("disagg_prefill_dp_rank", (), NOT_OFFERED),
    Number("routed_experts_start_len", (), NOT_OFFERED),
    Number("decode_tp_size", (), NOT_OFFERED),
    Number("max_dynamic_patch", (), NOT_OFFERED),
    Number("min_dynamic_patch", (), NOT_OFFERED),
    Number("image_max_dynamic_patch", (), NOT_OFFERED),
    Number("video_max_dynamic_patch", (), NOT_OFFERED),
    Number("multi_item_delimiter_indices", (), NOT_OFFERED),
    Number("embed_override_token_id", (), NOT_OFFERED),
    Number("received_time", (), NOT_OFFERED),
    Number("num_items_assigned", (), NOT_OFFERED),
    Number("stop_str_max_len", (), NOT_OFFERED),
    Number("stop_regex_max_len", (), NOT_OFFERED),
    Number("beam_width", (), NOT_OFFERED, since="0.5.23"),
    Number("data_parallel_rank", (), NOT_OFFERED, since="0.5.23"),
    Number("decision_layout", (), NOT_OFFERED, since="0.5.23"),
    Number("kv_hints", (), NOT_OFFERED, since="0.5.23"),
    Number("max_thinking_tokens", (), NOT_OFFERED, since="0.5.23"),
    Number("token_indices_to_pool", (), NOT_OFFERED, since="0.5.23"),
)


def check_numbers(body: Mapping[str, Any], sizes: ModelSizes) -> None:
    """Hold a checked body of any endpoint to the sizes of its model.

    Raises:
        InvalidRequest: Naming the first number that is too large.
    """
    vocab_size, context_tokens, hidden_size = (
        told or most for told, most in zip(sizes, ANY_MODEL, strict=True)
    )
    for name, ids in _token_lists(body):
        if (place := outside(ids, vocab_size)) is not None:
            raise no_such_token(f"{name}[{place}]", vocab_size)
        if name != "stop_token_ids" and len(ids) >= context_tokens:
            raise _too_long(name.partition("[")[0], len(ids), context_tokens)
    for key in body.get("logit_bias") or ():
        if int(key) >= vocab_size:
            raise wrong("logit_bias", _IDS_BELOW.format("its keys", vocab_size))
    _at_most(body, ("logprobs", "top_logprobs"), vocab_size, "the model's vocabulary has")
    _at_most(body, ("dimensions",), hidden_size, "the model's vectors have")


def check_lengths(body: Mapping[str, Any], sizes: ModelSizes) -> None:
    """Refuse an answer that the context leaves no room for, whatever the words of the prompt are.

    Only an engine counts words: it says how many tokens fit beside them (`api.engine_errors`). So
    this is for what is judged without one, the line of a batch.

    Raises:
        ContextLengthExceeded: With the most that could fit.
    """
    context_tokens = sizes.context_tokens or ANY_MODEL.context_tokens
    lists = (ids for name, ids in _token_lists(body) if name != "stop_token_ids")
    most = context_tokens - max((len(ids) for ids in lists), default=1)
    for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        value = body.get(name)
        if type(value) is int and value > most:
            raise ContextLengthExceeded(
                f"This model's maximum context length is {context_tokens} tokens, for prompt and "
                f"answer: '{name}' can be at most {most}.",
                param=name,
            )


_IDS_BELOW: Final = "{} must be token ids of the model, below {}"


def no_such_token(name: str, vocab_size: int) -> InvalidRequest:
    """The error for a token that the model does not have."""
    return wrong(name, f"must be a token id of the model, below {vocab_size}")


def outside(ids: Sequence[int], vocab_size: int) -> int | None:
    """The place of the first id that is no token's; None where all are."""
    if not ids or (min(ids) >= 0 and max(ids) < vocab_size):
        return None
    return next(i for i, token in enumerate(ids) if not 0 <= token < vocab_size)


def _token_lists(body: Mapping[str, Any]) -> Iterator[tuple[str, list[int]]]:
    for name in ("prompt", "input", "stop_token_ids"):
        value = body.get(name)
        if type(value) is not list or not value:
            continue
        if type(value[0]) is int:
            yield name, value
        elif type(value[0]) is list:
            for i, ids in enumerate(value):
                yield f"{name}[{i}]", ids


def _at_most(body: Mapping[str, Any], names: tuple[str, ...], most: int, whose: str) -> None:
    for name in names:
        value = body.get(name)
        if type(value) is int and value > most:
            raise wrong(name, f"must be at most {most}, which {whose}")


def _too_long(name: str, num_tokens: int, context_tokens: int) -> ContextLengthExceeded:
    return ContextLengthExceeded(
        f"This model's maximum context length is {context_tokens} tokens. However, "
        f"your prompt resulted in {num_tokens} tokens. Please reduce its length.",
        param=name,
    )
