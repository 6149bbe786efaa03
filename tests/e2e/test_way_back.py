"""The version before starts on a database that a later one has migrated."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from store.schema import NEEDED
from store.session import Database
from tests.fixtures.supervised import Up
from tests.integration.store.test_schema import later_version

ROOT = Path(__file__).parents[2]


@pytest.mark.thorough
@pytest.mark.parametrize("number", ["9999", "deadbeef"])
async def test_up_starts_on_newer_tables_and_refuses_those_of_another_program(
    number: str,
    up: Callable[..., Up],
    start_engine: Callable[..., str],
    database: Database,
    database_url: str,
) -> None:
    await later_version(database, number)
    stack = up(ENGINE_URLS=start_engine(), DATABASE_URL=database_url)
    if number == "9999":
        stack.wait_until_ready()
        assert f"at schema 9999, newer than this version's {NEEDED}" in stack.said()
        assert stack.end(signal.SIGTERM) < 20
    else:
        assert stack.process.wait(60) == 1
        assert "DATABASE_URL: The database is at schema 'deadbeef'" in stack.said()
        assert "Traceback" not in stack.said()


def test_compose_and_the_chart_migrate_with_the_verb_that_accepts_newer_tables() -> None:
    """`coserve serve migrate` itself is tried in tests/integration/store/test_schema.py."""
    image = (ROOT / "docker/service.Dockerfile").read_text()
    assert 'ENTRYPOINT ["coserve", "serve"]' in image
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert services["migrate"]["command"] == ["migrate"]
    hook = (ROOT / "deploy/helm/coserve/templates/migrate.yaml").read_text()
    assert "args: [migrate]" in hook
    assert "command:" not in hook
