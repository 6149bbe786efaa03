from __future__ import annotations

from sqlalchemy import text

from store.repositories import suspect as suspects
from store.repositories.suspect import FORGET_S, MAX_SUSPECTS, Loss
from store.session import Database

FIRST, SECOND = "http://first", "http://second"


async def counted(database: Database, *losses: Loss) -> dict[bytes, int]:
    async with database.unit_of_work() as session:
        await suspects.note(session, losses)
        return {one.digest: one.num_losses for one in await suspects.known(session)}


async def test_what_was_there_at_one_loss_counts_once(database: Database) -> None:
    at_first = Loss(b"a", FIRST, sent_s=9, lost_s=5)
    assert await counted(database, at_first, at_first) == {b"a": 1}
    # Told of late by another gateway, but it had been sent before the engine was lost.
    assert await counted(database, Loss(b"a", FIRST, sent_s=7, lost_s=0)) == {b"a": 1}
    assert await counted(database, Loss(b"a", FIRST, sent_s=4, lost_s=3)) == {b"a": 2}
    assert await counted(database, Loss(b"a", SECOND, sent_s=9, lost_s=0)) == {b"a": 3}


async def test_suspects_are_forgotten_and_bounded(database: Database) -> None:
    assert await counted(database, Loss(b"old", FIRST, FORGET_S + 2, FORGET_S + 1)) == {}
    twice = [Loss(b"twice", url, 90, 90) for url in (FIRST, SECOND)]
    await counted(database, *twice)
    many = [Loss(str(i).encode(), FIRST, 1, 1) for i in range(MAX_SUSPECTS + 5)]
    found = await counted(database, *many)
    assert len(found) == MAX_SUSPECTS
    assert found[b"twice"] == 2
    async with database.unit_of_work() as session:
        kept = await session.scalar(text("SELECT count(*) FROM suspects"))
    assert kept == MAX_SUSPECTS


async def test_one_trial_at_a_time(database: Database) -> None:
    await counted(database, Loss(b"a", FIRST, 90, 90), Loss(b"b", FIRST, 90, 90))

    async def tries(digest: bytes, hold_s: float = 30, trial_s: float = 60) -> bool:
        async with database.unit_of_work() as session:
            return await suspects.begin_trial(session, [digest], hold_s=hold_s, trial_s=trial_s)

    assert not await tries(b"a", hold_s=100)
    assert await tries(b"a")
    assert not await tries(b"b")
    assert await tries(b"b", trial_s=0)
    async with database.unit_of_work() as session:
        await suspects.acquit(session, [b"a", b"b"])
    await counted(database, Loss(b"c", FIRST, 90, 90))
    assert await tries(b"c")
