"""Fields that are not offered: those of OpenAI and of engines by name, and names nobody knows.

A field is never ignored: it has a rule, or stands here with what to use instead, or is unknown.
docs/engine-fields.md has the same tables. One that is set to nothing (null, false, an empty text,
list or object) is not asked for; an unknown one only where it is null.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, Final

from api.errors import InvalidRequest

_MAX_NAME_CHARS: Final = 64
_LIKE: Final = 0.7
"""How like two names must be for a hint: `input` and `min_p` are at 0.6."""

_FORM: Final = "use 'response_format'"
_GRAMMAR: Final = "use 'ebnf'"
_PENALTY: Final = "use 'frequency_penalty' or 'repetition_penalty'"
_BIAS: Final = "use 'logit_bias'"
_PROMPT_PROBS: Final = "use 'echo' and 'logprobs' of /v1/completions"
_BEAMS: Final = "use 'n' and choose"
_OWN: Final = "the service sets it by itself"
_OPERATOR: Final = "it is a choice of the operator's"
_NONE: Final = "there is nothing to use instead"
_OWN_SEED: Final = "use 'seed'"
_OWN_ID: Final = "replies have an id that the service makes"
_TEXT_ONLY: Final = "models here answer with text"

REFUSED_FIELDS: Final[Mapping[str, str]] = {
    # Forms of the answer
    "guided_decoding_backend": _OPERATOR,
    "guided_whitespace_pattern": _OPERATOR,
    "structural_tag": _FORM,
    "json_schema": _FORM,
    "grammar": _GRAMMAR,
    "grammar_type": _GRAMMAR,
    "stop_regex": "use 'stop'",
    "bad_words": _BIAS,
    "allowed_token_ids": _BIAS,
    "include_stop_str_in_output": "the stop text is known: append it",
    "no_stop_trim": "the stop text is known: append it",
    # Sampling
    "use_beam_search": _BEAMS,
    "num_beams": _BEAMS,
    "length_penalty": _BEAMS,
    "early_stopping": _BEAMS,
    "typical_p": "use 'top_p' or 'min_p'",
    "mirostat": "use 'temperature'",
    "dynatemp_range": "use 'temperature'",
    "mirostat_tau": "use 'temperature'",
    "mirostat_eta": "use 'temperature'",
    "dry_multiplier": _PENALTY,
    "dry_base": _PENALTY,
    "repeat_penalty": "use 'repetition_penalty'",
    "tfs_z": "use 'top_p' or 'min_p'",
    "top_a": "use 'top_p' or 'min_p'",
    "xtc_probability": "use 'top_p' or 'min_p'",
    "xtc_threshold": "use 'top_p' or 'min_p'",
    "samplers": "use 'top_k', 'top_p' and 'min_p'",
    "stop_sequences": "use 'stop'",
    "custom_logit_processor": _BIAS,
    "logits_processors": _BIAS,
    "sampling_seed": _OWN_SEED,
    "random_seed": _OWN_SEED,
    "sampling_params": "put each of its fields into the body",
    "max_new_tokens": "use 'max_completion_tokens', or 'max_tokens' of /v1/completions",
    "n_predict": "use 'max_completion_tokens', or 'max_tokens' of /v1/completions",
    "prediction": "leave it out: it would not change the answer",
    # Prompts
    "chat_template": "write the prompt yourself, for /v1/completions",
    "documents": "put them into a message",
    "truncate_prompt_tokens": "shorten the prompt",
    "input_ids": "use /v1/completions with token ids as 'prompt'",
    "input_embeds": _NONE,
    "prompt_embeds": _NONE,
    "embed_overrides": _NONE,
    "embed_override_token_id": _NONE,
    "mm_processor_kwargs": _TEXT_ONLY,
    "images_config": _TEXT_ONLY,
    "image_data": _TEXT_ONLY,
    "max_dynamic_patch": _OPERATOR,
    "min_dynamic_patch": _OPERATOR,
    "use_audio_in_video": _TEXT_ONLY,
    "video_config": _TEXT_ONLY,
    "task": "say it in a message",
    "web_search_options": "give the model a tool that searches",
    "audio": _TEXT_ONLY,
    "image": "send images as parts of messages",
    "moderation": "no moderation model is served here",
    "extra_body": "it is a client's word: put each of its fields into the body",
    # What comes back
    "prompt_logprobs": _PROMPT_PROBS,
    "logprob_start_len": _PROMPT_PROBS,
    "return_logprob": "use 'logprobs'",
    "n_probs": "use 'logprobs'",
    "return_tokens_as_token_ids": _NONE,
    "return_token_ids": _NONE,
    "return_hidden_states": _NONE,
    "return_routed_experts": _NONE,
    "routed_experts_start_len": _NONE,
    "return_prompt_token_ids": _NONE,
    "return_meta_info": _NONE,
    "return_input_ids_in_sglext": _NONE,
    "return_output_ids_in_sglext": _NONE,
    "return_sampling_mask": _NONE,
    "return_spec_tokens_details": _NONE,
    "return_flat_raw_output_top_logprobs": "use 'logprobs'",
    "return_flat_raw_top_logprobs_b64": "use 'logprobs'",
    "sampling_logprobs_mode": "use 'logprobs'",
    "return_cached_tokens_details": "usage says how many prompt tokens were cached",
    # The engine's own
    "lora_path": _OPERATOR,
    "lora_request": _OPERATOR,
    "watermark": _OPERATOR,
    "custom_params": _OWN,
    "session_params": "send the whole conversation: its beginning is cached",
    "session_id": "send the whole conversation: its beginning is cached",
    "kv_transfer_params": _OWN,
    "vllm_xargs": _OWN,
    # Whose a request is, and when and where it runs
    "priority": "use 'service_tier'",
    "rid": _OWN_ID,
    "request_id": _OWN_ID,
    "custom_labels": "use 'metadata'",
    "cache_salt": _NONE,
    "extra_key": _NONE,
    "data_parallel_rank": _OWN,
    "routed_dp_rank": _OWN,
    "disagg_prefill_dp_rank": _OWN,
    "bootstrap_host": _OWN,
    "bootstrap_port": _OWN,
    "bootstrap_room": _OWN,
}

_KEPT: Final = "the beginnings of prompts are kept as long as there is room"

TAKEN_FIELDS: Final[Mapping[str, str]] = {
    "prompt_cache_retention": _KEPT,
    "prompt_cache_options": _KEPT,
    "client_metadata": "it tells a server of the client",
    "stream_reasoning": "reasoning is streamed as it comes",
}
"""Fields that clients send and that change nothing of an answer, and why."""

EMPTY: Final[tuple[Any, ...]] = (None, False, "", [], {})
"""Values by which a field is not asked for."""


def refuse_fields(
    body: Mapping[str, Any], served: Collection[str], names: Mapping[str, str] = {}
) -> None:
    """Refuse the first field that is set and not served, or that nobody knows.

    Args:
        body: Of a request.
        served: The names that have rules.
        names: What is called otherwise at this endpoint: the name elsewhere to the one here.

    Raises:
        InvalidRequest: With the field's name as `param`.
    """
    for name in [name for name in body if name not in served]:
        if name in REFUSED_FIELDS:
            if body[name] not in EMPTY:
                raise InvalidRequest(
                    f"'{name}' is not supported by this service: {REFUSED_FIELDS[name]}.",
                    param=name,
                    code="unsupported_parameter",
                )
        elif name not in TAKEN_FIELDS and body[name] is not None:
            raise unknown_field(name, served, names)


def unknown_field(
    name: str, served: Collection[str], names: Mapping[str, str] = {}, *, at: str = ""
) -> InvalidRequest:
    """The error for a name that nobody knows, with the nearest one that is served.

    `at` is the path of the object that has it; empty for the body.
    """
    name = name[:_MAX_NAME_CHARS]
    near = [names[name]] if name in names else get_close_matches(name.lower(), served, 1, _LIKE)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    path = f"{at}.{name}" if at else name
    return InvalidRequest(
        f"Unrecognized request argument supplied: {path}.{hint}",
        param=path,
        code="unknown_parameter",
    )
