"""Scopes: every route needs one, and a key without it is refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from fastapi.routing import APIRoute

from api.errors import PermissionDenied, error_body
from gateway.auth.principal import Principal
from gateway.auth.scopes import (
    ANY,
    CONTENTS,
    READ,
    READABLE,
    SCOPE_OF,
    SCOPES,
    WITH_CONTENTS,
    check_scope,
    needed_scope,
)
from gateway.http.app import API_ROUTERS
from store.models.key import KEY_SCOPES, WRITE_SCOPES


def principal(*scopes: str) -> Principal:
    return Principal("proj_1", "key_1", frozenset(scopes))


def routes() -> list[APIRoute]:
    found = [one for router in API_ROUTERS for one in router.routes if isinstance(one, APIRoute)]
    assert len(found) > 20
    return found


def test_every_route_of_the_api_needs_a_known_scope() -> None:
    needed = {route.path: needed_scope(route.path) for route in routes()}
    assert {path for path, scope in needed.items() if scope not in {*SCOPES, ANY}} == set()


def test_the_words_are_those_of_the_store() -> None:
    assert tuple(SCOPES) == KEY_SCOPES
    assert set(WRITE_SCOPES) == set(KEY_SCOPES) - {READ, CONTENTS}
    assert set(SCOPE_OF.values()) - {ANY} == set(WRITE_SCOPES)


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_the_scope_opens_and_nothing_else_does(prefix: str, method: str) -> None:
    path = f"{prefix}/files/{{file_id}}"
    check_scope(principal("files"), method, path)
    with pytest.raises(PermissionDenied) as refused:
        check_scope(principal("chat", "batches", "webhooks"), method, path)
    body = error_body(refused.value)["error"]
    assert "'files'" in body["message"]
    assert (body["type"], body["code"]) == ("invalid_request_error", "insufficient_permissions")


def opened_by(scope: str) -> set[tuple[str, str]]:
    """What a key of this scope alone may use, without what every key may."""
    found = set()
    for route in routes():
        for method in route.methods or ():
            if needed_scope(route.path) == ANY:
                continue
            with suppress(PermissionDenied):
                check_scope(principal(scope), method, route.path)
                found.add((method, route.path.removeprefix("/v1")))
    return found


def test_read_sees_what_there_is_and_not_what_is_in_it() -> None:
    assert opened_by(READ) == {("GET", path) for path in READABLE}
    for path in ("/files/{file_id}/content", "/batches/{batch_id}/results"):
        with pytest.raises(PermissionDenied, match="'contents'"):
            check_scope(principal(READ), "GET", f"/v1{path}")


def test_contents_reads_all_of_files_batches_and_webhooks_and_changes_nothing() -> None:
    assert opened_by(CONTENTS) == {
        ("GET", route.path.removeprefix("/v1"))
        for route in routes()
        if needed_scope(route.path) in WITH_CONTENTS and "GET" in (route.methods or ())
    }
    assert opened_by(CONTENTS) - opened_by(READ) == {
        ("GET", "/files/{file_id}/content"),
        ("GET", "/batches/{batch_id}/results"),
        ("GET", "/batches/{batch_id}/results/stream"),
    }


@pytest.mark.parametrize(
    "path", ["responses/{id}", "responses/{id}/input_items", "conversations/{id}/items"]
)
def test_stored_prompts_and_answers_are_for_keys_that_may_chat(path: str) -> None:
    check_scope(principal("chat"), "GET", f"/v1/{path}")
    for scope in set(KEY_SCOPES) - {"chat"}:
        with pytest.raises(PermissionDenied, match="'chat'"):
            check_scope(principal(scope), "GET", f"/v1/{path}")


def test_a_path_outside_the_table_is_closed() -> None:
    for method in ("GET", "POST"):
        with pytest.raises(PermissionDenied):
            check_scope(principal(*KEY_SCOPES), method, "/v1/forgotten/{id}")
