"""One batch from upload to download through the public API, timed by stage."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import orjson
import psycopg

from bench.batch_load import prediction
from bench.batch_load.samples import MemoryWatch, cpu_s
from bench.batches import LINE_BYTES
from bench.installation import client_of, create, database, upload
from tests.chaos.installation import Installation

LIMIT_S = 900.0
POLL_INTERVAL_S = 1.0


def watch(
    client: httpx.Client, connection: psycopg.Connection[Any], batch_id: str
) -> list[prediction.Poll]:
    """What was predicted until the batch is complete; raises where it ends otherwise."""
    until = time.monotonic() + LIMIT_S
    polls = []
    while time.monotonic() < until:
        polls.append(prediction.poll(client, connection, batch_id))
        found = connection.execute("SELECT status FROM batches WHERE id = %s", (batch_id,))
        (status,) = found.fetchone() or ("gone",)
        if status == "completed":
            return polls
        if status not in ("validating", "in_progress", "finalizing"):
            raise RuntimeError(f"the batch is {status}")
        time.sleep(POLL_INTERVAL_S)
    raise RuntimeError(f"not over after {LIMIT_S} s")


def measure(installation: Installation, num_lines: int) -> dict[str, Any]:
    """All of it, once. Microseconds are CPU time over lines; seconds are by the wall."""
    with client_of(installation) as client, database(installation) as connection:
        before = cpu_s(installation)
        with MemoryWatch(installation) as memory:
            started = time.perf_counter()
            file_id = upload(client, num_lines)
            upload_s = time.perf_counter() - started
            batch_id = create(client, file_id)
            polls = watch(client, connection, batch_id)
            after = cpu_s(installation)
            download_started = time.perf_counter()
            num_downloaded = download(client, batch_id)
            done = time.perf_counter()
        assert num_downloaded == num_lines, num_downloaded
        stages = connection.execute(
            "SELECT extract(epoch FROM in_progress_at - created_at)::float8,"
            " extract(epoch FROM finalizing_at - in_progress_at)::float8,"
            " extract(epoch FROM completed_at - finalizing_at)::float8,"
            " extract(epoch FROM completed_at)::float8"
            " FROM batches WHERE id = %s",
            (batch_id,),
        ).fetchone()
        assert stages is not None
    cpu_us = {
        part.replace("-", "_"): round((after[part] - before[part]) / num_lines * 1e6, 1)
        for part in after
    }
    in_all = cpu_us["worker_dispatch"] + cpu_us["worker_stages"] + cpu_us["postgres"]
    return {
        "num_lines": num_lines,
        "line_bytes": LINE_BYTES,
        "upload_s": round(upload_s, 2),
        "validate_s": round(stages[0], 2),
        "dispatch_s": round(stages[1], 2),
        "finalize_s": round(stages[2], 2),
        "download_s": round(done - download_started, 2),
        "end_to_end_s": round(done - started, 2),
        "lines_per_s": round(num_lines / (done - started), 1),
        "cpu_us_per_line": cpu_us,
        "worker_and_postgres_cpu_us_per_line": round(in_all, 1),
        "peak_mib": memory.peaks(),
        "first_and_last_third": memory.thirds(),
        "prediction": prediction.errors(polls, stages[3], num_lines),
    }


def download(client: httpx.Client, batch_id: str) -> int:
    """Read the output file to its end; how many different lines it holds."""
    batch = client.get(f"/v1/batches/{batch_id}").raise_for_status().json()
    assert batch["error_file_id"] is None, batch
    with client.stream("GET", f"/v1/files/{batch['output_file_id']}/content") as reply:
        reply.raise_for_status()
        with tempfile.NamedTemporaryFile() as copy:
            for chunk in reply.iter_bytes():
                copy.write(chunk)
            copy.flush()
            with Path(copy.name).open("rb") as lines:
                return len({orjson.loads(one)["custom_id"] for one in lines})
