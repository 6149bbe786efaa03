"""U+0085, U+2028 and U+2029 are in no line that leaves: a reader may split as it likes."""

from __future__ import annotations

from typing import Any

import httpx
import orjson
import pytest

from coserve.commands.service_client import ServiceClient
from tests.integration.contract.conftest import CHAT, MODEL, Live, line

SAID = "a\u2028b\u2029c\u0085d"
PROMPT = f"fake:text={SAID}"

BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": PROMPT}]},
    "/v1/completions": {"prompt": PROMPT},
    "/v1/responses": {"input": PROMPT},
}


def one_line_each(raw: str) -> None:
    assert raw.splitlines() == raw.removesuffix("\n").split("\n")


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
def test_answers(live: Live, path: str, *, stream: bool) -> None:
    with live.http() as http:
        raw = http.post(path, json={"model": MODEL, **BODIES[path], "stream": stream}).text
    one_line_each(raw)
    assert SAID not in raw
    assert "\\u2028" in raw


def test_files_of_a_batch_and_what_is_told_of_it(live: Live) -> None:
    lines = [line(SAID, PROMPT), line("b", f"{PROMPT} fake:status=400")]
    batch_id = live.create_batch(lines, metadata={"said": SAID})
    live.process(batch_id)
    with live.http() as http:
        told = http.get(f"/v1/batches/{batch_id}")
        listed = http.get("/v1/batches")
        made = told.json()
        files = [
            http.get(f"/v1/files/{made[f'{kind}_file_id']}/content").text
            for kind in ("output", "error")
        ]
        results = http.get(f"/v1/batches/{batch_id}/results")
    for raw in (told.text, listed.text, results.text, *files):
        one_line_each(raw)
    assert made["metadata"] == {"said": SAID}
    (answered,) = map(orjson.loads, files[0].splitlines())
    assert answered["custom_id"] == SAID
    assert answered["response"]["body"]["choices"][0]["message"]["content"] == SAID


def test_the_command_line_reads_them_raw(live: Live) -> None:
    """From a service of another release, or whatever answers at its address."""
    chunk = {"choices": [{"delta": {"content": SAID}, "finish_reason": None}]}
    raw = b"data: " + orjson.dumps(chunk) + b"\n\ndata: [DONE]\n\n"
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=raw))
    with ServiceClient("http://service/v1", "key", transport=transport) as client:
        assert [*client.chat({})] == [chunk]
    with ServiceClient(f"{live.gateway.url}/v1", live.gateway.key) as client:
        chunks = [*client.chat(live.chat(PROMPT, stream=True))]
    said = [c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]]
    assert "".join(said) == SAID
