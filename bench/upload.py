"""A 200 MB upload through the gateway as it is started in production, into the local file store.

    python -m bench.upload

Target: the gateway's peak memory during the upload is less than 20 MB over what it had before.
What is read is the kernel's own high-water mark of the gateway's process, reset just before the
upload, so that an earlier peak hides nothing. The sender is another process.

`make bench` runs it; no page quotes it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx

from bench.processes import cpu_s, memory_mib, reset_high_water_mark
from bench.report import at_most, option_parser, report, scratch_folder
from bench.servers import Server, one_gateway

UPLOAD_BYTES = 200 * 1000 * 1000
TARGET_MIB = 20.0
BOUNDARY = "b0undary"


def form(num_bytes: int) -> Iterator[bytes]:
    """A form whose file has so many bytes, a piece at a time."""
    yield (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    ).encode()
    piece = os.urandom(65536)
    for start in range(0, num_bytes, len(piece)):
        yield piece[: num_bytes - start]
    yield f"\r\n--{BOUNDARY}--\r\n".encode()


def measure(gateway: Server) -> dict[str, Any]:
    """Upload a little, read its memory, upload a lot, read it again."""
    headers = {
        "authorization": f"Bearer {gateway.key}",
        "content-type": f"multipart/form-data; boundary={BOUNDARY}",
    }
    with httpx.Client(base_url=gateway.url, headers=headers, timeout=120) as client:
        client.post("/v1/files", content=form(1_000_000)).raise_for_status()
        reset_high_water_mark(gateway.pid)
        before_mib, before_cpu_s = memory_mib(gateway.pid, "VmRSS"), cpu_s(gateway.pid)
        started = time.perf_counter()
        reply = client.post("/v1/files", content=form(UPLOAD_BYTES)).raise_for_status()
        took_s = time.perf_counter() - started
        assert reply.json()["bytes"] == UPLOAD_BYTES
    return {
        "num_bytes": UPLOAD_BYTES,
        "wall_s": round(took_s, 3),
        "gateway_cpu_s": round(cpu_s(gateway.pid) - before_cpu_s, 3),
        "rss_before_mib": round(before_mib, 1),
        "rss_growth_mib": round(memory_mib(gateway.pid, "VmHWM") - before_mib, 2),
    }


def main() -> int:
    """Start the gateway and what it needs, measure, report."""
    option_parser(__doc__).parse_args()
    with scratch_folder() as folder, one_gateway(folder) as gateway:
        measured = measure(gateway)
    return report("upload", measured, {"rss_growth_mib": at_most(TARGET_MIB)})


if __name__ == "__main__":
    sys.exit(main())
