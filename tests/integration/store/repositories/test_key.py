"""Which keys open something, and for whom."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from store.repositories import key as keys
from store.session import Database

ENDS = {
    "revoked": "UPDATE api_keys SET revoked_at = now()",
    "expired": "UPDATE api_keys SET expires_at = now() - interval '1 s'",
    "archived": "UPDATE projects SET archived_at = now()",
}


@pytest.mark.parametrize("end", ENDS)
async def test_a_key_that_ended_opens_nothing(database: Database, end: str) -> None:
    async with database.unit_of_work() as session:
        key, plaintext = await keys.create(session, "proj_default", "a", role="admin")
        assert await keys.find_by_plaintext(session, plaintext) is key
        assert await keys.find_operator(session, key.id) is not None
        assert await keys.unusable(session, [key.id]) == set()
        await session.execute(text(ENDS[end]))
        assert await keys.find_by_plaintext(session, plaintext) is None
        assert await keys.find_operator(session, key.id) is None
        assert await keys.unusable(session, [key.id]) == {key.id}


async def test_an_operator_is_a_key_with_a_role(database: Database) -> None:
    async with database.unit_of_work() as session:
        plain, _ = await keys.create(session, "proj_default", "b")
        assert await keys.find_operator(session, plain.id) is None
        assert await keys.find_operator(session, "key_none") is None
