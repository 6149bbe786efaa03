"""Which of the Node client's own tests are run, and which are left out, with the reason."""

from __future__ import annotations

import re
from typing import Final

from tests.conformance.suites.sdk_selection import Left

_API: Final = "tests/api-resources"

SELECTED: Final = (
    f"{_API}/responses/responses.test.ts",
    f"{_API}/responses/input-items.test.ts",
    f"{_API}/conversations/conversations.test.ts",
    f"{_API}/conversations/items.test.ts",
    f"{_API}/chat/completions/completions.test.ts",
    f"{_API}/completions.test.ts",
    f"{_API}/embeddings.test.ts",
    f"{_API}/models.test.ts",
    f"{_API}/files.test.ts",
    f"{_API}/batches.test.ts",
)

LEFT: Final[list[Left]] = [
    {
        "tests": [
            "resource responses compact: only required params",
            "resource responses compact: required and optional params",
        ],
        "reason": "contexts are not compacted here: 405",
    },
    {
        "tests": [
            "resource completions retrieve",
            "resource completions update: only required params",
            "resource completions update: required and optional params",
            "resource completions list",
            "resource completions delete",
        ],
        "reason": "stored completions are not served (`store` is accepted and nothing is stored)",
    },
    {
        "tests": ["resource completions create: required and optional params"],
        "reason": "sets audio, functions, modalities, web_search_options, suffix and best_of: 0, "
        "which are refused by name",
    },
    {
        "tests": ["resource models delete"],
        "reason": "models are the operator's: 403",
    },
]


def skip_pattern() -> str:
    """What names the tests left out, as `node --test` wants it."""
    names = "|".join(re.escape(name).replace("/", r"\/") for one in LEFT for name in one["tests"])
    return f"/^({names})$/"
