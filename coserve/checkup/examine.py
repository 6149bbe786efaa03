"""Everything that `coserve doctor` examines, in its order."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coserve.checkup import gpu, machine, service
from coserve.checkup.finding import Finding
from coserve.local.lock import Owner
from coserve.local.probes import statusz
from coserve.settings import LocalSettings
from coserve.setup.engine_env import engine_python, has_cuda
from engine_adapter.client.engine_address import addresses
from service.broker import Broker


@dataclass(frozen=True)
class Case:
    """What is examined.

    Attributes:
        database_url: Of the running stack or of DATABASE_URL; none while there is no database.
        broker: Where one was given.
    """

    settings: LocalSettings
    checkout: Path
    owner: Owner | None
    database_url: str | None
    broker: Broker | None


def examine(case: Case) -> Iterator[Finding]:
    """Examine everything, cheap things first."""
    settings, owner = case.settings, case.owner
    yield machine.host()
    yield machine.port(settings, owner)
    yield machine.disk(settings.home_path)
    yield machine.memory()
    yield machine.processor()
    yield gpu.gpu()
    yield machine.engine_packages(case.checkout, settings)
    if has_cuda() and not settings.engine_urls:
        python = engine_python(case.checkout)
        yield gpu.cuda(python)
        yield gpu.compilers(python, os.environ)
    yield asyncio.run(service.database(case.database_url))
    said = statusz(owner.url if owner else None)
    parts = said.get("parts") or {}
    yield from service.issues(said.get("verdict") or {})
    yield service.broker(parts.get("broker"), case.broker)
    yield service.gateway_engines(parts.get("engine"), owner)
    if owner is not None and case.database_url is not None:
        named = addresses(settings.engine_urls or "")
        reached = bool(parts) and parts["engine"]["ok"]
        yield from asyncio.run(service.engines(case.database_url, named, reached=reached))
