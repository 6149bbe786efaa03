"""A 200 MB upload through the gateway as it is started in production, into the local file store.

Target: the gateway's peak memory during the upload is less than 20 MB over what it had before.
What is read is the kernel's own high-water mark of the gateway's process, reset just before the
upload, so that an earlier peak hides nothing. The sender is another process.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from bench.paths import ROOT
from bench.report import at_most, report
from bench.servers import postgres_url
from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.session import Database

UPLOAD_BYTES = 200 * 1000 * 1000
TARGET_MIB = 20.0
START_LIMIT_S = 60.0
BOUNDARY = "b0undary"


async def make_key(url: str) -> str:
    """An API key of the default project."""
    db = Database(url)
    async with db.unit_of_work() as session:
        _, plaintext = await keys.create(session, DEFAULT_PROJECT_ID, "bench")
    await db.dispose()
    return plaintext


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


def memory_mib(pid: int, field: str) -> float:
    """`VmRSS` (now) or `VmHWM` (the high-water mark) of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {field}")


def reset_high_water_mark(pid: int) -> None:
    """From now on `VmHWM` counts from the present size (see proc(5), clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def cpu_s(pid: int) -> float:
    """CPU time of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_ready(process: subprocess.Popen[bytes], url: str) -> None:
    """Until the process answers."""
    limit = time.monotonic() + START_LIMIT_S
    while time.monotonic() < limit and process.poll() is None:
        try:
            if httpx.get(url + "/healthz").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError("the gateway did not start")


def measure(process: subprocess.Popen[bytes], url: str, key: str) -> dict[str, Any]:
    """Upload a little, look, upload a lot, look again."""
    headers = {
        "authorization": f"Bearer {key}",
        "content-type": f"multipart/form-data; boundary={BOUNDARY}",
    }
    with httpx.Client(base_url=url, headers=headers, timeout=120) as client:
        client.post("/v1/files", content=form(1_000_000)).raise_for_status()
        reset_high_water_mark(process.pid)
        before_mib, before_cpu_s = memory_mib(process.pid, "VmRSS"), cpu_s(process.pid)
        started = time.perf_counter()
        reply = client.post("/v1/files", content=form(UPLOAD_BYTES)).raise_for_status()
        took_s = time.perf_counter() - started
        assert reply.json()["bytes"] == UPLOAD_BYTES
    return {
        "num_bytes": UPLOAD_BYTES,
        "wall_s": round(took_s, 3),
        "gateway_cpu_s": round(cpu_s(process.pid) - before_cpu_s, 3),
        "rss_before_mib": round(before_mib, 1),
        "rss_growth_mib": round(memory_mib(process.pid, "VmHWM") - before_mib, 2),
    }


def main() -> int:
    """Start Postgres and the gateway, measure, report."""
    import socket

    folder = Path(tempfile.mkdtemp(prefix="csb-"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    try:
        with postgres_url(folder) as database_url:
            key = asyncio.run(make_key(database_url))
            env = {name: value for name, value in os.environ.items() if "COSERVE" not in name}
            env |= {
                "DATABASE_URL": database_url,
                "BROKER_URL": "redis://127.0.0.1:1/0",
                "ENGINE_URLS": "http://127.0.0.1:1",
                "COSERVE_HOME": str(folder),
                "COSERVE_PORT": str(port),
            }
            with (folder / "gateway.log").open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "gateway"], cwd=ROOT, env=env, stdout=log, stderr=log
                )
            url = f"http://127.0.0.1:{port}"
            try:
                wait_ready(process, url)
                measured = measure(process, url, key)
            finally:
                process.terminate()
                process.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return report("upload", measured, {"rss_growth_mib": at_most(TARGET_MIB)})


if __name__ == "__main__":
    sys.exit(main())
