"""What `--json` prints has the keys that docs/cli.md names, verb by verb."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer.main
from typer.testing import CliRunner

from coserve.cli import app
from store.repositories import engine as engines
from store.repositories import key as keys
from store.repositories import usage as usages
from store.repositories.usage import UsageCount, UsageKey
from store.session import Database
from tests.fixtures.live_gateway import Api
from tests.integration.coserve.commands.test_batch import coserve_batch, line

ROOT = Path(__file__).parents[4]


def documented() -> dict[str, set[str]]:
    """The keys of each verb in the table of docs/cli.md; empty where it points elsewhere."""
    found: dict[str, set[str]] = {}
    for row in re.findall(r"^\| (`coserve .*?) \| (.*) \|$", _page(), re.MULTILINE):
        for verb in re.findall(r"`coserve ([a-z -]+)`", row[0]):
            found[verb] = set(re.findall(r"`([a-z_]+)`", row[1]))
    return found


def _page() -> str:
    return (ROOT / "docs/cli.md").read_text().partition("## For scripts")[2]


def verbs_with(*wanted: str) -> set[str]:
    """Verbs that take all these options."""

    def walk(command: Any, name: str) -> set[str]:
        if hasattr(command, "commands"):
            below = (walk(one, f"{name} {word}".strip()) for word, one in command.commands.items())
            return set().union(*below)
        return {name} if set(wanted) <= {one.name for one in command.params} else set()

    return walk(typer.main.get_command(app), "")


def test_every_verb_with_json_is_in_the_table() -> None:
    told = {verb.removesuffix(" --check") for verb in documented()}
    assert verbs_with("json") | {"batch results"} == told


def test_every_list_is_limited_and_filtered() -> None:
    lists = {verb for verb in verbs_with() if verb.endswith(" list")}
    assert len(lists) > 5
    more = {"audit", "usage", "batch events", "batch results"}
    assert lists | more == verbs_with("limit", "filters")


@pytest.fixture
def cli(database_url: str, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("DATABASE_URL", database_url)
    return CliRunner()


def objects(cli: CliRunner, *words: str) -> list[dict[str, Any]]:
    done = cli.invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    return [json.loads(each) for each in done.stdout.splitlines()]


def seed(database_url: str) -> None:
    async def fill() -> None:
        database = Database(database_url)
        async with database.unit_of_work() as session:
            key, _ = await keys.create(session, "proj_default", "ci")
            await keys.create(session, "proj_default", "olga", role="admin")
            await engines.add(session, "http://engine-2:30000")
            used = UsageKey("proj_default", key.id, "m", "online")
            await usages.add(session, {used: UsageCount(1, 2, 0, 3)})
        await database.dispose()

    asyncio.run(fill())


@pytest.mark.parametrize(
    "verb", ["org list", "project list", "key list", "user list", "usage", "engine list"]
)
def test_lists_of_the_database(cli: CliRunner, database_url: str, verb: str) -> None:
    seed(database_url)
    found = objects(cli, *verb.split())
    assert found
    for one in found:
        assert set(one) == documented()[verb]


def test_an_audit_entry_is_the_apis(cli: CliRunner) -> None:
    cli.invoke(app, ["key", "create", "ci"])
    (entry,) = objects(cli, "audit")
    assert entry["object"] == "organization.audit_log"
    assert entry["type"] == "api_key.created"


def test_lists_are_filtered_and_limited(cli: CliRunner) -> None:
    for name in ("ci-one", "ci-two", "other"):
        cli.invoke(app, ["key", "create", name])
    assert {one["name"] for one in objects(cli, "key", "list", "--filter", "name=CI-*")} == {
        "ci-one",
        "ci-two",
    }
    assert len(objects(cli, "key", "list", "--filter", "name=ci-*", "--limit", "1")) == 1
    assert len(objects(cli, "audit", "--filter", "coserve.source=cli")) == 3
    unknown = cli.invoke(app, ["key", "list", "--filter", "nane=x"])
    assert unknown.exit_code == 2
    assert "no key 'nane'" in unknown.stderr
    assert cli.invoke(app, ["key", "list", "--filter", "name"]).exit_code == 2


async def test_batches(api: Api, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(line("a"))
    quiet = await coserve_batch(api, "submit", str(path), "--quiet", "--metadata", "team=blue")
    batch_id = quiet.stdout.strip()
    assert re.fullmatch(r"batch_\w+", batch_id)
    second = (await coserve_batch(api, "submit", str(path), "--quiet")).stdout.strip()

    listed = await coserve_batch(api, "list", "--json")
    found = [orjson.loads(each) for each in listed.stdout.splitlines()]
    assert [one["id"] for one in found] == [second, batch_id]
    async with api.client() as client:
        sent = await client.batches.with_raw_response.retrieve(batch_id)
    assert set(found[1]) == set(orjson.loads(sent.content))
    blue = await coserve_batch(api, "list", "--json", "--filter", "metadata.team=blue")
    assert [orjson.loads(each)["id"] for each in blue.stdout.splitlines()] == [batch_id]
    got = orjson.loads((await coserve_batch(api, "get", batch_id, "--json")).stdout)
    assert got["id"] == batch_id
    told = (await coserve_batch(api, "get", batch_id)).stdout
    assert "priority 0, window 24h" in told
    assert "metadata team=blue" in told
    lower = await coserve_batch(api, "priority", batch_id, "-10")
    assert lower.exit_code == 0, lower.output
    got = orjson.loads((await coserve_batch(api, "get", batch_id, "--json")).stdout)
    assert got["coserve"]["priority"] == -10
    listed = await coserve_batch(api, "events", batch_id, "--json")
    happened = [orjson.loads(each) for each in listed.stdout.splitlines()]
    assert happened == got["events"]
    assert [(one["event"], one["actor"]) for one in happened] == [
        ("created", "mine (api)"),
        ("priority_changed", "mine (api)"),
    ]
    assert set(happened[0]) == documented()["batch events"]
    few = await coserve_batch(api, "events", batch_id, "--json", "--filter", "event=prio*")
    assert [orjson.loads(each) for each in few.stdout.splitlines()] == happened[1:]
    assert "mine (api)" in (await coserve_batch(api, "events", batch_id)).stdout
    assert "priority changed by mine (api)" in (await coserve_batch(api, "get", batch_id)).stdout
    assert (await coserve_batch(api, "priority", batch_id, "--no-such", "1")).exit_code == 2


def test_a_check_as_json(cli: CliRunner, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(line("a") + b"\n{")
    done = cli.invoke(app, ["batch", "check", str(path), "--json"])
    report = json.loads(done.stdout)
    assert done.exit_code == 1
    assert set(report) == documented()["batch check"]
    assert report["valid"] is False
    assert [one["line"] for one in report["errors"]] == [2]


def test_completion_knows_the_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"_COSERVE_COMPLETE": "complete_bash", "COMP_WORDS": "coserve ba", "COMP_CWORD": "1"}
    done = CliRunner().invoke(app, [], prog_name="coserve", env=env)
    assert "batch" in done.stdout.split()
