"""Which request fields travel to the engine, and the private ones that only we set.

SGLang honours fields in the body by which a client could jump the queue, take another request's
id or run code in the scheduler (row C-28). What goes upstream is therefore built from a
list of what is known to be harmless; everything else stays here.

    rid              our fixed-length id
    priority         0 online, -1 flex, -2 offline
    custom_params    {"coserve": {"class": "offline", "deadline_in_s": 3600.0, "batch": "batch_…"}}
    stream_options   usage in every chunk, so that the usage of a cut stream is known
"""

from __future__ import annotations

from engine_adapter.client.base import CHAT_PATH, COMPLETIONS_PATH, EMBEDDINGS_PATH
from engine_adapter.scheduling.request import RequestClass

PRIORITIES: dict[RequestClass, int] = {
    RequestClass.ONLINE: 0,
    RequestClass.FLEX: -1,
    RequestClass.OFFLINE: -2,
}

_SAMPLING = frozenset(
    {
        "model", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "seed", "stop",
        "temperature", "top_p", "top_k", "min_p", "min_tokens", "repetition_penalty", "ignore_eos",
        "stop_token_ids", "skip_special_tokens", "response_format", "regex", "ebnf",
    }
)  # fmt: skip

CHAT_FIELDS = _SAMPLING | {
    "messages", "top_logprobs", "max_tokens", "max_completion_tokens", "tools", "tool_choice",
    "parallel_tool_calls", "reasoning_effort", "chat_template_kwargs", "continue_final_message",
    "separate_reasoning",
}  # fmt: skip

COMPLETION_FIELDS = _SAMPLING | {"prompt", "max_tokens", "echo"}

# The format of the numbers is ours to make: the engine gives floats whatever it is asked for.
EMBEDDING_FIELDS = frozenset({"model", "input", "dimensions"})

FIELDS = {
    CHAT_PATH: CHAT_FIELDS,
    COMPLETIONS_PATH: COMPLETION_FIELDS,
    EMBEDDINGS_PATH: EMBEDDING_FIELDS,
}

STREAM_OPTIONS = {"include_usage": True, "continuous_usage_stats": True}
