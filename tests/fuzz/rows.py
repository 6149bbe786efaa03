"""Generated bodies as rows of a batch: what the check lets through is run to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from batch.states import TERMINAL_BATCH
from tests.fuzz.asking import Answer, Caller
from tests.fuzz.bodies import Sent, as_bytes
from tests.fuzz.judge import faults_in

CHECKS = 4
"""A check tells one fault of a line, and what is left may have others."""

RUN_LIMIT_S = 60.0
END_LIMIT_S = 60.0

Fault = tuple[str, str]
"""What is wrong, and with what."""


async def run_batch(caller: Caller, endpoint: str, rows: list[dict[str, Any]]) -> list[Fault]:
    """One batch; its faults, each with the row that it is about."""
    found: list[Fault] = []
    kept = rows
    for _ in range(CHECKS):
        if not kept:
            return found
        uploaded = await caller.upload(_lines(endpoint, kept))
        found += _all(uploaded, "a file of rows")
        if uploaded.status != 200:
            return found
        body = {"input_file_id": uploaded.said["id"], "endpoint": endpoint}
        checked = await caller.ask(_post("/v1/batches/check", body))
        found += _all(checked, f"a check of {kept}")
        if checked.status != 200:
            return found
        if checked.said["valid"]:
            break
        wrong = {fault["line"] for fault in checked.said["errors"]["data"]}
        kept = [row for line, row in enumerate(kept, 1) if line not in wrong]
    else:
        return found
    return found + await _run(caller, body, kept)


async def _run(caller: Caller, body: dict[str, Any], rows: list[Any]) -> list[Fault]:
    created = await caller.ask(_post("/v1/batches", {**body, "completion_window": "24h"}))
    found = _all(created, f"a batch of {rows}")
    if created.status != 200:
        return found
    batch = created.said
    path = f"/v1/batches/{batch['id']}"
    batch = await _ended(caller, path, RUN_LIMIT_S)
    if batch is None:
        await caller.ask(_post(f"{path}/cancel", {}))
        batch = await _ended(caller, path, END_LIMIT_S)
    if batch is None:
        return [*found, ("a cancelled batch does not end", f"{path} of {rows}")]
    if batch["status"] == "failed":
        found.append(("a batch fails that its check lets through", f"{batch['errors']}"))
    for name in ("output_file_id", "error_file_id"):
        if batch[name]:
            file = await caller.ask(Sent(0, "GET", "", f"/v1/files/{batch[name]}/content"))
            found += faults_of_lines(file.content, rows)
    return found


async def _ended(caller: Caller, path: str, limit_s: float) -> Any:
    """The batch at its end; None if it is not within the limit."""
    until_s = asyncio.get_running_loop().time() + limit_s
    while asyncio.get_running_loop().time() < until_s:
        batch = (await caller.ask(Sent(0, "GET", "", path))).said
        if batch and batch.get("status") in TERMINAL_BATCH:
            return batch
        await asyncio.sleep(0.5)
    return None


def faults_of_lines(content: bytes, rows: list[Any]) -> Iterator[Fault]:
    """What is wrong with a result file, each with its row."""
    try:
        lines = [orjson.loads(line) for line in content.split(b"\n") if line]
    except ValueError:
        yield "a result file is not JSON by lines", f"{content[:500]!r}"
        return
    for line in lines:
        reply = line["response"] or {"status_code": 200, "body": None}
        found = faults_in(reply["status_code"], reply["body"])
        found += faults_in(200, {"error": line["error"]})
        row = as_bytes(rows[int(line["custom_id"])]).decode()[:2000]
        for fault in found:
            yield f"row: {fault}", f"{row} was answered {line}"


def _lines(endpoint: str, rows: list[Any]) -> bytes:
    lines = (
        {"custom_id": str(number), "method": "POST", "url": endpoint, "body": row}
        for number, row in enumerate(rows)
    )
    return b"\n".join(as_bytes(line) for line in lines)


def _post(path: str, body: Mapping[str, Any]) -> Sent:
    return Sent(0, "POST", path, path, dict(body))


def _all(answer: Answer, asked: str) -> list[Fault]:
    return [(fault, f"{asked} was answered {answer.content[:500]!r}") for fault in answer.faults]
