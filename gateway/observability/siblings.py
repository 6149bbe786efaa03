"""Metrics of several processes of one gateway, in one answer of whichever is asked.

Each process tells its own at a socket in a folder that only they know. A series of the processes
has the label `process`: a process that is started anew resets its own series and no other one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

_ANSWER_S: Final = 2.0
_HEAD: Final = b"# HELP "

logger = logging.getLogger(__name__)


class OfProcess(Collector):
    """The metrics of a registry with the label of their process."""

    def __init__(self, registry: CollectorRegistry, number: int) -> None:
        self._registry = registry
        self._label = {"process": str(number)}

    def collect(self) -> Iterator[Metric]:
        """Families of metrics, as prometheus_client asks for them."""
        for metric in self._registry.collect():
            metric.samples = [
                sample._replace(labels={**sample.labels, **self._label})
                for sample in metric.samples
            ]
            yield metric


class PeerMetrics:
    """The processes of this gateway.

    Args:
        door: Where this process tells its metrics.
        tell: Its metrics, as text.
    """

    def __init__(self, door: Path, tell: Callable[[], bytes]) -> None:
        self._door = door
        self._tell = tell

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Answer the others for as long as the body runs."""
        server = await asyncio.start_unix_server(self._answer, self._door)
        try:
            yield
        finally:
            server.close()

    async def gathered(self) -> bytes:
        """The metrics of all processes that answer; one that is being started has none yet."""
        doors = [one for one in sorted(self._door.parent.glob("*.sock")) if one != self._door]
        others = await asyncio.gather(*(_ask(door) for door in doors))
        return merged([self._tell(), *others])

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._tell())
        writer.close()


def merged(texts: Iterable[bytes]) -> bytes:
    """Several expositions as one: the samples of a family stand together."""
    families: dict[bytes, list[bytes]] = {}
    for text in texts:
        for family in filter(None, text.split(_HEAD)):
            words, kind, samples = family.split(b"\n", 2)
            families.setdefault(_HEAD + words + b"\n" + kind + b"\n", []).append(samples)
    return b"".join(head + b"".join(samples) for head, samples in families.items())


async def _ask(door: Path) -> bytes:
    try:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_unix_connection(door)
            try:
                return await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        logger.warning("a process of this gateway told no metrics: %s", type(error).__name__)
        return b""
