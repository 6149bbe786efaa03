"""Every field that the installed SGLang declares is honoured, refused by name, or taken."""

from __future__ import annotations

import json

from api.numbers import NOT_OFFERED, NUMBERS
from api.refused_fields import REFUSED_FIELDS, TAKEN_FIELDS
from engine_adapter.client.fields import CHAT_FIELDS, COMPLETION_FIELDS, EMBEDDING_FIELDS
from engine_adapter.sglang.versions import number
from tests.engine.engine_scripts import run_code

# What the service itself does for the caller, or checks and takes out.
DONE_HERE = {"n", "best_of", "stream", "stream_options", "suffix", "thinking", "user"}
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


_PRINT_NUMBERS = """
import dataclasses, json, re
from importlib.metadata import version
from sglang.srt.managers.io_struct import EmbeddingReqInput, GenerateReqInput
from sglang.srt.sampling.sampling_params import SamplingParams
types = {name: str(kind) for name, kind in SamplingParams.__annotations__.items()}
for request in (GenerateReqInput, EmbeddingReqInput):
    types |= {field.name: str(field.type) for field in dataclasses.fields(request)}
numbers = [name for name, kind in types.items() if re.search("(int|float)[^a-z]*", kind)]
print(json.dumps([version('sglang'), sorted(types), numbers]))
"""


def test_no_number_of_the_engine_is_without_a_bound() -> None:
    told = run_code(_PRINT_NUMBERS)
    assert told.returncode == 0, told.stderr
    release, declared, numbers = json.loads(told.stdout.splitlines()[-1])
    assert set(numbers) >= {"input_ids", "stop_token_ids", "dimensions"}, "these are its numbers"
    tabled = {number.engine for number in NUMBERS}
    assert set(numbers) - tabled == set()
    there = {one.engine for one in NUMBERS if not one.since or number(one.since) <= number(release)}
    assert there - set(declared) == set(), "SGLang has no such fields"
    sent = CHAT_FIELDS | COMPLETION_FIELDS | EMBEDDING_FIELDS
    assert [n.engine for n in NUMBERS if n.bound == NOT_OFFERED and n.engine in sent] == []
