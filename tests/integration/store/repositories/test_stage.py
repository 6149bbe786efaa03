"""Claims of stage work: whose turn it is, that nobody has a batch twice, and what a look costs."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import pytest
from sqlalchemy import TextClause, text

from batch.files.memory import MemoryFileStore
from store.repositories import batch as batches
from store.repositories import stage as stages
from store.repositories.stage import Claim, Sizes
from store.session import Database
from tests.fixtures.batches import MODEL, add_batch, add_project, add_validating, end_window, line

SIZES = Sizes(long_bytes=2**25, long_rows=5000, small_bytes=2**16, small_rows=64)
LEASE: dict[str, Any] = {"lease_s": 60.0, "sizes": SIZES}
MINE, OTHERS, THIRD = "proj_default", "proj_other", "proj_third"


async def _claim_all(database: Database, num: int, after: str = "", **options: Any) -> list[Claim]:
    async with database.unit_of_work() as session:
        return await stages.claim(session, after=after, num=num, **{**LEASE, **options})


async def _claim(database: Database, after: str = "", **options: Any) -> Claim | None:
    found = await _claim_all(database, 1, after, **options)
    return found[0] if found else None


async def _validating(database: Database, num: int, project_id: str = MINE) -> list[str]:
    await add_project(database, project_id)
    store = MemoryFileStore()
    return [
        await add_validating(database, store, [line("a")], project_id=project_id)
        for _ in range(num)
    ]


async def _multiply(database: Database, batch_id: str, num: int, **changed: str) -> None:
    """So many batches more like this one, and the tables' statistics as they are after a while."""
    async with database.unit_of_work() as session:
        found = await session.scalars(
            text(
                "SELECT column_name FROM information_schema.columns"
                " WHERE table_name = 'batches' AND table_schema = current_schema()"
            )
        )
        columns = [one for one in found if one != "id"]
        values = ", ".join(changed.get(one, f'"{one}"') for one in columns)
        names = ", ".join(f'"{one}"' for one in columns)
        await session.execute(
            text(
                f"INSERT INTO batches (id, {names}) SELECT 'batch_copy' || n, {values}"
                f" FROM batches, generate_series(1, {num}) n WHERE id = :id"
            ),
            {"id": batch_id},
        )
        await session.execute(text("ANALYZE batches"))


async def test_the_oldest_comes_first_and_each_once(database: Database) -> None:
    waiting = await _validating(database, 5)
    claimed = [await _claim(database) for _ in range(6)]
    assert [one and one.id for one in claimed] == [*waiting, None]


async def test_projects_take_turns_however_much_one_has_waiting(database: Database) -> None:
    many = await _validating(database, 200)
    few = await _validating(database, 2, OTHERS)
    third = await _validating(database, 1, THIRD)
    after, turns = "", []
    for _ in range(6):
        claimed = await _claim(database, after)
        assert claimed is not None
        after = claimed.project_id
        turns.append(claimed.id)
    assert turns == [many[0], few[0], third[0], many[1], few[1], many[2]]


async def test_a_claim_of_several_goes_on_with_the_next_project(database: Database) -> None:
    many = await _validating(database, 5)
    few = await _validating(database, 2, OTHERS)
    first = await _claim_all(database, 3)
    assert {one.id for one in first} == set(many[:3])
    second = await _claim_all(database, 3, first[-1].project_id)
    assert {one.id for one in second} == set(few)
    third = await _claim_all(database, 3, second[-1].project_id)
    assert {one.id for one in third} == set(many[3:])


async def test_a_claim_has_one_batch_at_most_that_is_not_small(database: Database) -> None:
    waiting = await _validating(database, 6)
    async with database.unit_of_work() as session:
        await session.execute(
            text(
                "UPDATE files SET size_bytes = :num WHERE id IN"
                " (SELECT input_file_id FROM batches WHERE id = ANY(:ids))"
            ),
            {"num": SIZES.small_bytes + 1, "ids": waiting[1:4]},
        )
    claimed = await _claim_all(database, 6)
    assert {one.id for one in claimed if one.is_small} == {waiting[0], *waiting[4:]}
    assert {one.id for one in claimed if not one.is_small} == {waiting[1]}
    assert {one.id for one in await _claim_all(database, 6)} == {waiting[2]}


