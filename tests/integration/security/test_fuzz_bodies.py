"""Over 9,000 broken bodies: no server error, nothing told, the engine reached only by ours.

With `test_fuzz_framing.py` there are more than 10,000 inputs in `make test-all`; `make test` sends
the first part of them.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.security.conftest import Inside, check_error
from tests.integration.security.mutations import some_form, some_json

NUM_PARTS = 5
NUM_JSON, NUM_FORMS, NUM_TARGETS = 1_200, 500, 800
"""Inputs of a part."""
PARTS = [0, *(pytest.param(part, marks=pytest.mark.thorough) for part in range(1, NUM_PARTS))]
JSON = {"content-type": "application/json"}
FEW = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.timeout(280)
async def test_broken_json_is_a_bad_request(inside: Inside, part: int) -> None:
    source, seen = random.Random(20261121 + part), Counter[int]()
    for _ in range(NUM_JSON):
        path, raw = some_json(source)
        reply = await inside.http.post(path, content=raw, headers=JSON)
        seen[reply.status_code] += 1
        if reply.status_code != 200:
            check_error(reply.status_code, reply.content, inside.key)
        assert reply.headers["x-request-id"].startswith("req_")
    assert seen[200] > 5, "some must reach the engine"
    assert seen[400] > NUM_JSON / 3
    for body in inside.engine.received:
        assert len(body["rid"]) == 32
        assert body["priority"] in (0, -1)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.timeout(280)
async def test_broken_forms_are_bad_requests(inside: Inside, part: int) -> None:
    source, seen = random.Random(1121 + part), Counter[int]()
    for _ in range(NUM_FORMS):
        kind, raw = some_form(source)
        reply = await inside.http.post("/v1/files", content=raw, headers={"content-type": kind})
        seen[reply.status_code] += 1
        if reply.status_code != 200:
            check_error(reply.status_code, reply.content, inside.key)
    assert seen[200] > 5, "some must be stored"
    assert seen[400] > NUM_FORMS / 3


async def test_odd_targets_and_headers(inside: Inside) -> None:
    """Paths, queries and header values nobody would write."""
    source = random.Random(77)
    places = (
        "/v1/files/{}", "/v1/files/{}/content", "/v1/batches/{}", "/v1/models/{}", "/v1/files?{}",
        "/v1/batches?limit={}", "/v1/batches?after={}", "/v1/files?order={}&purpose={}", "/{}",
        "/v1/batches/{}/results?after={}", "/v1/files?limit={}",
    )  # fmt: skip
    odd = (
        "%00", "..%2f..%2fetc%2fpasswd", "%ff%fe", "a" * 3_000, "%F0%9F%98%80", "'", "1;DROP", "-1",
        "9" * 40, "1e9", "%0d%0aset-cookie:a", "{}", "[]", "null", "\\", "file-" + "0" * 24, " ",
    )  # fmt: skip
    for _ in range(NUM_TARGETS):
        target = source.choice(places).replace("{}", source.choice(odd))
        headers = {
            "range": source.choice(
                ("bytes=-1", "bytes=9-1", "x", "bytes=0-,1-", "bytes=" + "9" * 30)
            ),
            "idempotency-key": source.choice(("", "x" * 300, "k", "\x7f")),
            "accept": source.choice(("*/*", "text/html", "")),
        }
        reply = await inside.http.request(
            source.choice(("GET", "GET", "DELETE", "HEAD", "OPTIONS", "PUT")),
            target,
            headers=headers,
        )
        if reply.status_code >= 400 and reply.content and "text/html" not in str(reply.headers):
            check_error(reply.status_code, reply.content, inside.key)
        assert reply.status_code < 500


@FEW
@given(
    raw=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
        max_leaves=12,
    ).map(repr)
    | st.text()
    | st.binary(max_size=300).map(lambda data: data.decode("latin-1"))
)
async def test_any_text_is_a_bad_request(inside: Inside, raw: str) -> None:
    content = raw.encode("utf-8", "surrogatepass")
    for path in ("/v1/chat/completions", "/v1/batches"):
        reply = await inside.http.post(path, content=content, headers=JSON)
        assert reply.status_code in (400, 422)
        check_error(reply.status_code, reply.content, inside.key)
