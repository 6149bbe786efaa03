"""Which of the Python client's own tests are run, and which are left out, with the reason."""

from __future__ import annotations

from typing import Final, TypedDict

_API: Final = "tests/api_resources"

SELECTED: Final = (
    f"{_API}/chat/test_completions.py",
    f"{_API}/test_completions.py",
    f"{_API}/test_embeddings.py",
    f"{_API}/test_responses.py",
    f"{_API}/responses/test_input_items.py",
    f"{_API}/test_conversations.py",
    f"{_API}/conversations/test_items.py",
    f"{_API}/test_models.py",
    f"{_API}/test_files.py",
    f"{_API}/test_batches.py",
    f"{_API}/webhooks",
    "tests/lib/test_webhooks.py",
    "tests/lib/test_webhook_signature.py",
    "tests/lib/test_webhook_endpoint_with_secret.py",
)


class Left(TypedDict):
    """Tests that are not run, and why."""

    tests: list[str]
    reason: str


def _both(file: str, name: str, *tests: str) -> list[str]:
    return [f"{_API}/{file}::Test{kind}{name}::{test}" for kind in ("", "Async") for test in tests]


def _forms(verb: str) -> list[str]:
    return [f"test_{form}_{verb}" for form in ("method", "raw_response", "streaming_response")]


_STORED = [
    *(one for verb in ("retrieve", "update", "list", "delete") for one in _forms(verb)),
    "test_method_list_with_all_params",
]

DESELECTED: Final[list[Left]] = [
    {
        "tests": _both("chat/test_completions.py", "Completions", *_STORED),
        "reason": "stored completions are not served (`store` is accepted and nothing is stored)",
    },
    {
        "tests": _both(
            "chat/test_completions.py",
            "Completions",
            "test_method_create_with_all_params_overload_1",
            "test_method_create_with_all_params_overload_2",
        ),
        "reason": "sets audio, functions, modalities and web_search_options, which are refused by "
        "name, and values that the description forbids",
    },
    {
        "tests": _both(
            "test_completions.py",
            "Completions",
            "test_method_create_with_all_params_overload_1",
            "test_method_create_with_all_params_overload_2",
        ),
        "reason": "sets suffix and best_of: 0, which are refused by name, and a logit_bias whose "
        "key is no token",
    },
    {
        "tests": _both(
            "test_responses.py",
            "Responses",
            "test_method_create_with_all_params_overload_1",
            "test_method_create_with_all_params_overload_2",
        ),
        "reason": "sets prompt, context_management, moderation and access_programs, which are "
        "refused by name, and a conversation beside previous_response_id",
    },
    {
        "tests": _both(
            "test_responses.py",
            "Responses",
            *_forms("compact"),
            "test_method_compact_with_all_params",
        ),
        "reason": "contexts are not compacted here: 405",
    },
    {
        "tests": _both("test_models.py", "Models", *_forms("delete")),
        "reason": "models are the operator's: 403",
    },
    {
        "tests": [
            f"{test}[{client}]"
            for test in _both("test_embeddings.py", "Embeddings", *_forms("create"))
            for client in ("strict", "aiohttp")
        ],
        "reason": "the client itself asks for base64, and its strict validation, which comes "
        "before it decodes, takes numbers alone; they run without strict validation",
    },
]
