from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine_adapter.client.base import CHAT_PATH, COMPLETIONS_PATH
from engine_adapter.client.encoding import engine_fields, private_fields
from engine_adapter.client.fields import CHAT_FIELDS, COMPLETION_FIELDS
from engine_adapter.scheduling.request import RequestClass
from engine_adapter.sglang.live_requests import classify

RID = "a" * 32

# What SGLang's request classes read beyond the OpenAI API and would let a client do harm with.
ENGINE_KNOBS = (
    "priority", "rid", "bootstrap_host", "bootstrap_port", "bootstrap_room", "lora_path",
    "custom_logit_processor", "custom_params", "routed_dp_rank", "disagg_prefill_dp_rank",
    "data_parallel_rank", "session_id", "session_params", "extra_key", "cache_salt", "input_ids",
    "custom_labels", "return_hidden_states", "stop_regex", "conversation_id", "n", "stream",
    "stream_options",
)  # fmt: skip


@pytest.mark.parametrize("knob", ENGINE_KNOBS)
def test_no_engine_knob_of_a_client_travels(knob: str) -> None:
    assert knob not in CHAT_FIELDS
    assert knob not in COMPLETION_FIELDS
    assert engine_fields(CHAT_PATH, {knob: 1}) == engine_fields(COMPLETIONS_PATH, {knob: 1}) == {}


def test_nulls_do_not_travel() -> None:
    assert engine_fields(CHAT_PATH, {"seed": None, "top_p": 0.0}) == {"top_p": 0.0}


def test_the_greatest_effort_in_an_engines_words() -> None:
    assert engine_fields(CHAT_PATH, {"reasoning_effort": "max"}) == {"reasoning_effort": "xhigh"}


@pytest.mark.parametrize("request_class", list(RequestClass))
def test_the_engine_reads_back_the_class_we_send(request_class: RequestClass) -> None:
    fields = private_fields(RID, request_class, 60.0, "batch_1")
    read = classify(fields["priority"], fields.get("custom_params"))
    assert read.request_class is request_class
    if request_class is not RequestClass.ONLINE:
        assert (read.deadline_in_s, read.batch_id) == (60.0, "batch_1")
    assert fields["rid"] == RID


def test_what_engines_add_stands_on_the_page() -> None:
    page = (Path(__file__).parents[4] / "docs" / "engine-fields.md").read_text()
    rows = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert {"top_k", "min_p", "repetition_penalty", "regex", "ebnf"} <= rows & CHAT_FIELDS
