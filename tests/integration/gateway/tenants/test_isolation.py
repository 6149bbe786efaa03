"""Other tenants' objects: on every route that takes an id they look like none (row T-29)."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from datetime import timedelta
from typing import Any

import httpx
import orjson
import pytest
from fastapi.routing import APIRoute
from sqlalchemy import select

from gateway.http.app import API_ROUTERS
from store.models import File
from store.repositories import project as projects
from store.repositories import response as responses
from store.session import Database
from tests.fixtures.batches import line
from tests.integration.gateway.tenants.conftest import Tenants

NUM_CALLS = 300

MESSAGE = {"type": "message", "role": "user", "content": "theirs"}

BODIES: dict[str, dict[str, Any]] = {
    "/batches/{batch_id}/priority": {"priority": 1},
    "/conversations/{conversation_id}": {"metadata": {}},
    "/conversations/{conversation_id}/items": {"items": [MESSAGE]},
    "/organization/projects/{project_id}": {"name": "mine"},
    "/organization/projects/{project_id}/api_keys": {"name": "mine"},
    "/organization/projects/{project_id}/api_keys/{key_id}": {"scopes": []},
    "/organization/projects/{project_id}/api_keys/{key_id}/rotate": {"grace_seconds": 0},
    "/uploads/{upload_id}/complete": {"part_ids": []},
    "/webhook_endpoints/{webhook_endpoint_id}": {"name": "mine"},
    "/webhook_endpoints/{webhook_endpoint_id}/test": {"event_type": "batch.completed"},
}
"""What a route reads, so that it gets as far as looking for the object."""


def routes_with_ids() -> list[tuple[str, str]]:
    """(method, path) of every route of the API that names an object."""
    found = [
        (method, route.path)
        for router in API_ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and "{" in route.path
        for method in sorted(route.methods or ())
        # Models are the installation's, not a tenant's.
        if not route.path.startswith("/models")
    ]
    assert len(found) >= 20
    return found


async def stored_response(database: Database, file_id: str) -> str:
    """The id of an answer of the project that owns a file: no engine is there to make one."""
    response_id = f"resp_{random.getrandbits(96):024x}"
    told = {"id": response_id, "object": "response", "status": "completed", "output": []}
    async with database.unit_of_work() as session:
        project_id = await session.scalar(select(File.project_id).where(File.id == file_id))
        assert project_id is not None
        new = responses.NewResponse(
            id=response_id,
            previous_response_id=None,
            body=orjson.dumps(told),
            input_items=b"[]",
            item_ids=(),
        )
        await responses.add(session, project_id, new, timedelta(days=1))
    return response_id


async def one_of_each(http: httpx.AsyncClient, database: Database) -> dict[str, str]:
    """A tenant's own objects, made over the API: name of the path's parameter -> id."""
    data: dict[str, tuple[str | None, bytes | str]] = {
        "file": ("theirs.jsonl", line("a") + b"\n"),
        "purpose": (None, "batch"),
    }
    file_id = (await http.post("/files", files=data)).json()["id"]
    wanted = {
        "input_file_id": file_id,
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
    }
    made = {
        "file_id": file_id,
        "batch_id": (await http.post("/batches", json=wanted)).json()["id"],
    }
    conversation = await http.post("/conversations", json={"items": [MESSAGE]})
    conversation_id = conversation.json()["id"]
    items = await http.get(f"/conversations/{conversation_id}/items")
    made |= {
        "response_id": await stored_response(database, file_id),
        "conversation_id": conversation_id,
        "item_id": items.json()["data"][0]["id"],
    }
    upload = {"filename": "theirs", "purpose": "batch", "bytes": 2, "mime_type": "text/plain"}
    made["upload_id"] = (await http.post("/uploads", json=upload)).json()["id"]
    projects_seen = await http.get("/organization/projects")
    if projects_seen.status_code == 200:
        project_id = projects_seen.json()["data"][0]["id"]
        keys_path = f"/organization/projects/{project_id}/api_keys"
        key = await http.post(keys_path, json={"name": "theirs"})
        operator = await http.post("/organization/admin_api_keys", json={"name": "theirs"})
        made |= {
            "project_id": project_id,
            "key_id": key.json()["id"],
            "operator_id": operator.json()["id"],
        }
    endpoint = {
        "name": "theirs",
        # An address, so that no name has to be resolved; nothing is ever sent to it.
        "url": "https://8.8.8.8/hook",
        "event_types": ["batch.completed"],
    }
    reply = await http.post("/webhook_endpoints", json=endpoint)
    assert reply.status_code == 200, reply.text
    return made | {"webhook_endpoint_id": reply.json()["id"]}


def filled(path: str, ids: dict[str, str]) -> str:
    """The path with real ids; fails for a parameter nobody has thought of."""
    if path.startswith("/organization/admin_api_keys"):
        ids = {**ids, "key_id": ids["operator_id"]}
    return re.sub(r"{(\w+)(?::\w+)?}", lambda found: ids[found[1]], path)


def random_id(real: str) -> str:
    """An id of the same form that was never given out."""
    prefix = re.match(r"[a-z_]+[-_]", real)
    assert prefix, real
    return prefix[0] + f"{random.getrandbits(96):024x}"


@pytest.mark.contract("T-29")
async def test_on_every_route_a_strangers_object_is_none(tenants: Tenants) -> None:
    async with tenants.http() as mine, tenants.http(tenants.stranger) as theirs:
        ids = await one_of_each(theirs, tenants.database)
        nowhere = {name: random_id(real) for name, real in ids.items()}
        for method, path in routes_with_ids():
            told = []
            for chosen in (ids, nowhere):
                reply = await mine.request(method, filled(path, chosen), json=BODIES.get(path))
                assert reply.status_code == 404, (method, path, reply.text)
                text = reply.text
                for name, real in chosen.items():
                    text = text.replace(real, f"<{name}>")
                told.append((text, reply.headers["content-type"], len(reply.headers)))
            assert told[0] == told[1], (method, path)
        await check_untouched(theirs, ids)


async def check_untouched(theirs: httpx.AsyncClient, ids: dict[str, str]) -> None:
    """Nothing of all that changed anything."""
    batch = (await theirs.get(f"/batches/{ids['batch_id']}")).json()
    assert batch["status"] == "validating"
    assert batch["coserve"]["paused"] is False
    assert batch["coserve"]["priority"] == 0
    assert (await theirs.get(f"/files/{ids['file_id']}/content")).content == line("a") + b"\n"
    project = (await theirs.get(f"/organization/projects/{ids['project_id']}")).json()
    assert (project["name"], project["status"]) == ("theirs", "active")
    keys_path = f"/organization/projects/{ids['project_id']}/api_keys"
    assert (await theirs.get(f"{keys_path}/{ids['key_id']}")).status_code == 200


async def test_ids_in_bodies_and_cursors(tenants: Tenants) -> None:
    async with tenants.http() as mine, tenants.http(tenants.stranger) as theirs:
        ids = await one_of_each(theirs, tenants.database)
        nowhere = {name: random_id(real) for name, real in ids.items()}
        for method, path, param, body in (
            ("GET", "/files", "file_id", None),
            ("GET", "/batches", "batch_id", None),
            ("GET", "/organization/projects", "project_id", None),
            ("GET", "/organization/admin_api_keys", "operator_id", None),
            ("POST", "/batches", "file_id", {"completion_window": "24h"}),
            ("POST", "/batches/check", "file_id", {}),
        ):
            told = set()
            for chosen in (ids, nowhere):
                real = chosen[param]
                query = {"after": real} if body is None else None
                sent = body and {
                    **body, "endpoint": "/v1/chat/completions", "input_file_id": real,
                }  # fmt: skip
                if body == {}:
                    sent = {"endpoint": "/v1/chat/completions", "input_file_id": real}
                reply = await mine.request(method, path, params=query, json=sent)
                assert reply.status_code in (400, 404), (path, reply.text)
                told.add(reply.text.replace(real, "<id>"))
            assert len(told) == 1, (path, told)


async def test_lists_show_only_ones_own(tenants: Tenants) -> None:
    async with tenants.http() as mine, tenants.http(tenants.stranger) as theirs:
        ids = await one_of_each(theirs, tenants.database)
        for path in (
            "/files",
            "/batches",
            "/organization/projects",
            "/organization/admin_api_keys",
            "/organization/audit_logs",
            "/organization/projects/proj_default/api_keys",
            "/organization/usage/completions?start_time=0&group_by[]=project_id",
        ):
            reply = await mine.get(path)
            assert reply.status_code == 200, (path, reply.text)
            assert not [one for one in ids.values() if one in reply.text], path


async def test_two_projects_of_one_organisation(tenants: Tenants) -> None:
    """A plain key sees its own project only, though the organisation is the same."""
    plain = tenants.http(tenants.plain)
    async with plain as mine, tenants.http(tenants.api.other_key) as theirs:
        ids = await one_of_each(theirs, tenants.database)
        for method, path in routes_with_ids():
            if path.startswith("/organization"):
                continue
            reply = await mine.request(method, filled(path, ids), json=BODIES.get(path))
            assert reply.status_code == 404, (method, path, reply.text)


async def test_a_key_of_another_project_is_none(tenants: Tenants, database: Database) -> None:
    """Also for an admin: the address of a key holds its project."""
    async with database.unit_of_work() as session:
        project = await projects.create(session, "second")
    async with tenants.http() as http:
        base = "/organization/projects"
        key = (await http.post(f"{base}/{project.id}/api_keys", json={"name": "k"})).json()
        for method in ("GET", "DELETE"):
            path = f"{base}/proj_default/api_keys/{key['id']}"
            assert (await http.request(method, path)).status_code == 404
        # A key without a role is not an operator's.
        assert (await http.get(f"/organization/admin_api_keys/{key['id']}")).status_code == 404


@pytest.mark.thorough
async def test_two_tenants_hammer_each_others_ids(tenants: Tenants) -> None:
    chance = random.Random(20261121)
    routes = [
        (method, path)
        for method, path in routes_with_ids()
        if method == "GET" and "stream" not in path and not path.startswith("/organization")
    ]
    steering = [("POST", f"/batches/{{batch_id}}/{act}") for act in ("cancel", "pause", "retry")]
    keys = (tenants.admin, tenants.stranger)
    limits = httpx.Limits(max_connections=32)
    async with (
        tenants.http(keys[0], limits=limits, timeout=60) as first,
        tenants.http(keys[1], limits=limits, timeout=60) as second,
    ):
        sides = (first, second)
        ids = [await one_of_each(http, tenants.database) for http in sides]
        seen: Counter[str] = Counter()

        async def call(caller: int, owner: int) -> None:
            choices = routes if caller == owner else routes + steering * 3
            method, path = chance.choice(choices)
            await asyncio.sleep(0)
            reply = await sides[caller].request(method, filled(path, ids[owner]))
            other = ids[1 - caller]
            if caller == owner:
                assert reply.status_code == 200, (method, path, reply.text)
                assert not [one for one in other.values() if one in reply.text]
                seen["own"] += 1
            else:
                assert reply.status_code == 404, (method, path, reply.text)
                seen["other"] += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(NUM_CALLS):
                group.create_task(call(chance.randrange(2), chance.randrange(2)))
        assert min(seen["own"], seen["other"]) > NUM_CALLS // 4
        for http, mine in zip(sides, ids, strict=True):
            batch = (await http.get(f"/batches/{mine['batch_id']}")).json()
            assert (batch["status"], batch["coserve"]["paused"]) == ("validating", False)
