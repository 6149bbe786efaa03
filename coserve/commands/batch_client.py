"""The service's files and batches as the command line uses them: HTTP, nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

TIMEOUT_S = 30.0
UPLOAD_TIMEOUT_S = 600.0


class ServiceError(Exception):
    """The service refused, or could not be reached; the message is for people."""


class BatchClient:
    """One connection to a service.

    Args:
        base_url: Where the API is, `/v1` included.
        api_key: A key of the project whose batches these are.
        transport: How to get there, for tests; the network by default.
    """

    def __init__(
        self, base_url: str, api_key: str, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._http = httpx.Client(
            base_url=base_url.rstrip("/"),
            headers={"authorization": f"Bearer {api_key}"},
            timeout=TIMEOUT_S,
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def upload(self, path: Path) -> dict[str, Any]:
        """Upload an input file; read from disk while it is sent."""
        with path.open("rb") as file:
            return self._call(
                "POST",
                "/files",
                data={"purpose": "batch"},
                files={"file": (path.name, file)},
                timeout=UPLOAD_TIMEOUT_S,
            )

    def create(
        self, input_file_id: str, *, endpoint: str, window: str, metadata: dict[str, str]
    ) -> dict[str, Any]:
        """Create a batch over an uploaded file."""
        body = {
            "input_file_id": input_file_id,
            "endpoint": endpoint,
            "completion_window": window,
            "metadata": metadata or None,
        }
        return self._call("POST", "/batches", json=body)

    def get(self, batch_id: str) -> dict[str, Any]:
        """One batch."""
        return self._call("GET", f"/batches/{batch_id}")

    def cancel(self, batch_id: str) -> dict[str, Any]:
        """Stop a batch."""
        return self._call("POST", f"/batches/{batch_id}/cancel")

    def pause(self, batch_id: str) -> dict[str, Any]:
        """Hold a batch back."""
        return self._call("POST", f"/batches/{batch_id}/pause")

    def resume(self, batch_id: str) -> dict[str, Any]:
        """Let a batch go on."""
        return self._call("POST", f"/batches/{batch_id}/resume")

    def prioritize(self, batch_id: str, priority: int) -> dict[str, Any]:
        """Change a batch's place among those of its project."""
        return self._call("POST", f"/batches/{batch_id}/priority", json={"priority": priority})

    def retry(self, batch_id: str) -> dict[str, Any]:
        """Run a batch's unanswered lines again; returns the batch that does."""
        return self._call("POST", f"/batches/{batch_id}/retry")

    def newest(self, limit: int) -> list[dict[str, Any]]:
        """The newest batches."""
        page: list[dict[str, Any]] = self._call("GET", "/batches", params={"limit": limit})["data"]
        return page

    def download(self, file_id: str, path: Path) -> int:
        """Write a file's content to `path`, whole or not at all; returns its size in bytes."""
        partial = path.with_name(path.name + ".part")
        try:
            with self._http.stream("GET", f"/files/{file_id}/content") as reply:
                if reply.is_error:
                    reply.read()
                    raise _refusal(reply)
                with partial.open("wb") as file:
                    for chunk in reply.iter_bytes():
                        file.write(chunk)
            partial.replace(path)
        except httpx.HTTPError as lost:
            raise _unreachable(lost) from lost
        finally:
            partial.unlink(missing_ok=True)
        return path.stat().st_size

    def _call(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        try:
            reply = self._http.request(method, path, **arguments)
        except httpx.HTTPError as lost:
            raise _unreachable(lost) from lost
        if reply.is_error:
            raise _refusal(reply)
        body: dict[str, Any] = reply.json()
        return body


def find_key(given: str | None) -> str:
    """The API key: as given, or the admin key of the state directory.

    Raises:
        ServiceError: There is neither.
    """
    if given:
        return given
    path = Path(os.environ.get("COSERVE_HOME", ".coserve")) / "admin-key"
    try:
        return path.read_text().strip()
    except OSError:
        raise ServiceError(
            f"No API key: give --api-key, set COSERVE_API_KEY, or run where {path} is."
        ) from None


def _refusal(reply: httpx.Response) -> ServiceError:
    try:
        message = reply.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = reply.text[:200] or reply.reason_phrase
    return ServiceError(f"{reply.status_code}: {message}")


def _unreachable(lost: httpx.HTTPError) -> ServiceError:
    return ServiceError(f"The service does not answer: {lost or type(lost).__name__}")
