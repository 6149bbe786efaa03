"""The last look at numbers that become an index or a size: in the engine, for one request alone.

The gateway and a batch's check hold requests to what engines report (`wire.numbers`). Here the
model itself is asked: whatever comes this far and would reach beyond a table is refused, and the
engine goes on. Tokens of a text are looked at too: a tokenizer may know more of them than the model
has.

    tokenizer's process   before a request is sent on     a ValueError, which is HTTP 400
    scheduler's process   before a request waits          ends with an error, without its numbers
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from api.errors import InvalidRequest
from api.numbers import no_such_token, outside
from api.rules import MAX_INT32, MAX_INT64, MIN_INT64, Rule, integer, repetition_penalty

VALIDATE: Final = "sglang.srt.managers.tokenizer_manager.TokenizerManager._validate_one_request"

RANGES: Final[Mapping[str, tuple[str, Rule]]] = {
    "min_new_tokens": ("min_tokens", integer(0)),
    "max_new_tokens": ("max_tokens", integer(0)),
    "top_k": ("top_k", integer(-1, MAX_INT32)),
    "repetition_penalty": ("repetition_penalty", repetition_penalty),
    "sampling_seed": ("seed", integer(MIN_INT64, MAX_INT64)),
    "n": ("n", integer(1)),
    "stream_interval": ("stream_interval", integer(1)),
    # A request of several beams has rows that no plan knows of.
    "beam_width": ("beam_width", integer(1, 1)),
}
"""Of SGLang's sampling parameters: the caller's name, and what a tensor or a plan can hold."""


def refusal(
    ids: Sequence[int], told: Callable[[str], Any], num_logprobs: int, vocab_size: int
) -> str | None:
    """Why a request cannot be served; None where it can.

    Args:
        ids: Tokens of its prompt; empty where they are no token ids alone.
        told: A sampling parameter by SGLang's name; None where it is not set.
        num_logprobs: Alternatives wanted for each token.
        vocab_size: Of the model.
    """
    try:
        for name, (field, rule) in RANGES.items():
            if (value := told(name)) is not None:
                rule(field, value)
        integer(0, vocab_size)("logprobs", num_logprobs)
    except InvalidRequest as refused:
        return refused.message.rstrip(".")
    if outside(ids, vocab_size) is not None:
        return no_such_token("prompt", vocab_size).message
    stops = [token for token in told("stop_token_ids") or () if token is not None]
    if outside(stops, vocab_size) is not None:
        return no_such_token("stop_token_ids", vocab_size).message
    biased = [int(token) for token in told("logit_bias") or ()]
    if outside(biased, vocab_size) is not None:
        return no_such_token("logit_bias", vocab_size).message
    return None


def refuse_alone(result: Any, manager: Any, obj: Any, input_ids: Sequence[int] | None) -> Any:
    """After SGLang's own checks of a request; what it raises is an answer with status 400.

    Raises:
        ValueError: A number is beyond the model's tables.
    """
    is_plain = obj.input_embeds is None and not obj.contains_mm_input()
    params: Mapping[str, Any] = obj.sampling_params or {}
    why = refusal(
        (input_ids or ()) if is_plain else (),
        params.get,
        getattr(obj, "top_logprobs_num", 0) or 0,
        manager.model_config.vocab_size,
    )
    if why is not None:
        raise ValueError(why)
    return result


def end_alone(req: Any, vocab_size: int) -> None:
    """Have the scheduler answer a request with an error if one of its numbers reaches too far."""
    if req.to_finish is not None:
        return
    is_plain = req.multimodal_inputs is None and req.input_embeds is None
    params = req.sampling_params
    why = refusal(
        req.origin_input_ids if is_plain else (),
        lambda name: getattr(params, name, None),
        req.logprob.top_logprobs_num or 0,
        vocab_size,
    )
    if why is None:
        return
    req.set_finish_with_abort(why)
    params.stop_token_ids = params.logit_bias = params.sampling_seed = None
    params.min_new_tokens, params.top_k, params.max_new_tokens = 0, 1, 1
    params.repetition_penalty = 1.0
    req.logprob.top_logprobs_num = 0


# --- A grammar that lets nothing follow.
#
# SGLang ends such a request with the words it has for an abort by hand, and a reader of those takes
# the engine for lost and tries again. It is the request that cannot be answered.

_NOT_COMPILED: Final = "Failed to compile the grammar: "
NO_WAY_ON: Final = f"{_NOT_COMPILED}no text that ends can satisfy it"
TOO_SLOW: Final = "it is so ambiguous that each token of an answer takes too long"
_NOT_ACCEPTED: Final = "Grammar accept_token failed"


def name_dead_ends() -> None:
    """Have SGLang say of a grammar's dead end that the request is wrong."""
    from sglang.srt.managers.schedule_batch import FINISH_ABORT
    from sglang.srt.managers.scheduler_components import batch_result_processor

    def dead_end(*told: Any) -> Any:
        """Newer releases give a reason of their own, which may be another one than a grammar."""
        if told and not str(told[0]).startswith(_NOT_ACCEPTED):
            return FINISH_ABORT(*told)
        is_slow = TOO_SLOW in str(sys.exc_info()[1])  # all releases make it where they caught it
        why = f"{_NOT_COMPILED}{TOO_SLOW}" if is_slow else NO_WAY_ON
        return FINISH_ABORT(why, HTTPStatus.BAD_REQUEST, "BadRequestError")

    made: Any = batch_result_processor
    made.FINISH_ABORT = dead_end
