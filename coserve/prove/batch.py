"""The batch beside chat: the service's own, paused while chat is alone, counted by its results."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from coserve.commands.service_client import ServiceClient, ServiceError
from coserve.prove.load import ENDPOINT, write_batch
from store.states import TERMINAL_BATCH, BatchStatus

READY_LIMIT_S: Final = 300.0
QUIET_LIMIT_S: Final = 120.0
POLL_S: Final = 0.5


class Batch:
    """One batch of the run; every call waits for the service.

    Attributes:
        id: Its id.
    """

    def __init__(self, client: ServiceClient, model: str) -> None:
        """Upload and create it, paused, and wait until its lines are checked."""
        self._client = client
        self._offset = 0
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "prove.jsonl"
            write_batch(path, model)
            self._file: str = client.upload(path)["id"]
        created = client.create(
            self._file,
            endpoint=ENDPOINT,
            completion_window="24h",
            metadata={},
            options={"paused": True},
        )
        self.id: str = created["id"]
        self._wait(
            lambda now: now["status"] != BatchStatus.VALIDATING,
            "its lines are checked",
            READY_LIMIT_S,
        )

    def resume(self) -> None:
        """Let rows run, and wait until some are at an engine."""
        self._client.resume(self.id)
        self._wait(lambda now: _at_engine(now) > 0, "rows run", READY_LIMIT_S)

    def pause(self) -> None:
        """Hold rows back, and wait until none is at an engine."""
        self._client.pause(self.id)
        self._wait(lambda now: _at_engine(now) == 0, "no row runs", QUIET_LIMIT_S)

    def new_tokens(self) -> int:
        """Tokens of prompts and answers, of rows answered since this was asked last."""
        tokens = 0
        while True:
            page = self._client.results(self.id, self._offset)
            tokens += sum(map(_tokens, page.lines))
            if page.next_offset == self._offset:
                return tokens
            self._offset = page.next_offset

    @property
    def over(self) -> bool:
        """Whether it ended by itself."""
        return self._client.get(self.id)["status"] in {*TERMINAL_BATCH, BatchStatus.FINALIZING}

    def remove(self) -> None:
        """Cancel it, and delete its file as soon as nothing reads it."""
        try:
            self._client.cancel(self.id)
            self._wait(lambda now: now["status"] in TERMINAL_BATCH, "it has ended", QUIET_LIMIT_S)
            self._client.delete_file(self._file)
        except ServiceError:
            return  # it is over, or its file is kept for a while: nothing of a run's figures

    def _wait(self, reached: Any, what: str, limit_s: float) -> None:
        limit = time.monotonic() + limit_s
        while True:
            now = self._client.get(self.id)
            if now["status"] == BatchStatus.FAILED:
                faults = (now["errors"] or {"data": []})["data"]
                why = faults[0]["message"] if faults else "no reason was given"
                raise ServiceError(f"The batch was refused: {why}", refused=True)
            if reached(now) or now["status"] in TERMINAL_BATCH:
                return
            if time.monotonic() > limit:
                reason = (now.get("coserve") or {}).get("waiting_reason")
                raise ServiceError(f"Waited {limit_s:.0f} s until {what}; it says: {reason}")
            time.sleep(POLL_S)


def _at_engine(batch: dict[str, Any]) -> int:
    """Rows at engines; 0 also where no engine tells."""
    found = (batch.get("coserve") or {}).get("at_engine") or {}
    return int(found.get("rows", 0))


def _tokens(line: bytes) -> int:
    response = json.loads(line).get("response") or {}
    usage = (response.get("body") or {}).get("usage") or {}
    return int(usage.get("total_tokens", 0))
