"""The administration API through the official client, and who may use it."""

from __future__ import annotations

import openai
import pytest
from sqlalchemy import text

from gateway.tenants.keys import MAX_GRACE_S
from store.repositories import key as keys
from store.session import Database
from tests.integration.gateway.tenants.conftest import Tenants


async def test_the_life_of_a_project(tenants: Tenants) -> None:
    async with tenants.client() as client:
        projects = client.admin.organization.projects
        made = await projects.create(
            name=" Search ", extra_body={"coserve": {"tokens_per_minute": 9}}
        )
        assert (made.name, made.status, made.object) == ("Search", "active", "organization.project")
        changed = await projects.update(
            made.id, name="Find", extra_body={"coserve": {"requests_per_minute": 5}}
        )
        limits = (changed.model_extra or {})["coserve"]
        assert changed.name == "Find"
        assert (limits["requests_per_minute"], limits["tokens_per_minute"]) == (5, 9)
        cleared = await projects.update(
            made.id, extra_body={"coserve": {"tokens_per_minute": None}}
        )
        assert (cleared.model_extra or {})["coserve"]["tokens_per_minute"] is None
        assert (cleared.model_extra or {})["coserve"]["requests_per_minute"] == 5

        assert (await projects.archive(made.id)).status == "archived"
        assert (await projects.archive(made.id)).status == "archived"
        assert made.id not in [one.id async for one in projects.list(limit=1)]
        assert made.id in [one.id async for one in projects.list(limit=1, include_archived=True)]
        assert (await projects.retrieve(made.id)).archived_at is not None
        with pytest.raises(openai.ConflictError):
            await projects.update(made.id, name="Again")


async def test_the_default_project_and_ones_own_stay_open(tenants: Tenants) -> None:
    async with tenants.client() as client:
        with pytest.raises(openai.ConflictError, match="default project"):
            await client.admin.organization.projects.archive("proj_default")
    async with tenants.client(tenants.stranger) as client:
        with pytest.raises(openai.ConflictError, match="the key that you use"):
            await client.admin.organization.projects.archive(tenants.stranger_project)


async def test_the_life_of_a_key(tenants: Tenants, database: Database) -> None:
    wanted = {"name": "ci", "scopes": ["read", "files"], "expires_in_seconds": 3600}
    async with tenants.http() as http:
        reply = await http.post("/organization/projects/proj_default/api_keys", json=wanted)
    made = reply.json()
    assert reply.status_code == 200, made
    assert made["value"].startswith(made["redacted_value"].removesuffix("***"))
    assert made["coserve"]["scopes"] == ["files", "read"]
    assert made["expires_at"] - made["created_at"] in (3599, 3600, 3601)
    async with tenants.client(made["value"]) as client:
        await client.files.list()
        with pytest.raises(openai.PermissionDeniedError, match="'batches'"):
            await client.batches.create(
                completion_window="24h", endpoint="/v1/chat/completions", input_file_id="file-1"
            )
    async with tenants.client() as client:
        project_keys = client.admin.organization.projects.api_keys
        found = await project_keys.retrieve(made["id"], project_id="proj_default")
        assert found.name == "ci"
        assert "value" not in (found.model_extra or {})
        listed = [one.id async for one in project_keys.list("proj_default", limit=1)]
        assert made["id"] in listed
        assert len(listed) == len(set(listed)) >= 4
        await project_keys.update(made["id"], project_id="proj_default", scopes=["batches"])
        gone = await project_keys.delete(made["id"], project_id="proj_default")
        assert gone.deleted
        with pytest.raises(openai.NotFoundError):
            await project_keys.delete(made["id"], project_id="proj_default")
    async with database.unit_of_work() as session:
        assert await keys.find_by_plaintext(session, made["value"]) is None


