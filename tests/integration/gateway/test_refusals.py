"""What bad requests get: always the one envelope, never a stack."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import openai
import pytest

from tests.integration.gateway.conftest import MODEL, Online

ENVELOPE = ["message", "type", "param", "code"]


def error_of(reply: httpx.Response) -> dict[str, Any]:
    body = reply.json()
    assert list(body) == ["error"]
    assert list(body["error"]) == ENVELOPE
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-request-id"].startswith("req_")
    error: dict[str, Any] = body["error"]
    return error


@pytest.mark.contract("T-17", "T-24", "T-04")
async def test_each_status_is_its_class_in_the_sdk(online: Online) -> None:
    async with online.client() as client:
        create = client.chat.completions.create
        with pytest.raises(openai.NotFoundError) as unknown:
            await create(**{**online.chat("hi"), "model": "gpt-9"})
        assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
        assert unknown.value.request_id is not None
        with pytest.raises(openai.BadRequestError) as empty:
            await create(model=MODEL, messages=[])
        assert empty.value.param == "messages"
        with pytest.raises(openai.BadRequestError) as hot:
            await create(**online.chat("hi"), temperature=9)
        assert hot.value.param == "temperature"
    async with online.client(api_key="sk-wrong-0123456789") as client:
        with pytest.raises(openai.AuthenticationError) as wrong:
            await client.models.list()
        assert wrong.value.code == "invalid_api_key"
        assert "0123456789" not in str(wrong.value)


@pytest.mark.parametrize(
    ("content", "headers", "status", "code"),
    [
        (b"", {}, 400, "invalid_json"),
        (b"{", {}, 400, "invalid_json"),
        (b"[]", {}, 400, "invalid_json"),
        (b'"x"', {}, 400, "invalid_json"),
        (b'{"model": "\xff"}', {}, 400, "invalid_json"),
        (b'{"model": "\\ud800"}', {}, 400, "invalid_json"),
        (b"[" * 1_000, {}, 400, "json_too_complex"),
        (b"{}", {"content-type": "text/plain"}, 415, "unsupported_media_type"),
        (b"{}", {}, 400, "missing_required_parameter"),
    ],
)
@pytest.mark.contract("T-15", "T-16")
async def test_bodies_that_are_none(
    online: Online, content: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    async with online.http() as http:
        for path in ("/v1/chat/completions", "/completions"):
            reply = await http.post(
                path, content=content, headers={"content-type": "application/json", **headers}
            )
            assert reply.status_code == status
            assert error_of(reply)["code"] == code


BODIES_OF_MODELS = ("/v1/batches", "/v1/batches/check", "/v1/uploads", "/v1/webhook_endpoints")


async def test_bodies_of_other_routes_are_read_by_the_same_rules(online: Online) -> None:
    async with online.http() as http:
        for path in BODIES_OF_MODELS:
            for content, status, code, words in (
                (b"", 400, "invalid_json", "is empty"),
                (b"[]", 400, "invalid_json", "must be a JSON object"),
                (b'{"metadata": NaN}', 400, "invalid_json", "character 14"),
                (b'{"\\ud800": 1}', 400, "invalid_json", "surrogate"),
                (b'{"metadata": ' + b"9" * 5000 + b"}", 400, "invalid_json", "too large"),
                (b'{"metadata": "\xe9"}', 400, "invalid_json", "UTF-8"),
                (b"[" * 3000 + b"]" * 3000, 400, "json_too_complex", "64 levels"),
                (b"\xef\xbb\xbf{}", 400, "missing_required_parameter", "Missing"),
            ):
                head = {"content-type": "application/json"}
                reply = await http.post(path, content=content, headers=head)
                assert (reply.status_code, error_of(reply)["code"]) == (status, code), content[:20]
                assert words in error_of(reply)["message"]
            reply = await http.post(path, content=b"{}", headers={"content-type": "text/plain"})
            assert (reply.status_code, error_of(reply)["code"]) == (415, "unsupported_media_type")


async def test_what_is_wrong_in_a_model_is_told_in_our_words(online: Online) -> None:
    batch: dict[str, Any] = {"input_file_id": "f", "endpoint": "x", "completion_window": "24h"}
    async with online.http() as http:
        for more, param, words in (
            ({"metadata": []}, "metadata", "expected an object"),
            ({"metadata": {"a": 1}}, "metadata.a", "expected a string"),
            ({"input_file_id": 5}, "input_file_id", "expected a string"),
            ({"output_expires_after": 1}, "output_expires_after", "expected an object"),
            (
                {"output_expires_after": {"anchor": "created_at", "seconds": 3600.0}},
                "output_expires_after.seconds",
                "expected an integer",
            ),
        ):
            error = error_of(await http.post("/v1/batches", json={**batch, **more}))
            expected = f"Invalid type for '{param}': {words}."
            found = (error["param"], error["code"], error["message"])
            assert found == (param, "invalid_type", expected)
        for path, param, words in (
            ("/v1/files?limit=0", "limit", "must be greater than or equal to 1"),
            ("/v1/files?limit=x", "limit", "expected an integer"),
            ("/v1/files?limit=" + "9" * 5000, "limit", "expected an integer"),
            ("/v1/files?order=up", "order", "must be 'asc' or 'desc'"),
        ):
            error = error_of(await http.get(path))
            assert (error["param"], error["message"].partition(": ")[2]) == (param, f"{words}.")


@pytest.mark.contract("T-23")
async def test_a_body_over_the_limit_is_answered_and_not_read(online: Online) -> None:
    async def endless() -> Any:
        for _ in range(400):
            yield b" " * 65536

    async with online.http() as http:
        announced = await http.post(
            "/v1/chat/completions", content=b" " * (17 << 20), headers={"x-request-id": "mine"}
        )
        assert announced.status_code == 413
        assert error_of(announced)["code"] == "payload_too_large"
        assert announced.headers["x-request-id"] != "mine"
        chunked = await http.post("/v1/chat/completions", content=endless())
        assert chunked.status_code == 413


async def test_routes_with_and_without_v1_and_with_a_slash(online: Online) -> None:
    async with online.http() as http:
        for path in ("/v1/models", "/models", "/v1/models/", "/models/"):
            reply = await http.get(path)
            assert reply.status_code == 200, path
        for path in ("/chat/completions", "/v1/chat/completions/"):
            reply = await http.post(path, json=online.chat("hi"))
            assert reply.status_code == 200, path


@pytest.mark.contract("T-14")
async def test_unknown_routes_and_wrong_methods(online: Online) -> None:
    async with online.http() as http:
        unknown = await http.get("/v1/nope")
        assert (unknown.status_code, error_of(unknown)["code"]) == (404, "unknown_url")
        wrong = await http.get("/v1/chat/completions")
        assert (wrong.status_code, error_of(wrong)["code"]) == (405, "method_not_allowed")
        assert wrong.headers["allow"] == "POST"


@pytest.mark.contract("T-03")
async def test_every_route_wants_a_key(online: Online) -> None:
    async with httpx.AsyncClient(base_url=online.url) as http:
        schema = (await http.get("/openapi.json")).json()
        open_paths = {"/healthz", "/readyz", "/statusz", "/metrics", "/version"}
        asked = 0
        for path, operations in schema["paths"].items():
            if path in open_paths:
                continue
            for method in operations:
                reply = await http.request(method, path.replace("{", "").replace("}", ""))
                assert reply.status_code == 401, (method, path)
                assert error_of(reply)["code"] == "invalid_api_key"
                asked += 1
    assert asked >= 10


@pytest.mark.contract("T-05", "T-08")
async def test_headers_of_other_clients_do_no_harm(online: Online) -> None:
    async with online.client() as client:
        reply = await client.chat.completions.with_raw_response.create(
            **online.chat("hi"),
            extra_headers={
                "OpenAI-Organization": "org",
                "OpenAI-Project": "proj",
                "X-Request-ID": "mine",
            },
        )
    assert reply.headers["x-request-id"] != "mine"


@pytest.mark.contract("T-26")
async def test_a_browser_may_ask(online: Online) -> None:
    async with httpx.AsyncClient(base_url=online.url) as http:
        preflight = await http.options(
            "/v1/chat/completions",
            headers={
                "origin": "https://example.org",
                "access-control-request-method": "POST",
                "access-control-request-headers": "authorization,content-type",
            },
        )
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "*"
        refused = await http.get("/v1/models", headers={"origin": "https://example.org"})
        assert "x-request-id" in refused.headers["access-control-expose-headers"]
        headers = {"origin": "https://example.org", "authorization": f"Bearer {online.key}"}
        body = online.chat("fake:text=yes")
        answered = await http.post("/v1/chat/completions", json=body, headers=headers)
        assert answered.json()["choices"][0]["message"]["content"] == "yes"
        assert answered.headers["access-control-allow-origin"] == "*"
        assert answered.headers["x-request-id"].startswith("req_")


@pytest.mark.contract("T-20", "M-06", "S-15")
async def test_no_engine_is_503_with_a_time_to_come_back(online: Online) -> None:
    online.engine.down = True
    async with online.http() as http:
        # The fake stays reachable; a lost connection is what ejects it.
        for stream in (False, True):
            reply = await http.post(
                "/v1/chat/completions", json=online.chat("fake:die_after=0", stream=stream)
            )
            assert reply.status_code == 503
            assert error_of(reply)["code"] == "engine_unavailable"
            # As long as an engine is away; clients wait no longer than a minute by themselves.
            assert 20 <= float(reply.headers["retry-after"]) <= 60
        models = await http.get("/v1/models")
        assert [model["id"] for model in models.json()["data"]] == [MODEL]


async def test_the_engine_comes_back_by_itself(online: Online) -> None:
    async with online.http() as http:
        await http.post("/v1/chat/completions", json=online.chat("fake:die_after=0"))
        async with asyncio.timeout(5):
            while True:
                reply = await http.post("/v1/chat/completions", json=online.chat("hi"))
                if reply.status_code == 200:
                    return
                assert reply.status_code == 503
                await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({"cookie": 'a="' + "\\" * 30_000 + '"'}, "", 400),
        ({"content-type": "multipart/form-data" + ";" * 30_000}, "", 415),
        ({}, "?" + "&" * 4_000, 400),
    ],
    ids=["cookie", "type", "query"],
)
async def test_a_head_that_is_work_to_parse_is_refused_for_strangers_too(
    online: Online, headers: dict[str, str], query: str, status: int
) -> None:
    async with online.http() as http:
        http.headers.pop("authorization", None)
        for path in ("/healthz", "/admin/", "/v1/files"):
            reply = await http.get(path + query, headers=headers)
            assert reply.status_code == status
            assert error_of(reply)["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/v1/webhook_endpoints", {"url": "x", "event_types": [1] * 50_000}, "json_too_complex"),
        ("/v1/batches", {f"a{n}": 1 for n in range(10_000)}, "json_too_complex"),
        ("/v1/uploads/upload_x/complete", {"part_ids": ["a"] * 1000}, None),
        ("/v1/batches", {f"a{n}": 1 for n in range(100)}, "missing_required_parameter"),
    ],
    ids=["wrong types", "unknown fields", "a thousand parts", "a hundred fields"],
)
async def test_a_body_of_a_model_has_few_values(
    online: Online, path: str, body: dict[str, Any], code: str | None
) -> None:
    """For each a fault would be found and described: 10 us on the loop that all share."""
    async with online.http() as http:
        reply = await http.post(path, json=body)
    assert error_of(reply)["code"] == code
