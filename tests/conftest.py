"""What every test can have, and what each folder needs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = [
    "tests.fixtures.progress",  # first, with extras: others import them
    "tests.fixtures.extras",
    "tests.fixtures.live_gateway",
    "tests.fixtures.browser",
    "tests.fixtures.compatibility",
    "tests.fixtures.durations",
    "tests.fixtures.engine",
    "tests.fixtures.oracles",
    "tests.fixtures.order",
    "tests.fixtures.pgbouncer",
    "tests.fixtures.servers",
    "tests.fixtures.postgres_replica",
    "tests.fixtures.stack",
    "tests.fixtures.s3_server",
    "tests.fixtures.supervised",
]

TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The folder says what a test needs: tests/integration/… gets the mark `integration`."""
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        item.add_marker(getattr(pytest.mark, folder))
