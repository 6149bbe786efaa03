"""`OpenAI-Organization` and `OpenAI-Project`: answered, not obeyed."""

from __future__ import annotations

import pytest

from store.models import DEFAULT_ORGANIZATION_ID, DEFAULT_PROJECT_ID
from tests.integration.gateway.tenants.conftest import Tenants

NAMED = {
    "nothing": {},
    "an account elsewhere": {"openai-organization": "org-AbC", "openai-project": "proj_AbC"},
    "nonsense": {"openai-organization": "", "openai-project": "../../etc"},
    "the default ones": {
        "openai-organization": DEFAULT_ORGANIZATION_ID,
        "openai-project": DEFAULT_PROJECT_ID,
    },
}


@pytest.mark.contract("T-05")
@pytest.mark.parametrize("named", NAMED)
async def test_the_key_alone_says_whose_a_request_is(tenants: Tenants, named: str) -> None:
    async with tenants.http() as mine, tenants.http(tenants.stranger) as theirs:
        sent: dict[str, tuple[str | None, bytes | str]] = {
            "file": ("a.txt", b"mine"),
            "purpose": (None, "user_data"),
        }
        made = (await mine.post("/files", files=sent)).json()["id"]
        reply = await theirs.get("/files", headers=NAMED[named])
        assert reply.status_code == 200
        assert made not in reply.text
        assert reply.headers["openai-project"] == tenants.stranger_project
        assert reply.headers["openai-organization"].startswith("org_")
        assert reply.headers["openai-organization"] != DEFAULT_ORGANIZATION_ID
        # Also where the answer is an error: which project was it that had no such file?
        gone = await theirs.get(f"/files/{made}", headers=NAMED[named])
        assert gone.status_code == 404
        assert gone.headers["openai-project"] == tenants.stranger_project


async def test_a_stranger_learns_nothing(tenants: Tenants) -> None:
    async with tenants.http("sk-coserve-wrong") as http:
        reply = await http.get("/files", headers=NAMED["the default ones"])
    assert reply.status_code == 401
    assert "openai-project" not in reply.headers
    assert "openai-organization" not in reply.headers
