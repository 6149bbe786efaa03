"""URLs, headers and fields that today's clients try first."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.integration.contract.conftest import CHAT, Live, error_of, line


@pytest.mark.contract("E-02")
@pytest.mark.parametrize("path", ["/health", "/ping", "/v1/health", "/version"])
def test_probes_of_other_servers_are_answered(live: Live, path: str) -> None:
    reply = httpx.get(live.gateway.url + path)
    assert reply.status_code == 200
    if path == "/version":
        assert reply.json() == {"version": live.gateway.app.version}


@pytest.mark.contract("E-03")
@pytest.mark.parametrize("header", ["api-key", "x-api-key", "X-API-Key"])
def test_a_key_in_other_services_headers(live: Live, header: str) -> None:
    url = f"{live.gateway.url}/v1/models"
    assert httpx.get(url, headers={header: live.gateway.key}).status_code == 200
    wrong = httpx.get(url, headers={header: "sk-wrong-wrong-wrong"})
    assert error_of(wrong, 401)["code"] == "invalid_api_key"
    both = {"authorization": "Bearer sk-wrong-wrong-wrong", header: live.gateway.key}
    assert httpx.get(url, headers=both).status_code == 401, "what OpenAI reads comes first"


@pytest.mark.contract("E-04")
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/messages", "use POST /v1/chat/completions"),
        ("/v1/moderations", "classifier"),
        ("/v1/images/generations", "text"),
        ("/v1/chat/completion", "Did you mean /v1/chat/completions?"),
        ("/chat/complettions", "Did you mean /v1/chat/completions?"),
        ("/v1/batch/batch_1/cancel", "Did you mean /v1/batches/{batch_id}/cancel?"),
    ],
)
def test_an_unknown_url_says_what_to_use(live: Live, path: str, words: str) -> None:
    with live.http() as http:
        error = error_of(http.post(path, json={}), 404)
    assert error["code"] == "unknown_url"
    assert words in error["message"]


@pytest.mark.contract("E-04")
def test_nothing_alike_names_nothing(live: Live) -> None:
    with live.http() as http:
        error = error_of(http.get("/v1/" + "x" * 3000), 404)
    assert "Did you mean" not in error["message"]
    assert len(error["message"]) < 300


@pytest.mark.contract("E-05")
def test_stored_completions_are_said_not_to_be(live: Live) -> None:
    with live.http() as http:
        error = error_of(http.get(CHAT), 405)
        compacted = error_of(http.post("/v1/responses/compact", json={}), 405)
    assert "not stored" in error["message"]
    assert "'truncation'" in compacted["message"]


FIELDS: dict[str, Any] = {
    "grammar": 'root ::= "a"',
    "bad_words": ["a"],
    "chat_template": "{{ messages }}",
    "prompt_logprobs": 1,
    "prediction": {"type": "content", "content": "x"},
}


@pytest.mark.contract("E-06")
@pytest.mark.parametrize("name", FIELDS)
def test_fields_of_engines_are_refused_by_name(live: Live, name: str) -> None:
    error = error_of(live.ask("hi", **{name: FIELDS[name]}), 400)
    assert (error["param"], error["code"]) == (name, "unsupported_parameter")
    assert ": " in error["message"], "what to use instead"
    assert live.ask("hi", **{name: None}).status_code == 200


@pytest.mark.contract("E-07")
def test_fields_of_engines_that_are_honoured_reach_the_engine(live: Live) -> None:
    own: dict[str, Any] = {"top_k": 3, "min_p": 0.1, "repetition_penalty": 1.1}
    forms: list[dict[str, Any]] = [{"regex": "a|b"}, {"ebnf": 'root ::= "a"'}]
    for form in forms:
        assert live.ask("hi", **own, **form).status_code == 200
        assert (own | form).items() <= live.engine.received[-1].items()
        prompt = {"model": live.gateway.model, "prompt": "hi", **own, **form}
        with live.http() as http:
            assert http.post("/v1/completions", json=prompt).status_code == 200
        assert (own | form).items() <= live.engine.received[-1].items()
        response = {"model": live.gateway.model, "input": "hi", **own, **form}
        with live.http() as http:
            assert http.post("/v1/responses", json=response).status_code == 200
        assert (own | form).items() <= live.engine.received[-1].items()
        live.process(live.create_batch([line("a", **own, **form)]))
        assert (own | form).items() <= live.engine.received[-1].items()
    two = live.ask("hi", regex="a", response_format={"type": "json_object"})
    assert error_of(two, 400)["param"] == "regex"
    assert error_of(live.ask("hi", regex="a" * 2000), 400)["param"] == "regex"


@pytest.mark.contract("E-08")
def test_modalities_may_be_text(live: Live) -> None:
    assert live.ask("hi", modalities=["text"]).status_code == 200
    for more in (["text", "audio"], ["audio"]):
        assert error_of(live.ask("hi", modalities=more), 400)["param"].startswith("modalities")


@pytest.mark.contract("E-07")
def test_fields_of_other_servers_reach_the_engine_in_its_words(live: Live) -> None:
    given: dict[str, Any] = {"guided_choice": ["a", "b"], "enable_thinking": False}
    wanted = {
        "ebnf": 'root ::= "a" | "b"',
        "chat_template_kwargs": {"enable_thinking": False, "thinking": False},
    }
    assert live.ask("hi", **given).status_code == 200
    assert wanted.items() <= live.engine.received[-1].items()
    response = {"model": live.gateway.model, "input": "hi", **given}
    with live.http() as http:
        assert http.post("/v1/responses", json=response).status_code == 200
        assert wanted.items() <= live.engine.received[-1].items()
        background = {**response, "background": True}
        assert http.post("/v1/responses", json=background).status_code == 200
    live.process(live.create_batch([line("a", **given)]))
    assert wanted.items() <= live.engine.received[-1].items()
    assert error_of(live.ask("hi", guided_choice=[1]), 400)["param"] == "guided_choice[0]"
