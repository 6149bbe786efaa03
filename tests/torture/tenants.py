"""Three projects: each with a key, batches without end, people who chat, and a receiver."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import urlsplit

from batch.webhooks.events import EVENT_TYPES
from store.repositories import key as keys
from store.repositories import project as projects
from store.session import Database
from tests.chaos.feeder import Feeder
from tests.fixtures.receiver import Receiver

NAMES = ("ann", "bob", "cid")
POLL_INTERVAL_S = 0.5
OVER = frozenset({"completed", "failed", "expired", "cancelled"})


@dataclass
class Tenant:
    """A project of the run."""

    name: str
    project_id: str
    feeder: Feeder

    async def hear(self, receiver: Receiver) -> None:
        """Have the ends of its batches told to a path of its own, by a name of its own."""
        port = urlsplit(receiver.url).port
        wanted = {
            "name": self.name,
            "url": f"http://{self.name}.receivers.test:{port}/{self.name}",
            "event_types": list(EVENT_TYPES),
        }
        await self.feeder.post("/v1/webhook_endpoints", f"hear-{self.name}", json=wanted)

    async def run(self) -> None:
        """Submit the next batch when the one before is over, until told to stop."""
        feeder = self.feeder
        while not feeder.stop.is_set():
            batch = await feeder.submit()
            while not feeder.stop.is_set():
                if (await feeder.get(f"/v1/batches/{batch.id}")).json()["status"] in OVER:
                    break
                await asyncio.sleep(POLL_INTERVAL_S)


async def new_project(database: Database, name: str) -> tuple[str, str]:
    """A project and a key of it: (project id, key)."""
    async with database.unit_of_work() as session:
        project = await projects.create(session, name)
        _, key = await keys.create(session, project.id, name)
        return project.id, key
