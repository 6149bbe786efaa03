"""Section 1: transport, keys, headers, errors."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest

from tests.integration.contract.conftest import CHAT, MODEL, Live, error_of, line

READS = ("/models", "/files", "/batches")


def test_t_01_every_path_works_with_and_without_v1(live: Live) -> None:
    with live.http() as http:
        for path in READS:
            for one in (f"/v1{path}", path, f"/v1{path}/", f"{path}/"):
                assert http.get(one).status_code == 200, one
        for one in ("/chat/completions", "/v1/chat/completions/"):
            assert http.post(one, json=live.chat("hi")).status_code == 200
        for one in ("/completions", "/v1/completions/"):
            assert http.post(one, json={"model": MODEL, "prompt": "hi"}).status_code == 200
        form = {"purpose": "evals"}
        for one in ("/files", "/v1/files/"):
            assert http.post(one, files={"file": b"x"}, data=form).status_code == 200


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_t_02_the_scheme_may_have_any_case(live: Live, scheme: str) -> None:
    headers = {"authorization": f"{scheme} {live.gateway.key}"}
    assert httpx.get(f"{live.gateway.url}/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize("header", [None, "", "Bearer", "Basic eDp5"])
def test_t_03_no_key(live: Live, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}
    for path in READS:
        reply = httpx.get(f"{live.gateway.url}/v1{path}", headers=headers)
        assert error_of(reply, 401)["type"] == "invalid_request_error"


def test_t_04_a_wrong_key_is_masked(live: Live) -> None:
    with live.http("sk-coserve-0123456789abcdef0123456789abcdef") as http:
        error = error_of(http.get("/v1/models"), 401)
    assert (error["code"], error["type"]) == ("invalid_api_key", "invalid_request_error")
    assert "456789" not in error["message"]


def test_t_05_organization_and_project(live: Live) -> None:
    with live.client(organization="org-x", project="proj_y") as client:
        assert client.models.list().data


@pytest.mark.contract("C-01", "C-02")
def test_t_06_the_sdks_own_headers(live: Live) -> None:
    headers = {
        "x-stainless-retry-count": "2",
        "x-stainless-read-timeout": "600",
        "x-stainless-lang": "python",
    }
    with live.client(default_headers=headers) as client:
        answer = client.chat.completions.create(**live.chat("hi"))
    assert answer.id.startswith("chatcmpl-")
    assert (answer.object, answer.model) == ("chat.completion", MODEL)


@pytest.mark.contract("T-08", "T-09", "T-27")
def test_t_07_every_response_has_an_id_of_ours(live: Live) -> None:
    with live.http() as http:
        http.headers["x-request-id"] = "mine"
        file_id = http.post("/v1/files", files={"file": b"x"}, data={"purpose": "evals"}).json()
        content = http.get(f"/v1/files/{file_id['id']}/content")
        replies = [
            content,
            http.get("/v1/models"),
            http.get("/v1/nope"),
            http.put("/v1/models"),
            http.post(CHAT, content=b"{"),
            http.post(CHAT, json=live.chat("hi")),
            http.post(CHAT, json=live.chat("hi", stream=True)),
            httpx.get(f"{live.gateway.url}/v1/models"),
        ]
    ids = [reply.headers["x-request-id"] for reply in replies]
    assert all(one.startswith("req_") for one in ids)
    assert len(set(ids)) == len(ids)
    for reply in replies:
        assert int(reply.headers["openai-processing-ms"]) >= 0
        assert reply.headers["openai-version"] == "2020-10-01"
        if reply not in (content, replies[6]):
            assert reply.headers["content-type"] == "application/json"
    with live.client() as client, pytest.raises(openai.NotFoundError) as refused:
        client.files.retrieve("file-unknown")
    assert (refused.value.request_id or "").startswith("req_")


@pytest.mark.contract("T-12")
@pytest.mark.parametrize(
    ("order", "status"),
    [("fake:status=400", 400), ("fake:status=500", 500), ("fake:status=503", 503)],
)
def test_t_11_the_engines_errors_are_wrapped_again(live: Live, order: str, status: int) -> None:
    error = error_of(live.ask(order), status)
    assert error["code"] is None or isinstance(error["code"], str)
    assert isinstance(error["message"], str)
    assert isinstance(error["type"], str)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"model": MODEL, "messages": [{"role": "x", "content": "y"}]}, "messages[0].role"),
        (CHAT, {"model": MODEL, "messages": "x"}, "messages"),
        ("/v1/batches", {}, "endpoint"),
        (
            "/v1/batches",
            {
                "input_file_id": "f",
                "endpoint": CHAT,
                "completion_window": "24h",
                "output_expires_after": {"anchor": "created_at", "seconds": "x"},
            },
            "output_expires_after.seconds",
        ),
    ],
)
def test_t_13_validation_is_400_with_a_dotted_path(
    live: Live, path: str, body: dict[str, object], param: str
) -> None:
    with live.http() as http:
        assert error_of(http.post(path, json=body), 400)["param"] == param


def test_t_15_a_body_that_is_no_json(live: Live) -> None:
    with live.http() as http:
        http.headers["content-type"] = "application/json"
        for path in (CHAT, "/v1/completions", "/v1/batches"):
            error = error_of(http.post(path, content=b'{"model": '), 400)
            assert error["type"] == "invalid_request_error"
            assert "JSON" in error["message"]


def test_t_16_another_content_type(live: Live) -> None:
    with live.http() as http:
        http.headers["content-type"] = "text/plain"
        for path in (CHAT, "/v1/completions", "/v1/batches", "/v1/files"):
            reply = http.post(path, content=b'{"a": 1}')
            assert error_of(reply, reply.status_code)
            assert reply.status_code in (400, 415), path


@pytest.mark.contract("T-20")
def test_t_22_overload_has_a_code_and_a_time(live: Live) -> None:
    reply = live.ask("fake:status=503")
    assert error_of(reply, 503)["code"] == "server_is_overloaded"
    assert 0 < float(reply.headers["retry-after"]) <= 120


@pytest.mark.contract("T-19")
def test_t_18_the_sdk_does_not_repeat_a_conflict(live: Live) -> None:
    batch_id = live.create_batch([b"{"])
    live.validate(batch_id)
    with live.client(max_retries=2) as client:
        with pytest.raises(openai.ConflictError) as refused:
            client.batches.cancel(batch_id)
        sent = refused.value.response.request.headers["x-stainless-retry-count"]
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert sent == "0"


def test_t_24_an_unknown_model(live: Live) -> None:
    for path, body in (
        (CHAT, {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/completions", {"prompt": "x"}),
    ):
        with live.http() as http:
            error = error_of(http.post(path, json={"model": "gpt-9", **body}), 404)
        assert (error["code"], error["type"]) == ("model_not_found", "invalid_request_error")


def test_t_25_too_long_a_prompt_names_both_numbers(live: Live) -> None:
    error = error_of(live.ask("word " * 2500), 400)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    assert "2048" in error["message"]
    assert "2500" in error["message"]


LONG_ANSWERS: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"messages": [{"role": "user", "content": "two words"}]}, "max_tokens"),
    (CHAT, {"messages": [{"role": "user", "content": "two words"}]}, "max_completion_tokens"),
    ("/v1/completions", {"prompt": "two words"}, "max_tokens"),
    ("/v1/responses", {"input": "two words"}, "max_output_tokens"),
]


@pytest.mark.contract("T-25")
@pytest.mark.parametrize(("path", "body", "field"), LONG_ANSWERS)
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_has_no_room_is_told_how_much_fits(
    live: Live, path: str, body: dict[str, Any], field: str, stream: bool
) -> None:
    asked = {"model": live.gateway.model, "stream": stream, **body}
    with live.http() as http:
        for length in (2047, 2048, 2049, 1_000_000):
            error = error_of(http.post(path, json={**asked, field: length}), 400)
            assert (error["code"], error["param"]) == ("context_length_exceeded", field)
            assert error["message"].endswith(f"'{field}' can be at most 2046.")
            assert f"{length} in the completion" in error["message"]
        assert http.post(path, json={**asked, field: 2046}).status_code == 200


@pytest.mark.contract("T-25", "C-21")
def test_a_row_whose_answer_has_no_room_is_told_how_much_fits(live: Live) -> None:
    batch = live.create_batch([line("a", "two words", max_tokens=2047)])
    live.process(batch)
    with live.client() as client:
        errors = client.batches.retrieve(batch).error_file_id
        assert errors
        row = json.loads(client.files.content(errors).text)
    error = row["response"]["body"]["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "max_tokens")
    assert "can be at most 2046" in error["message"]


def test_t_28_unknown_fields_are_refused(live: Live) -> None:
    num_before = len(live.engine.received)
    reply = live.ask("hi", temprature=0.5, unset=None)
    error = error_of(reply, 400)
    assert (error["param"], error["code"]) == ("temprature", "unknown_parameter")
    assert error["message"].endswith("supplied: temprature. Did you mean 'temperature'?")
    assert len(live.engine.received) == num_before
    assert live.ask("hi", unset=None, prompt_cache_retention="24h").status_code == 200
    with live.http() as http:
        body = {"input_file_id": "file-x", "endpoint": CHAT, "completion_window": "24h"}
        for more, param in (
            ({"unheard_of": 1}, "unheard_of"),
            ({"coserve": {"prio": 1}}, "coserve.prio"),
        ):
            error = error_of(http.post("/v1/batches", json={**body, **more}), 400)
            assert (error["param"], error["code"]) == (param, "unknown_parameter")
        batch_id = live.create_batch([line("a", unheard_of=1)])
        live.validate(batch_id)
        (fault,) = http.get(f"/v1/batches/{batch_id}").json()["errors"]["data"]
    assert (fault["param"], fault["code"]) == ("body.unheard_of", "unknown_parameter")


def test_t_29_objects_of_others_look_like_none(live: Live) -> None:
    batch_id = live.create_batch([b"{}"])
    with live.http() as mine, live.http(live.other_key) as other:
        file_id = mine.get(f"/v1/batches/{batch_id}").json()["input_file_id"]
        for real, path in ((file_id, "/v1/files/"), (batch_id, "/v1/batches/")):
            random = real[:-4] + "zzzz"
            theirs = error_of(other.get(path + real), 404)
            none = error_of(other.get(path + random), 404)
            assert theirs["message"].replace(real, "") == none["message"].replace(random, "")
            assert theirs | {"message": ""} == none | {"message": ""}
