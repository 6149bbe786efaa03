"""What the key ring does about keys in use: ends what is open, notes when they were used."""

from __future__ import annotations

import asyncio

import pytest

from api.errors import AuthenticationFailed
from gateway.auth.keys import NOTED_S, KeyRing
from gateway.auth.principal import Principal
from store.models import DEFAULT_PROJECT_ID, ApiKey
from store.repositories import key as keys
from store.session import Database
from tests.integration.gateway.test_keys import Seconds


async def new_key(database: Database) -> tuple[str, str]:
    async with database.unit_of_work() as session:
        key, plaintext = await keys.create(session, DEFAULT_PROJECT_ID, "k")
        return key.id, plaintext


async def read(database: Database, key_id: str) -> ApiKey:
    async with database.unit_of_work() as session:
        found = await keys.find(session, key_id)
        assert found is not None
        return found[0]


async def test_work_of_a_key_that_ends_is_cancelled(database: Database) -> None:
    keyring = KeyRing(database)
    key_id, plaintext = await new_key(database)
    principal = await keyring.principal({"authorization": f"Bearer {plaintext}"})
    other_id, other = await new_key(database)
    bystander = await keyring.principal({"authorization": f"Bearer {other}"})
    cleaned_up = False

    async def work() -> None:
        nonlocal cleaned_up
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up = True

    async def brief() -> str:
        await asyncio.sleep(0.2)
        return "done"

    doomed = asyncio.ensure_future(keyring.while_usable(principal, work()))
    spared = asyncio.ensure_future(keyring.while_usable(bystander, brief()))
    await asyncio.sleep(0)
    await keyring.end_revoked()
    assert not doomed.done()
    async with database.unit_of_work() as session:
        assert await keys.revoke(session, key_id)
    await keyring.end_revoked()
    with pytest.raises(AuthenticationFailed):
        await doomed
    assert cleaned_up
    assert doomed.cancelling() == 0
    assert await spared == "done"
    assert other_id != key_id


async def test_a_cancellation_from_elsewhere_stays_one(database: Database) -> None:
    keyring = KeyRing(database)
    principal = Principal("proj_1", "key_1")
    task = asyncio.ensure_future(keyring.while_usable(principal, asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await keyring.end_revoked()  # nothing is watched any more, nothing is asked


async def test_last_used_is_written_once_a_minute(database: Database) -> None:
    clock = Seconds()
    keyring = KeyRing(database, now_s=clock)
    key_id, plaintext = await new_key(database)
    await keyring.note_uses()
    assert (await read(database, key_id)).last_used_at is None
    await keyring.principal({"authorization": f"Bearer {plaintext}"})
    await keyring.note_uses()
    first = (await read(database, key_id)).last_used_at
    assert first is not None
    clock.now_s = NOTED_S - 1
    await keyring.principal({"authorization": f"Bearer {plaintext}"})
    await keyring.note_uses()
    assert (await read(database, key_id)).last_used_at == first
    clock.now_s = NOTED_S
    await keyring.note_uses()
    second = (await read(database, key_id)).last_used_at
    assert second is not None
    assert second > first
