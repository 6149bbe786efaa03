"""The product before servers of our own, which can be shut off, killed and stopped apart."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.engine import EngineProcess
from tests.chaos.installation import Installation
from tests.fixtures.receiver import LOOPBACK
from tests.torture.servers import Servers

KEY_GRACE_S = 3600.0
SERVERS = ("postgres", "valkey")


class TorturedInstallation(Installation):
    """`coserve up` with everything but its own processes given."""

    def __init__(
        self, home: Path, fake: EngineProcess | None, servers: Servers, name_server: str,
        **settings: str,
    ) -> None:  # fmt: skip
        super().__init__(
            home,
            fake,
            DATABASE_URL=servers.to_postgres.url,
            BROKER_URL=servers.broker_url,
            COSERVE_WEBHOOK_NETWORKS=LOOPBACK,
            COSERVE_WEBHOOK_NAMESERVERS=name_server,
            COSERVE_KEY_GRACE_S=str(KEY_GRACE_S),
            **settings,
        )
        self.servers = servers

    @property
    def dsn(self) -> str:
        """Past the gate."""
        return self.servers.direct_url.replace("+psycopg", "")

    def part(self, name: str) -> list[int]:
        """See `Installation.part`."""
        return self.servers.pids(name)[:1] if name in SERVERS else super().part(name)

    def children(self, name: str) -> list[int]:
        """See `Installation.children`."""
        return self.servers.pids(name)[1:] if name in SERVERS else super().children(name)

    def everything_of(self, name: str) -> list[int]:
        """A part and all it has started."""
        return [*self.part(name), *self.children(name)]
