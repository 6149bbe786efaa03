"""The fields that the official client sends, as data: `tests/data/openai_fields.json`.

    .venv/bin/python -m tests.openai_fields            which fields of the newest are not known
    .venv/bin/python -m tests.openai_fields --write    the same, and write the data anew

The newest client is installed into an environment of its own, which goes afterwards. A test holds
the data against the rules, and the client that tests are run with against the data.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

DATA: Final = Path(__file__).with_name("data") / "openai_fields.json"
BODIES: Final = {
    "/v1/chat/completions": "chat.completion_create_params.CompletionCreateParamsStreaming",
    "/v1/completions": "completion_create_params.CompletionCreateParamsStreaming",
    "/v1/embeddings": "embedding_create_params.EmbeddingCreateParams",
    "/v1/responses": "responses.response_create_params.ResponseCreateParamsStreaming",
}
_CHAT: Final = "chat.completion_create_params.CompletionCreateParamsBase"
_RESPONSE: Final = "responses.response_create_params.ResponseCreateParamsBase"
WORDS: Final = {
    "chat detail": ("chat.chat_completion_content_part_image_param.ImageURL", "detail"),
    "chat service_tier": (_CHAT, "service_tier"),
    "chat verbosity": (_CHAT, "verbosity"),
    "chat reasoning_effort": (_CHAT, "reasoning_effort"),
    "detail": ("responses.ResponseInputImageParam", "detail"),
    "service_tier": (_RESPONSE, "service_tier"),
    "truncation": (_RESPONSE, "truncation"),
    "include": (_RESPONSE, "include"),
    "effort": ("shared_params.Reasoning", "effort"),
    "summary": ("shared_params.Reasoning", "summary"),
    "purpose": ("FileCreateParams", "purpose"),
}
"""Fields whose values are words: where the client lists them."""
KINDS: Final = {
    "tools": "responses.ToolParam",
    "items": "responses.response_input_param.ResponseInputItemParam",
}
"""Unions of objects that are told apart by their `type`."""
INSTALL_LIMIT_S: Final = 300.0


def installed() -> dict[str, Any]:
    """Version and fields, by endpoint, of the client that this interpreter has."""
    fields = {}
    for path, named in BODIES.items():
        module, _, name = named.rpartition(".")
        params = getattr(importlib.import_module(f"openai.types.{module}"), name)
        fields[path] = sorted(params.__required_keys__ | params.__optional_keys__)
    words = {
        name: _words(get_type_hints(_named(where), include_extras=True)[field])
        for name, (where, field) in WORDS.items()
    }
    kinds = {
        name: sorted({kind for one in _members(_named(where)) for kind in _kind_of(one)})
        for name, where in KINDS.items()
    }
    version = importlib.import_module("openai").__version__
    return {"version": version, "fields": fields, "words": words, "kinds": kinds}


def _named(where: str) -> Any:
    module, _, name = where.rpartition(".")
    return getattr(importlib.import_module(f"openai.types.{module}".rstrip(".")), name)


def _members(kind: Any) -> list[Any]:
    """What is below a union, a list, or a mark such as Required."""
    kind = getattr(kind, "__value__", kind)
    inner = [one for one in get_args(kind) if not isinstance(one, str)]
    return [below for one in inner for below in _members(one)] if inner else [kind]


def _words(kind: Any) -> list[str]:
    kind = getattr(kind, "__value__", kind)
    found = [one for one in get_args(kind) if isinstance(one, str)]
    inner = [one for one in get_args(kind) if not isinstance(one, str)]
    return sorted({*found, *(word for one in inner for word in _words(one))})


def _kind_of(one: Any) -> list[str]:
    hints = get_type_hints(one, include_extras=True) if hasattr(one, "__total__") else {}
    return _words(hints["type"]) if "type" in hints else []


def newest() -> dict[str, Any]:
    """Those of the newest client that there is."""
    from coserve.setup.installer import get_uv
    from coserve.setup.service_env import installer_env

    uv = get_uv(Path(__file__).parents[1])
    argv: list[str | Path] = [
        uv,
        "run",
        "--quiet",
        "--no-project",
        "--isolated",
        "--refresh-package",
        "openai",
    ]
    done = subprocess.run(
        [*argv, "--with", "openai", "python", __file__, "--installed"],
        env=installer_env(), capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def unknown(fields: dict[str, list[str]]) -> list[str]:
    """Which of these fields the rules do not know, with their endpoints."""
    from api.chat_request import check_chat
    from api.completion_request import check_completion
    from api.embedding_request import check_embedding
    from api.errors import InvalidRequest
    from api.mapped_fields import mapped
    from api.responses.request import check_response

    least = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "prompt": "x"}
    given = {
        "/v1/chat/completions": (check_chat, ("model", "messages")),
        "/v1/completions": (check_completion, ("model", "prompt")),
        "/v1/embeddings": (check_embedding, ("model", "input")),
        "/v1/responses": (check_response, ("model", "input")),
    }
    found = []
    for path, names in fields.items():
        check, needed = given[path]
        for name in names:
            body = {name: "x", **{key: least.get(key, "x") for key in needed}}
            try:
                check(mapped(path, body))
            except InvalidRequest as error:
                found += [f"{path} {name}"] if error.code == "unknown_parameter" else []
    return found


def main() -> None:
    if "--installed" in sys.argv:
        print(json.dumps(installed()))
        return
    found = newest()
    if "--write" in sys.argv:
        DATA.write_text(json.dumps(found, indent=1) + "\n")
    left = unknown(found["fields"])
    print(f"openai {found['version']}: {len(left)} unknown fields", *left, sep="\n  ")
    sys.exit(bool(left))


if __name__ == "__main__":
    main()
