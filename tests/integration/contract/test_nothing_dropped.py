"""Fields of forms, query strings and bodies that nobody reads are refused by name."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel

from gateway.http.app import API_ROUTERS
from tests.integration.contract.conftest import CHAT, Live, error_of

IDS = {"{batch_id}": "batch_1", "{file_id}": "file-1", "{model_id}": "m"}
INCLUDED = "message.output_text.logprobs"
MESSAGE = {"role": "user", "content": "x"}
FORM = {"purpose": "user_data"}
FILE = {"file": ("a.txt", b"x")}


def routes() -> list[tuple[str, str]]:
    found = []
    for router in API_ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            found += [(method, route.path) for method in sorted(route.methods or ())]
    return found


@pytest.mark.parametrize(
    ("field", "value", "near"),
    [
        ("expires_after", "3600", "expires_after[anchor]"),
        ("expires_after", '{"anchor": "created_at", "seconds": 3600}', "expires_after[anchor]"),
        ("expires_after[second]", "3600", "expires_after[seconds]"),
        ("purposes", "batch", "purpose"),
        ("metadata", "x", None),
    ],
)
def test_form_fields(live: Live, field: str, value: str, near: str | None) -> None:
    with live.http() as http:
        reply = http.post("/v1/files", data={**FORM, field: value}, files=FILE)
        error = error_of(reply, 400)
        assert (error["code"], error["param"]) == ("unknown_parameter", field)
        if near is not None:
            assert "Did you mean 'expires_after[" in error["message"] or near in error["message"]
        assert field not in str(http.get("/v1/files").json())


def test_the_form_of_openai_is_served(live: Live) -> None:
    expiry = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    with live.http() as http:
        made = http.post("/v1/files", data={**FORM, **expiry}, files=FILE).json()
    assert made["expires_at"] - made["created_at"] == 3600


def test_a_part_of_an_upload(live: Live) -> None:
    begun = {"filename": "a", "purpose": "user_data", "bytes": 1, "mime_type": "text/plain"}
    with live.http() as http:
        upload = http.post("/v1/uploads", json=begun).json()
        path = f"/v1/uploads/{upload['id']}/parts"
        reply = http.post(path, data={"md5": "x"}, files={"data": b"x"})
        assert error_of(reply, 400)["param"] == "md5"
        assert http.post(path, files={"data": b"x"}).status_code == 200


@pytest.mark.parametrize(("method", "path"), routes())
def test_query_strings_of_every_route(live: Live, method: str, path: str) -> None:
    for variable, filled in IDS.items():
        path = path.replace(variable, filled)
    with live.http() as http:
        unknown = http.request(method, f"/v1{path}", params={"nobody_knows": "1"}, json={})
        error = error_of(unknown, 400)
        assert (error["code"], error["param"]) == ("unknown_parameter", "nobody_knows")


def test_queries_that_are_read_or_say_nothing(live: Live) -> None:
    with live.http() as http:
        for query in ("", "?limit=2&order=asc", "?api-version=2024-10-21", "?after=", "?x="):
            reply = http.get(f"/v1/files{query}")
            assert reply.status_code in (200, 404), (query, reply.text)
        near = error_of(http.get("/v1/files?limits=2"), 400)
        assert "Did you mean 'limit'?" in near["message"]
        asked = http.post(f"{CHAT}?api-version=2024-10-21", json=live.chat("hi"))
        assert asked.status_code == 200


@pytest.mark.parametrize("written", ["include", "include[]", "include[0]"])
def test_lists_in_query_strings_as_clients_write_them(live: Live, written: str) -> None:
    with live.http() as http:
        made = http.post("/v1/conversations", json={"items": [{"role": "user", "content": "x"}]})
        items = f"/v1/conversations/{made.json()['id']}/items"
        item = http.get(items).json()["data"][0]["id"]
        asked = {"model": live.chat("hi")["model"], "input": "hi"}
        response = f"/v1/responses/{http.post('/v1/responses', json=asked).json()['id']}"
        for path in (items, f"{items}/{item}", response, f"{response}/input_items"):
            plain, more = http.get(path), http.get(path, params={written: INCLUDED})
            assert (more.status_code, more.content) == (200, plain.content), path
            wrong = error_of(http.get(path, params={written: "nobody_knows"}), 400)
            assert (wrong["code"], wrong["param"]) == ("invalid_value", "include")
        added = http.post(items, params={written: INCLUDED}, json={"items": [MESSAGE]})
        assert added.status_code == 200
        elsewhere = error_of(http.get("/v1/files", params={written: INCLUDED}), 400)
        assert elsewhere["code"] == "unknown_parameter"
        assert http.get(response, params={"include_obfuscation": "true"}).status_code == 200
        odd = error_of(http.get(response, params={"stream[]": "true"}), 400)
        assert odd["param"] == "stream[]"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/conversations", {}),
        ("/v1/conversations/conv_1", {}),
        ("/v1/conversations/conv_1/items", {"items": [{"role": "user", "content": "x"}]}),
    ],
)
def test_bodies_of_conversations(live: Live, path: str, body: dict[str, Any]) -> None:
    with live.http() as http:
        reply: httpx.Response = http.post(path, json={**body, "nobody_knows": 1})
        assert error_of(reply, 400)["param"] == "nobody_knows"


def test_every_other_body_forbids_what_it_does_not_know() -> None:
    def models(kind: Any) -> set[type[BaseModel]]:
        if not isinstance(kind, type) or not issubclass(kind, BaseModel):
            return {one for inner in getattr(kind, "__args__", ()) for one in models(inner)}
        inner = (models(field.annotation) for field in kind.model_fields.values())
        return {kind}.union(*inner)

    found: set[type[BaseModel]] = set()
    for router in API_ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            for param in route.dependant.body_params:
                found |= models(param.field_info.annotation)
    assert found
    assert [kind for kind in found if kind.model_config.get("extra") != "forbid"] == []
