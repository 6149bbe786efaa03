"""`coserve org|project|key|user|audit|usage` against a real database."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from coserve.cli import app
from store.repositories import key as keys
from store.repositories import usage as usages
from store.repositories.usage import UsageCount, UsageKey
from store.session import Database


class Shell:
    """Types commands, and expects them to succeed unless told otherwise."""

    def __init__(self) -> None:
        self._runner = CliRunner()

    def __call__(self, *words: str, fails: int = 0) -> str:
        done = self._runner.invoke(app, list(words))
        assert done.exit_code == fails, done.output
        assert "Traceback" not in done.output
        return (done.stderr if fails else done.stdout).strip()

    def line(self, having: str, *words: str) -> str:
        (line,) = [line for line in self(*words).splitlines() if having in line]
        return line


@pytest.fixture
def coserve(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("DATABASE_URL", database_url)
    return Shell()


def test_a_key_is_made_listed_rotated_and_revoked(coserve: Shell) -> None:
    plaintext = coserve("key", "create", "ci", "--scope", "read", "--expires-in-days", "30")
    assert plaintext.startswith("sk-coserve-")
    listed = coserve.line(" ci ", "key", "list")
    assert " read " in listed
    assert " until " in listed
    assert plaintext not in listed
    key_id = listed.split()[0]
    second = coserve("key", "rotate", key_id, "--grace-hours", "0")
    assert second != plaintext
    assert "revoked" in coserve.line(key_id, "key", "list")
    new_id = next(
        line.split()[0]
        for line in coserve("key", "list").splitlines()
        if " ci " in line and key_id not in line
    )
    assert coserve("key", "revoke", new_id) == f"{new_id} is revoked."
    assert new_id in coserve("key", "revoke", new_id, fails=1)


def test_an_organisation_with_a_project_and_an_operator(coserve: Shell) -> None:
    org = coserve("org", "create", "Elsewhere")
    assert "Elsewhere" in coserve.line(org, "org", "list")
    project = coserve("project", "create", "Search", "--org", org, "--tokens-per-minute", "9000")
    assert "9,000" in coserve.line(project, "project", "list", "--org", org)
    assert project not in coserve("project", "list")
    coserve("project", "set", project, "--tokens-per-minute", "none", "--name", "Find")
    changed = coserve.line(project, "project", "list", "--org", org)
    assert "9,000" not in changed
    assert "Find" in changed
    coserve("user", "create", "olga", "--role", "operator", "--project", project)
    olga = coserve.line("olga", "user", "list", "--org", org)
    assert "operator" in olga
    assert "olga" not in coserve("user", "list")
    coserve("user", "remove", olga.split()[0])
    assert "revoked" in coserve.line("olga", "user", "list", "--org", org)
    coserve("project", "archive", project)
    assert "archived" in coserve.line(project, "project", "list", "--org", org)
    done = [line.split()[2] for line in coserve("audit", "--org", org).splitlines()[1:]]
    assert done == [
        "project.archived",
        "api_key.deleted",
        "api_key.created",
        "project.updated",
        "project.created",
        "organization.created",
    ]
    assert coserve("audit").splitlines()[1:] == []
    logged = coserve("audit", "--org", org, "--json", "--action", "project.updated")
    entry = json.loads(logged)
    assert entry["project.updated"]["changes_requested"] == {
        "name": "Find",
        "tokens_per_minute": None,
    }
    assert entry["coserve"]["source"] == "cli"


def test_wrong_input_is_told_in_a_sentence(coserve: Shell) -> None:
    assert "no such scope" in coserve("key", "create", "x", "--scope", "root", fails=1)
    assert "no such role" in coserve("user", "create", "x", "--role", "root", fails=1)
    assert "proj_nowhere" in coserve("key", "create", "x", "--project", "proj_nowhere", fails=1)
    assert "org_nowhere" in coserve("project", "create", "x", "--org", "org_nowhere", fails=1)
    assert "key_nowhere" in coserve("key", "revoke", "key_nowhere", fails=1)
    assert "default project" in coserve("project", "archive", "proj_default", fails=1)
    assert "many" in coserve("project", "set", "p", "--tokens-per-minute", "many", fails=2)
    assert "week" in coserve("usage", "--by", "week", fails=2)


async def test_only_the_hash_is_kept(coserve: Shell, database: Database) -> None:
    plaintext = await asyncio.to_thread(coserve, "key", "create", "x")
    async with database.unit_of_work() as session:
        ((key, _),) = await keys.list_all(session)
        found = await keys.find_by_plaintext(session, plaintext)
    assert found is not None
    assert found.id == key.id
    assert key.key_hash == keys.hash_of(plaintext)


async def test_usage_per_key_and_class(coserve: Shell, database: Database) -> None:
    async with database.unit_of_work() as session:
        key, _ = await keys.create(session, "proj_default", "ci")
        for word, tokens in (("online", 1000), ("offline", 20)):
            used = UsageKey("proj_default", key.id, "m", word)
            await usages.add(session, {used: UsageCount(1, tokens, 0, 7)})
    shown = await asyncio.to_thread(coserve, "usage")
    assert f"ci ({key.id})" in shown
    assert {"online", "offline", "1,000"} <= set(shown.split())
    (total,) = (await asyncio.to_thread(coserve, "usage", "--by", "model")).splitlines()[1:]
    assert total.split()[1:] == ["m", "2", "1,020", "0", "14"]


def test_without_a_running_stack_it_says_so(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setenv("COSERVE_HOME", str(tmp_path_factory.mktemp("home")))
    assert "start coserve first" in Shell()("key", "list", fails=1)
