"""Keys: kept as hashes, revoked within seconds."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from api.errors import AuthenticationFailed
from gateway.auth import keys as ring
from gateway.auth.keys import KeyRing
from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.session import Database


class Seconds:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def test_the_plain_text_is_nowhere(database: Database) -> None:
    async with database.unit_of_work() as session:
        key, plaintext = await keys.create(session, DEFAULT_PROJECT_ID, "k", role="admin")
        assert plaintext.startswith("sk-coserve-")
        assert len(plaintext) > 40
        row = (await session.execute(text("SELECT * FROM api_keys"))).one()
        assert plaintext not in str(row)
        assert plaintext.startswith(row.prefix)
        assert await keys.find_by_plaintext(session, plaintext) is key
        assert await keys.find_by_plaintext(session, plaintext + "x") is None


async def test_a_principal_and_its_scopes(database: Database) -> None:
    async with database.unit_of_work() as session:
        key, plaintext = await keys.create(session, DEFAULT_PROJECT_ID, "k", role="admin")
    principal = await KeyRing(database).principal({"authorization": f"Bearer {plaintext}"})
    assert (principal.project_id, principal.key_id) == (DEFAULT_PROJECT_ID, key.id)
    assert principal.role == "admin"
    assert principal.scopes == {"chat", "files", "batches", "webhooks"}


async def test_a_revoked_key_stops_working_within_five_seconds(database: Database) -> None:
    clock = Seconds()
    keyring = KeyRing(database, now_s=clock)
    async with database.unit_of_work() as session:
        key, plaintext = await keys.create(session, DEFAULT_PROJECT_ID, "k")
    header = {"authorization": f"Bearer {plaintext}"}
    await keyring.principal(header)
    async with database.unit_of_work() as session:
        assert await keys.revoke(session, key.id)
        assert not await keys.revoke(session, key.id)
    assert ring.KEPT_S < 5
    clock.now_s = ring.KEPT_S - 0.1
    await keyring.principal(header)
    clock.now_s = ring.KEPT_S + 0.1
    with pytest.raises(AuthenticationFailed):
        await keyring.principal(header)


async def test_a_key_works_soon_after_it_was_made(database: Database) -> None:
    clock = Seconds()
    keyring = KeyRing(database, now_s=clock)
    plaintext = "sk-coserve-" + "x" * 40
    with pytest.raises(AuthenticationFailed):
        await keyring.principal({"authorization": f"Bearer {plaintext}"})
    async with database.unit_of_work() as session:
        await keys.create(session, DEFAULT_PROJECT_ID, "k", plaintext=plaintext)
    clock.now_s = ring.UNKNOWN_KEPT_S + 0.1
    await keyring.principal({"authorization": f"Bearer {plaintext}"})


async def test_an_expired_key(database: Database) -> None:
    async with database.unit_of_work() as session:
        _, plaintext = await keys.create(session, DEFAULT_PROJECT_ID, "k")
        await session.execute(text("UPDATE api_keys SET expires_at = now() - interval '1 s'"))
    with pytest.raises(AuthenticationFailed):
        await KeyRing(database).principal({"authorization": f"Bearer {plaintext}"})


async def test_surrogates_in_a_key_are_a_wrong_key(database: Database) -> None:
    with pytest.raises(AuthenticationFailed):
        await KeyRing(database).principal({"authorization": "Bearer \udc80\udcff"})