async def test_workers_at_once_never_claim_one_batch(database: Database) -> None:
    waiting = await _validating(database, 40)

    async def worker() -> list[str]:
        own = []
        while (claimed := await _claim(database)) is not None:
            own.append(claimed.id)
        return own

    found = await asyncio.gather(*(worker() for _ in range(8)))
    claimed = [one for own in found for one in own]
    # One that another holds in this moment is passed over: whoever comes then finds it gone.
    assert sorted(claimed) == sorted(waiting)


async def test_a_claim_ends_with_its_lease_and_not_before(database: Database) -> None:
    (waiting,) = await _validating(database, 1)
    first = await _claim(database)
    assert first is not None
    assert await _claim(database) is None
    async with database.unit_of_work() as session:
        assert set(await stages.renew(session, [first], lease_s=-1.0)) == {waiting}
    second = await _claim(database)
    assert second is not None
    assert second.id == waiting
    async with database.unit_of_work() as session:
        # Whoever had it before changes nothing any more.
        assert await stages.renew(session, [first], lease_s=60.0) == {}
        await stages.release(session, [first])
    assert await _claim(database) is None
    async with database.unit_of_work() as session:
        await stages.release(session, [second])
    assert await _claim(database) is not None


async def test_a_project_that_rests_has_no_turn(database: Database) -> None:
    await _validating(database, 1)
    (other,) = await _validating(database, 1, OTHERS)
    claimed = await _claim(database, resting=[MINE])
    assert claimed is not None
    assert claimed.id == other
    assert await _claim(database, resting=[MINE]) is None


async def test_a_batch_wants_a_stage_only_when_there_is_one(database: Database) -> None:
    batch_id = await add_batch(database, MemoryFileStore(), [line("a")])

    async def change(what: str) -> Claim | None:
        async with database.unit_of_work() as session:
            await session.execute(
                text(f"UPDATE batches SET {what} WHERE id = :id"), {"id": batch_id}
            )
        return await _claim(database)

    at_once = "stage_at = statement_timestamp() - interval '1 second'"
    assert await _claim(database) is None, "a row is open"
    assert await change("num_completed = 1, paused_at = now()") is None, "it is paused"
    assert await change("paused_at = NULL") is not None, "every row has its end"
    assert await change(f"num_completed = 0, {at_once}") is None
    await end_window(database, batch_id)
    claimed = await _claim(database)
    assert claimed is not None
    assert claimed.is_overdue
    assert await change(f"status = 'cancelling', expires_at = now() + interval '1 day', {at_once}")
    assert await change(f"status = 'cancelled', {at_once}") is None


@pytest.mark.parametrize("what", ["claim", "oldest", "live"])
async def test_what_a_look_costs_does_not_grow_with_the_live_batches(
    database: Database, what: str
) -> None:
    """Counted in rows that Postgres visits: of 3,000 batches that wait, and 3,000 that run."""
    (waiting,) = await _validating(database, 1)
    await _multiply(database, waiting, 3000, stage_at="stage_at + n * interval '1 microsecond'")
    running = await add_batch(database, MemoryFileStore(), [line("a")])
    async with database.unit_of_work() as session:
        await session.execute(
            text("UPDATE batches SET id = 'batch_other' || id WHERE id LIKE 'batch_copy%'")
        )
    await _multiply(database, running, 3000)
    async with database.unit_of_work() as session:
        await session.execute(
            text(
                "INSERT INTO batch_rows (batch_id, line_no, custom_id, offset_bytes, length_bytes)"
                " SELECT id, 1, 'a', 0, 1 FROM batches WHERE id LIKE 'batch_copy%'"
            )
        )
        await session.execute(text("ANALYZE batch_rows"))
    looks: dict[str, tuple[TextClause, dict[str, object]]] = {
        "claim": (
            stages._CLAIM,
            {"after": "", "resting": [], "lease_s": 60.0, "num": 32, **asdict(SIZES)},
        ),
        "oldest": (stages._OLDEST, {"after": ""}),
        "live": (batches._LIVE, {"models": [MODEL], "held": [], "per_project": 8}),
    }
    statement, values = looks[what]
    async with database.unit_of_work() as session:
        explained = text(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.text}")
        ((plan,),) = (await session.execute(explained, values)).scalars()
    assert _rows_visited(plan["Plan"]) < 600, plan


def _rows_visited(node: dict[str, Any]) -> float:
    removed = sum(num for name, num in node.items() if name.startswith("Rows Removed"))
    own = (node["Actual Rows"] + removed) * node["Actual Loops"]
    return float(own + sum(_rows_visited(one) for one in node.get("Plans", ())))
