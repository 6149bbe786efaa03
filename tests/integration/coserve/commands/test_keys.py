"""`coserve keys` against a real database."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from coserve.cli import app
from store.repositories import key as keys
from store.session import Database


@pytest.fixture
def cli(database_url: str, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("DATABASE_URL", database_url)
    return CliRunner()


def test_a_key_is_made_listed_and_revoked(cli: CliRunner) -> None:
    made = cli.invoke(app, ["keys", "create", "--name", "ci", "--role", "admin"])
    assert made.exit_code == 0
    plaintext = made.stdout.strip()
    assert plaintext.startswith("sk-coserve-")

    listed = cli.invoke(app, ["keys", "list"]).stdout
    (line,) = [line for line in listed.splitlines() if " ci " in line]
    assert "admin" in line
    assert "usable" in line
    assert plaintext not in listed

    key_id = line.split()[0]
    assert cli.invoke(app, ["keys", "revoke", key_id]).exit_code == 0
    assert "revoked" in cli.invoke(app, ["keys", "list"]).stdout
    again = cli.invoke(app, ["keys", "revoke", key_id])
    assert again.exit_code == 1
    assert key_id in again.stderr


def test_wrong_input_is_told(cli: CliRunner) -> None:
    wrong_role = cli.invoke(app, ["keys", "create", "--role", "root"])
    assert wrong_role.exit_code == 2
    assert "root" in wrong_role.stderr
    wrong_project = cli.invoke(app, ["keys", "create", "--project", "proj_nowhere"])
    assert wrong_project.exit_code == 1
    assert "Traceback" not in wrong_project.output


async def test_only_the_hash_is_kept(cli: CliRunner, database: Database) -> None:
    import asyncio

    made = await asyncio.to_thread(cli.invoke, app, ["keys", "create"])
    async with database.unit_of_work() as session:
        (key,) = await keys.list_all(session)
        found = await keys.find_by_plaintext(session, made.stdout.strip())
    assert found is not None
    assert found.id == key.id
    assert key.key_hash == keys.hash_of(made.stdout.strip())


def test_without_a_running_stack_it_says_so(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setenv("COSERVE_HOME", str(tmp_path_factory.mktemp("home")))
    done = CliRunner().invoke(app, ["keys", "list"])
    assert done.exit_code == 1
    assert "start coserve first" in done.stderr
