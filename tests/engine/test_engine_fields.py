"""Every field that the installed SGLang declares is honoured, refused by name, or ours."""

from __future__ import annotations

import json

from engine_adapter.wire.fields import CHAT_FIELDS, COMPLETION_FIELDS
from engine_adapter.wire.refused_fields import REFUSED_FIELDS
from tests.engine.engine_scripts import run_code

# What the service itself does for the caller, or checks and takes out.
DONE_HERE = {"n", "best_of", "stream", "stream_options", "suffix", "user"}
# Whose a request is, and when and where it runs: dropped.
OURS = {
    "rid", "priority", "bootstrap_host", "bootstrap_port", "bootstrap_room", "cache_salt",
    "custom_labels", "data_parallel_rank", "disagg_prefill_dp_rank", "extra_key", "routed_dp_rank",
}  # fmt: skip
# How pieces are cut, not what they say.
HARMLESS = {"stream_reasoning"}

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
    assert declared - honoured - REFUSED_FIELDS.keys() - DONE_HERE - OURS - HARMLESS == set()