async def test_a_rotated_key_goes_on_for_its_grace(tenants: Tenants, database: Database) -> None:
    base = "/organization/projects/proj_default/api_keys"
    async with tenants.http() as http:
        first = (await http.post(base, json={"name": "app", "scopes": ["chat"]})).json()
        second = (
            await http.post(f"{base}/{first['id']}/rotate", json={"grace_seconds": 3600})
        ).json()
        third = (await http.post(f"{base}/{second['id']}/rotate", json={"grace_seconds": 0})).json()
        too_long = await http.post(
            f"{base}/{third['id']}/rotate", json={"grace_seconds": MAX_GRACE_S + 1}
        )
    assert too_long.status_code == 400
    assert (third["name"], third["coserve"]["scopes"]) == ("app", ["chat"])
    async with database.unit_of_work() as session:
        old = await keys.find_by_plaintext(session, first["value"])
        assert old is not None
        assert old.expires_at is not None
        assert await keys.find_by_plaintext(session, second["value"]) is None
        assert await keys.find_by_plaintext(session, third["value"]) is not None


async def test_operators_keys(tenants: Tenants) -> None:
    async with tenants.client() as client:
        operators = client.admin.organization.admin_api_keys
        made = await operators.create(
            name="olga", expires_in_seconds=600, extra_body={"role": "operator"}
        )
        assert made.owner.role == "operator"
        assert {one.name async for one in operators.list(limit=1)} == {"ada", "vi", "olga"}
        newest = [one.name async for one in operators.list(limit=2, order="desc")]
        assert newest[0] == "olga"
        assert (await operators.retrieve(made.id)).name == "olga"
        async with tenants.client(made.value) as hers:
            assert await hers.admin.organization.projects.retrieve("proj_default")
            with pytest.raises(openai.PermissionDeniedError, match="the role operator"):
                await hers.admin.organization.projects.create(name="no")
            with pytest.raises(openai.PermissionDeniedError, match="'files'"):
                await hers.files.list()
        assert (await operators.delete(made.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await operators.retrieve(made.id)


@pytest.mark.parametrize("who", ["viewer", "plain"])
async def test_who_may_not_manage(tenants: Tenants, who: str) -> None:
    async with tenants.http(getattr(tenants, who)) as http:
        base = "/organization/projects"
        for method, path, body in (
            ("POST", base, {"name": "x"}),
            ("POST", f"{base}/proj_default", {"name": "x"}),
            ("POST", f"{base}/proj_default/archive", None),
            ("POST", f"{base}/proj_default/api_keys", {"name": "x"}),
            ("DELETE", f"{base}/proj_default/api_keys/key_1", None),
            ("POST", "/organization/admin_api_keys", {"name": "x"}),
            ("GET", "/organization/audit_logs", None),
        ):
            reply = await http.request(method, path, json=body)
            assert reply.status_code == 403, (method, path, reply.text)
            assert reply.json()["error"]["code"] == "insufficient_permissions"
        seen = (await http.get(base)).status_code
    assert seen == (200 if who == "viewer" else 403)


WRONG = [
    ("name", {"name": ""}),
    ("name", {"name": "x" * 101}),
    ("name", {"name": "a\x00b"}),
    ("scopes", {"name": "x", "scopes": ["everything"]}),
    ("scopes", {"name": "x", "scopes": []}),
    ("expires_in_seconds", {"name": "x", "expires_in_seconds": 1}),
    ("coserve.tokens_per_minute", {"name": "x", "coserve": {"tokens_per_minute": -1}}),
    ("coserve.requests_per_minute", {"name": "x", "coserve": {"requests_per_minute": 2**31}}),
    ("role", {"name": "x", "role": "admin"}),
]


@pytest.mark.parametrize(("param", "body"), WRONG)
async def test_what_is_wrong_is_named(
    tenants: Tenants, param: str, body: dict[str, object]
) -> None:
    async with tenants.http() as http:
        reply = await http.post("/organization/projects/proj_default/api_keys", json=body)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param


async def test_every_act_is_in_the_audit_log_and_no_secret(
    tenants: Tenants, database: Database
) -> None:
    async with tenants.client() as client, tenants.http() as http:
        project = await client.admin.organization.projects.create(name="Search")
        base = f"/organization/projects/{project.id}/api_keys"
        made = await http.post(base, json={"name": "ci"})
        key = made.json()
        await client.admin.organization.projects.api_keys.delete(key["id"], project_id=project.id)
        logged = [one async for one in client.admin.organization.audit_logs.list(limit=1)]
        assert [one.type for one in logged] == [
            "api_key.deleted",
            "api_key.created",
            "project.created",
        ]
        created = logged[1]
        assert created.api_key_created is not None
        assert created.api_key_created.id == key["id"]
        assert created.project is not None
        assert (created.project.id, created.project.name) == (project.id, "Search")
        extra = (created.model_extra or {})["coserve"]
        assert extra["actor_name"] == "ada"
        assert extra["address"] == "127.0.0.1"
        assert extra["request_id"] == made.headers["x-request-id"]
        only = await client.admin.organization.audit_logs.list(
            event_types=["project.created"], project_ids=[project.id], effective_at={"gte": 1}
        )
        assert [one.type for one in only.data] == ["project.created"]
        none = await client.admin.organization.audit_logs.list(effective_at={"lt": 1})
        assert none.data == []
        page = await client.admin.organization.audit_logs.list(before=logged[-1].id, limit=1)
        assert [one.id for one in page.data] == [logged[1].id]
    async with tenants.client(tenants.stranger) as client:
        assert (await client.admin.organization.audit_logs.list()).data == []
    async with database.unit_of_work() as session:
        rows = (await session.execute(text("SELECT audit_log::text FROM audit_log"))).scalars()
        whole = "\n".join(rows)
    assert key["id"] in whole
    assert key["value"] not in whole
    assert key["value"][20:] not in whole


@pytest.mark.parametrize(
    "statement",
    ["UPDATE audit_log SET action = 'x'", "DELETE FROM audit_log", "TRUNCATE audit_log"],
)
async def test_the_log_cannot_be_changed(
    tenants: Tenants, database: Database, statement: str
) -> None:
    async with tenants.client() as client:
        await client.admin.organization.projects.create(name="Search")
    with pytest.raises(Exception, match="only ever appended"):
        async with database.unit_of_work() as session:
            await session.execute(text(statement))


async def test_a_refused_act_leaves_no_entry(tenants: Tenants) -> None:
    async with tenants.client() as client:
        with pytest.raises(openai.BadRequestError):
            await client.admin.organization.projects.create(name="")
        assert (await client.admin.organization.audit_logs.list()).data == []


async def test_tiers_of_keys_and_projects(tenants: Tenants) -> None:
    keys_of = "/organization/projects/proj_default/api_keys"
    tier = {"service_tier": "flex", "flex_wait_seconds": 30, "may_raise_tier": True}
    async with tenants.http() as http:
        made = (await http.post(keys_of, json={"name": "titles", "coserve": tier})).json()
        assert {name: made["coserve"][name] for name in tier} == tier
        rotated = (await http.post(f"{keys_of}/{made['id']}/rotate", json={})).json()
        assert {name: rotated["coserve"][name] for name in tier} == tier
        changed = await http.post(
            f"{keys_of}/{rotated['id']}", json={"coserve": {"service_tier": None}}
        )
        assert changed.json()["coserve"]["service_tier"] is None
        assert changed.json()["coserve"]["flex_wait_seconds"] == 30
        project = await http.post(
            "/organization/projects/proj_default", json={"coserve": {"service_tier": "flex"}}
        )
        assert project.json()["coserve"]["service_tier"] == "flex"
        for wrong in ({"service_tier": "batch"}, {"flex_wait_seconds": -1}):
            for path in (f"{keys_of}/{rotated['id']}", "/organization/projects/proj_default"):
                refused = await http.post(path, json={"coserve": wrong})
                (name,) = wrong
                assert refused.status_code == 400
                assert refused.json()["error"]["param"] == f"coserve.{name}"
        log = (await http.get("/organization/audit_logs")).json()["data"]
    created = next(one for one in log if one["type"] == "api_key.created")
    assert created["api_key.created"]["data"]["service_tier"] == "flex"
