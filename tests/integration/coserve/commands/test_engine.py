"""`coserve engine` against a real database."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from coserve.cli import app
from store.repositories import engine as engines
from store.repositories.engine import EngineEntry
from store.session import Database

URL = "http://engine-2:30000"
STATIC = "http://127.0.0.1:1"


@pytest.fixture
def cli(database_url: str, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("DATABASE_URL", database_url)
    return CliRunner()


def in_use(database_url: str) -> list[EngineEntry]:
    async def read() -> list[EngineEntry]:
        database = Database(database_url)
        async with database.unit_of_work() as session:
            found = await engines.in_use(session, [STATIC])
        await database.dispose()
        return found

    return asyncio.run(read())


def test_an_engine_is_added_drained_resumed_and_removed(cli: CliRunner, database_url: str) -> None:
    static = EngineEntry(STATIC, draining=False)
    assert in_use(database_url) == [static]
    assert cli.invoke(app, ["engine", "add", f"{URL}/"]).exit_code == 0
    assert in_use(database_url) == [static, EngineEntry(URL, draining=False)]
    (line,) = [one for one in cli.invoke(app, ["engine", "list"]).stdout.splitlines() if URL in one]
    assert "registered" in line
    assert "in use" in line

    assert cli.invoke(app, ["engine", "drain", URL]).exit_code == 0
    assert in_use(database_url) == [static, EngineEntry(URL, draining=True)]
    assert "draining" in cli.invoke(app, ["engine", "list"]).stdout
    assert cli.invoke(app, ["engine", "resume", URL]).exit_code == 0
    assert in_use(database_url) == [static, EngineEntry(URL, draining=False)]

    assert cli.invoke(app, ["engine", "remove", URL]).exit_code == 0
    assert in_use(database_url) == [static]
    assert cli.invoke(app, ["engine", "remove", URL]).exit_code == 1
    assert cli.invoke(app, ["engine", "add", URL]).exit_code == 0
    assert in_use(database_url) == [static, EngineEntry(URL, draining=False)]


def audited(cli: CliRunner) -> list[tuple[str, str]]:
    """What was done, the oldest first, and through which door."""
    found = cli.invoke(app, ["audit", "--json"]).stdout.splitlines()
    entries = [json.loads(one) for one in reversed(found)]
    return [(one["type"], one["coserve"]["source"]) for one in entries]


def test_an_engine_has_a_name(cli: CliRunner) -> None:
    cli.invoke(app, ["engine", "add", URL])
    assert cli.invoke(app, ["engine", "name", URL, "rack 2"]).exit_code == 0
    assert "rack 2" in cli.invoke(app, ["engine", "list"]).stdout
    assert "engine-2:30000" in cli.invoke(app, ["engine", "name", URL, ""]).stdout
    for wrong in ("x" * 65, " a", "a\tb"):
        assert cli.invoke(app, ["engine", "name", URL, wrong]).exit_code == 2
    cli.invoke(app, ["engine", "drain", URL])
    cli.invoke(app, ["engine", "resume", URL])
    cli.invoke(app, ["engine", "remove", URL])
    assert cli.invoke(app, ["engine", "remove", URL]).exit_code == 1
    words = ("added", "named", "named", "drained", "resumed", "removed")
    assert audited(cli) == [(f"engine.{word}", "cli") for word in words]


def test_an_engine_of_the_settings_can_be_drained_but_not_removed(
    cli: CliRunner, database_url: str
) -> None:
    async def see() -> None:
        database = Database(database_url)
        async with database.unit_of_work() as session:
            await engines.saw(session, STATIC, "m", 100, {})
        await database.dispose()

    asyncio.run(see())
    assert cli.invoke(app, ["engine", "drain", STATIC]).exit_code == 0
    assert in_use(database_url) == [EngineEntry(STATIC, draining=True)]
    refused = cli.invoke(app, ["engine", "remove", STATIC])
    assert refused.exit_code == 1
    assert "ENGINE_URLS" in refused.stderr


@pytest.mark.parametrize("url", ["engine:30000", "ftp://engine", "http://", "http://a:b@engine"])
def test_what_is_no_address_is_refused(cli: CliRunner, url: str) -> None:
    refused = cli.invoke(app, ["engine", "add", url])
    assert refused.exit_code == 2
    assert "address" in refused.stderr


@pytest.mark.parametrize("verb", ["drain", "resume"])
def test_an_unknown_engine_is_told(cli: CliRunner, verb: str) -> None:
    assert cli.invoke(app, ["engine", verb, URL]).exit_code == 1


WRONG = ["http://127.0.0.1:99999", "http://engine:0", "http://a\nb:1", "http://engine/#x"]


@pytest.mark.parametrize("url", WRONG)
def test_an_address_that_nothing_can_be_sent_to_is_refused(cli: CliRunner, url: str) -> None:
    assert cli.invoke(app, ["engine", "add", url]).exit_code == 2


@pytest.mark.parametrize("url", [*WRONG, "HTTP://Engine:1/"])
def test_one_that_is_in_the_database_is_shown_and_can_be_removed(
    cli: CliRunner, database_url: str, url: str
) -> None:
    async def write() -> None:
        database = Database(database_url)
        async with database.unit_of_work() as session:
            await engines.add(session, url)
        await database.dispose()

    asyncio.run(write())
    listed = cli.invoke(app, ["engine", "list", "--json"]).stdout.splitlines()
    states = {one["url"]: one["state"] for one in map(json.loads, listed)}
    wanted = "not an address" if url in WRONG else "in use"
    assert states[url] == wanted
    assert cli.invoke(app, ["engine", "remove", url]).exit_code == 0
    assert in_use(database_url) == [EngineEntry(STATIC, draining=False)]


def test_a_level_is_set_and_given_back(cli: CliRunner, database_url: str) -> None:
    assert cli.invoke(app, ["engine", "add", URL]).exit_code == 0
    assert cli.invoke(app, ["engine", "level", URL, "invisible"]).exit_code == 0
    assert in_use(database_url)[1].level == "invisible"
    assert "invisible" in cli.invoke(app, ["engine", "list"]).stdout
    assert cli.invoke(app, ["engine", "level", URL, "own"]).exit_code == 0
    assert in_use(database_url)[1].level is None
    assert cli.invoke(app, ["engine", "level", URL, "most"]).exit_code == 2
    assert cli.invoke(app, ["engine", "level", "http://nowhere:1", "max"]).exit_code == 1
    assert ("engine.level_set", "cli") in audited(cli)
