"""Every field that the installed SGLang declares is honoured, refused by name, or taken."""

from __future__ import annotations

import json

from engine_adapter.wire.fields import CHAT_FIELDS, COMPLETION_FIELDS
from engine_adapter.wire.refused_fields import REFUSED_FIELDS, TAKEN_FIELDS
from tests.engine.engine_scripts import run_code

# What the service itself does for the caller, or checks and takes out.
DONE_HERE = {"n", "best_of", "stream", "stream_options", "suffix", "user"}
_PRINT = """
import json
from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest, CompletionRequest
print(json.dumps([*ChatCompletionRequest.model_fields, *CompletionRequest.model_fields]))
"""


def test_no_field_of_the_engine_is_ignored() -> None:
    told = run_code(_PRINT)
    assert told.returncode == 0, told.stderr
    declared = set(json.loads(told.stdout.splitlines()[-1]))
    assert declared >= {"rid", "ebnf", "messages", "prompt"}, "these are its requests"
    honoured = CHAT_FIELDS | COMPLETION_FIELDS
    assert declared - honoured - REFUSED_FIELDS.keys() - TAKEN_FIELDS.keys() - DONE_HERE == set()
