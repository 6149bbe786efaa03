"""`coserve doctor` and `coserve upgrade --check` against a real database."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from coserve.checkup.service import engines_in_use
from coserve.cli import app
from store.repositories import engine as engines
from store.schema import FIRST, LAST_BEFORE, LAST_COMMIT_BEFORE, NEEDED
from store.session import Database
from tests.integration.coserve.commands.test_shapes import documented


@pytest.fixture
def cli(
    database_url: str, broker_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CliRunner:
    for name, value in {
        "DATABASE_URL": database_url,
        "BROKER_URL": broker_url,
        "ENGINE_URLS": "http://127.0.0.1:1",
        "COSERVE_HOME": str(tmp_path),
        "COSERVE_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    return CliRunner()


def findings(cli: CliRunner) -> dict[str, dict[str, str]]:
    done = cli.invoke(app, ["doctor", "--json"])
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(set(one) == documented()["doctor"] for one in found)
    assert done.exit_code == (1 if any(one["state"] == "bad" for one in found) else 0)
    return {one["name"]: one for one in found}


def test_what_is_well_is_said_to_be(cli: CliRunner) -> None:
    found = findings(cli)
    assert found["host"]["state"] == "good"
    assert found["database"]["state"] == "good"
    assert found["broker"]["state"] == "good"
    assert found["engine"]["state"] == "unknown", "nothing runs"
    assert set(found) >= {"port", "disk", "memory", "processor", "GPU", "engine packages"}


def set_schema(url: str, number: str) -> None:
    async def change() -> None:
        database = Database(url)
        async with database.unit_of_work() as session:
            await session.execute(
                text("UPDATE alembic_version SET version_num = :n"), {"n": number}
            )
        await database.dispose()

    asyncio.run(change())


def test_each_fault_has_its_fix(
    cli: CliRunner, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_schema(database_url, FIRST)
    monkeypatch.setenv("BROKER_URL", "redis://127.0.0.1:1/0")
    found = findings(cli)
    assert (found["database"]["state"], found["broker"]["state"]) == ("bad", "bad")
    assert "coserve serve migrate" in found["database"]["fix"]
    assert "BROKER_URL" in found["broker"]["fix"]
    monkeypatch.setenv("DATABASE_URL", "postgresql+psycopg://app@/app?host=/nowhere")
    away = findings(cli)["database"]
    assert (away["state"], "DATABASE_URL" in away["fix"]) == ("bad", True)
    told = cli.invoke(app, ["doctor"]).stdout
    assert "database: " in told


def test_an_upgrade_is_told_before_it_happens(cli: CliRunner, database_url: str) -> None:
    done = cli.invoke(app, ["upgrade", "--check", "--json"])
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    assert set(plan) == documented()["upgrade --check"]
    assert (plan["schema"], plan["migrations"], plan["live_batches"]) == (NEEDED, [], 0)
    set_schema(database_url, LAST_BEFORE[0])
    plan = json.loads(cli.invoke(app, ["upgrade", "--check", "--json"]).stdout)
    assert plan["migrations"][0]["schema"] == "0101"
    assert all(one["title"] for one in plan["migrations"])
    assert "would run migration 0101: " in cli.invoke(app, ["upgrade", "--check"]).stdout
    assert cli.invoke(app, ["upgrade"]).exit_code == 2
    set_schema(database_url, "9999")
    plan = json.loads(cli.invoke(app, ["upgrade", "--check", "--json"]).stdout)
    assert (plan["newer_database"], plan["migrations"], plan["refused"]) == (True, [], None)


def test_a_database_that_is_too_old_is_told(cli: CliRunner, database_url: str) -> None:
    set_schema(database_url, "0016")
    done = cli.invoke(app, ["upgrade", "--check", "--json"])
    assert done.exit_code == 1
    assert LAST_COMMIT_BEFORE in json.loads(done.stdout)["refused"]
    database = findings(cli)["database"]
    assert (database["state"], LAST_COMMIT_BEFORE in database["fix"]) == ("bad", True)


def test_another_programs_database_is_told(cli: CliRunner, database_url: str) -> None:
    set_schema(database_url, "a1b2c3d4e5f6")
    done = cli.invoke(app, ["upgrade", "--check", "--json"])
    assert done.exit_code == 1
    assert "none of coserve's" in json.loads(done.stdout)["refused"]
    database = findings(cli)["database"]
    assert (database["state"], "DATABASE_URL" in database["fix"]) == ("bad", True)


async def test_engines_of_earlier_starts_are_not_missed(database: Database) -> None:
    async with database.unit_of_work() as session:
        for number in (3, 1, 2):
            await engines.saw(session, f"http://127.0.0.1:{number}", "m", 2048, {})
            await session.execute(text("UPDATE engines SET seen_at = seen_at - interval '1 hour'"))
        await engines.add(session, "http://rack:1")
        assert await engines_in_use(session, []) == ["http://127.0.0.1:2", "http://rack:1"]
        assert await engines_in_use(session, ["http://named:1"]) == [
            "http://named:1",
            "http://rack:1",
        ]
