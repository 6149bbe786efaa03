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
from typing import Any, Final

DATA: Final = Path(__file__).with_name("data") / "openai_fields.json"
BODIES: Final = {
    "/v1/chat/completions": "chat.completion_create_params.CompletionCreateParamsStreaming",
    "/v1/completions": "completion_create_params.CompletionCreateParamsStreaming",
    "/v1/embeddings": "embedding_create_params.EmbeddingCreateParams",
    "/v1/responses": "responses.response_create_params.ResponseCreateParamsStreaming",
}
INSTALL_LIMIT_S: Final = 300.0


def installed() -> dict[str, Any]:
    """Version and fields, by endpoint, of the client that this interpreter has."""
    fields = {}
    for path, named in BODIES.items():
        module, _, name = named.rpartition(".")
        params = getattr(importlib.import_module(f"openai.types.{module}"), name)
        fields[path] = sorted(params.__required_keys__ | params.__optional_keys__)
    return {"version": importlib.import_module("openai").__version__, "fields": fields}


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
