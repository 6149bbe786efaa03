"""How full the disk below `COSERVE_HOME` is, asked at each scrape."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class HostMetrics(Collector):
    """The disk that files, logs and the embedded database are on."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Families of metrics, as prometheus_client asks for them."""
        disk = GaugeMetricFamily(
            "coserve_disk_bytes", "The disk below COSERVE_HOME, by state.", labels=["state"]
        )
        try:
            usage = shutil.disk_usage(_existing(self._home))
        except OSError:
            yield disk
            return
        disk.add_metric(["total"], usage.total)
        disk.add_metric(["free"], usage.free)
        yield disk


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    return next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())
