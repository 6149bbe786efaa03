"""The official client against the whole stack: a streamed chat and a batch of real lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

ROOT = Path(__file__).parents[2]
REAL_LINES = ROOT.parent / "shared/workloads/batch/gsm8k_test_800.jsonl"
OWN_LINES = ROOT / "tests/data/word_problems_20.jsonl"
NUM_LINES = 10
QUESTION = "What is the capital of France? Answer in one sentence."
TERMINAL = {"completed", "failed", "expired", "cancelled"}


@pytest.fixture
def client(stack: Any) -> Any:
    with openai.OpenAI(base_url=stack.base_url, api_key=stack.api_key, max_retries=0) as client:
        yield client


def _input_lines(model: str) -> list[dict[str, Any]]:
    source = REAL_LINES if REAL_LINES.exists() else OWN_LINES
    lines = [json.loads(line) for line in source.read_text().splitlines()[:NUM_LINES]]
    for line in lines:
        line["body"] |= {"model": model, "max_tokens": 24, "temperature": 0}
        line["body"].pop("max_completion_tokens", None)
    return lines


def test_a_streamed_chat_is_right(client: openai.OpenAI) -> None:
    model = client.models.list().data[0].id
    text, finish_reasons, usage = "", [], None
    for chunk in client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": QUESTION}],
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            if choice.finish_reason:
                finish_reasons.append(choice.finish_reason)
    assert "Paris" in text
    assert finish_reasons == ["stop"]
    assert usage is not None
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_structured_answer_is_valid_and_the_engine_survives_it(client: openai.OpenAI) -> None:
    model = client.models.list().data[0].id
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    }
    reply = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Name the capital of France as JSON."}],
        temperature=0,
        max_tokens=64,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "city", "schema": schema, "strict": True},
        },
    )
    assert set(json.loads(reply.choices[0].message.content or "")) == {"city"}
    assert client.completions.create(model=model, prompt="One, two,", max_tokens=4).choices


def test_a_batch_of_real_lines_completes(client: openai.OpenAI, tmp_path: Path) -> None:
    model = client.models.list().data[0].id
    lines = _input_lines(model)
    path = tmp_path / "input.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with path.open("rb") as body:
        uploaded = client.files.create(file=body, purpose="batch")
    batch = client.batches.create(
        input_file_id=uploaded.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    assert batch.status == "validating"
    batch = _wait(client, batch.id)
    assert batch.status == "completed", batch
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {
        "total": NUM_LINES,
        "completed": NUM_LINES,
        "failed": 0,
    }
    assert batch.error_file_id is None
    assert batch.output_file_id is not None
    results = [json.loads(x) for x in client.files.content(batch.output_file_id).text.splitlines()]
    assert sorted(r["custom_id"] for r in results) == sorted(x["custom_id"] for x in lines)
    for result in results:
        assert result["error"] is None
        assert result["response"]["status_code"] == 200
        assert result["response"]["body"]["choices"][0]["message"]["content"]
    usages = [r["response"]["body"]["usage"] for r in results]
    assert batch.usage is not None
    assert batch.usage.input_tokens == sum(u["prompt_tokens"] for u in usages)
    assert batch.usage.output_tokens == sum(u["completion_tokens"] for u in usages)


def test_bad_lines_fail_the_batch_with_every_error(client: openai.OpenAI, tmp_path: Path) -> None:
    model = client.models.list().data[0].id
    good = _input_lines(model)[0]
    bad = ["not json", json.dumps(good | {"url": "/v1/embeddings"}), json.dumps({"custom_id": "x"})]
    body = "\n".join([json.dumps(good), *bad]).encode()
    uploaded = client.files.create(file=("bad.jsonl", body), purpose="batch")
    batch = client.batches.create(
        input_file_id=uploaded.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    batch = _wait(client, batch.id)
    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert {error.line for error in batch.errors.data} == {2, 3, 4}
    assert batch.output_file_id is None


def _wait(client: openai.OpenAI, batch_id: str, limit_s: float = 240) -> Any:
    import time

    limit = time.monotonic() + limit_s
    while time.monotonic() < limit:
        batch = client.batches.retrieve(batch_id)
        if batch.status in TERMINAL:
            return batch
        time.sleep(0.5)
    pytest.fail(f"batch still {batch.status} after {limit_s} s: {batch.request_counts}")
