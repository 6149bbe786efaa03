"""The service's API as the command line uses it: HTTP, nothing else."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx

from coserve.local.lock import find_owner
from service.data_folder import default_home

DEFAULT_ROOT_URL = "http://127.0.0.1:8080"
TIMEOUT_S = 30.0
UPLOAD_TIMEOUT_S = 600.0
CHAT_TIMEOUT_S = 600.0
PAGE = 100
RESULT_PAGE = 1000
POLL_S: Final = 1.0
MAX_POLL_FAILURES: Final = 60

Answer = TypeVar("Answer")


class ServiceError(Exception):
    """The service refused, or could not be reached; the message is for people.

    Attributes:
        refused: It answered that the call is wrong: asking again changes nothing.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


def patiently(ask: Callable[[], Answer], *, sleep: Callable[[float], None] = time.sleep) -> Answer:
    """What a call answers; a service that is away, since it may be restarting, is asked again.

    Raises:
        ServiceError: It refused, or did not answer `MAX_POLL_FAILURES` times in a row.
    """
    num_failures = 0
    while True:
        try:
            return ask()
        except ServiceError as error:
            num_failures += 1
            if error.refused or num_failures >= MAX_POLL_FAILURES:
                raise
            sleep(POLL_S)


@dataclass(frozen=True)
class ResultPage:
    """Some of a batch's results.

    Attributes:
        lines: The JSON of one each, without its newline.
        next_offset: Where the next page begins.
        complete: Whether there will be no other.
    """

    lines: list[bytes]
    next_offset: int
    complete: bool


class ServiceClient:
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

    def check(self, input_file_id: str, endpoint: str) -> dict[str, Any]:
        """The errors of an uploaded file, and without any what a batch over it would come to."""
        body = {"input_file_id": input_file_id, "endpoint": endpoint}
        return self._call("POST", "/batches/check", json=body, timeout=UPLOAD_TIMEOUT_S)

    def create(
        self,
        input_file_id: str,
        *,
        endpoint: str,
        completion_window: str,
        metadata: dict[str, str],
        options: dict[str, Any],
    ) -> dict[str, Any]:
        """Create a batch over an uploaded file; `options` are those under `coserve`."""
        body = {
            "input_file_id": input_file_id,
            "endpoint": endpoint,
            "completion_window": completion_window,
            "metadata": metadata or None,
            **({"coserve": options} if options else {}),
        }
        return self._call("POST", "/batches", json=body)

    def get(self, batch_id: str) -> dict[str, Any]:
        return self._call("GET", f"/batches/{batch_id}")

    def cancel(self, batch_id: str) -> dict[str, Any]:
        return self._call("POST", f"/batches/{batch_id}/cancel")

    def pause(self, batch_id: str) -> dict[str, Any]:
        return self._call("POST", f"/batches/{batch_id}/pause")

    def resume(self, batch_id: str) -> dict[str, Any]:
        """Let a batch go on."""
        return self._call("POST", f"/batches/{batch_id}/resume")

    def prioritize(self, batch_id: str, priority: int) -> dict[str, Any]:
        """Change a batch's place among those of its project."""
        return self._call("POST", f"/batches/{batch_id}/priority", json={"priority": priority})

    def retry(self, batch_id: str) -> dict[str, Any]:
        """Run a batch's unanswered rows again; returns the batch that does."""
        return self._call("POST", f"/batches/{batch_id}/retry")

    def events(self, batch_id: str) -> Iterator[dict[str, Any]]:
        """What happened to a batch, oldest first, read page by page as far as it is wanted."""
        yield from self._every(f"/batches/{batch_id}/events")

    def files(self) -> Iterator[dict[str, Any]]:
        """Every file of the project, newest first, read page by page as far as it is wanted."""
        yield from self._every("/files")

    def delete_file(self, file_id: str) -> None:
        """Delete a file that no live batch reads."""
        self._call("DELETE", f"/files/{file_id}")

    def webhooks(self) -> Iterator[dict[str, Any]]:
        """Every webhook endpoint of the project, newest first."""
        yield from self._every("/webhook_endpoints")

    def webhook_events(self) -> list[str]:
        """The events that an endpoint may ask for."""
        events: list[str] = self._call("GET", "/webhook_event_types")["data"]
        return events

    def webhook(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an endpoint (an empty path), change one (its id), or an act below its id."""
        return self._call("POST", f"/webhook_endpoints/{path}".rstrip("/"), json=body)

    def delete_webhook(self, endpoint_id: str) -> None:
        """Delete an endpoint."""
        self._call("DELETE", f"/webhook_endpoints/{endpoint_id}")

    def newest(self) -> Iterator[dict[str, Any]]:
        """Every batch, newest first, read page by page as far as it is wanted."""
        yield from self._every("/batches")

    def _every(self, path: str) -> Iterator[dict[str, Any]]:
        after: dict[str, str] = {}
        while True:
            page = self._call("GET", path, params={"limit": PAGE, **after})
            yield from page["data"]
            if not page["has_more"]:
                return
            after = {"after": page["last_id"]}

    def model_to_ask(self, named: str | None) -> str:
        """The model that is named, or the first that is served.

        Raises:
            ServiceError: None is served.
        """
        if named:
            return named
        served = self._call("GET", "/models")["data"]
        if not served:
            raise ServiceError("No engine has answered yet, so there is no model to ask.")
        return str(served[0]["id"])

    def model(self, model_id: str) -> dict[str, Any]:
        """One model, with the level that it is served at."""
        return self._call("GET", f"/models/{model_id}")

    def results(self, batch_id: str, offset: int, kind: str | None = None) -> ResultPage:
        """The result lines from an offset on, those of one kind alone if it is given."""
        params = {"offset": offset, "limit": RESULT_PAGE, **({"kind": kind} if kind else {})}
        reply = self._request("GET", f"/batches/{batch_id}/results", params=params)
        return ResultPage(
            lines=reply.content.removesuffix(b"\n").split(b"\n") if reply.content else [],
            next_offset=int(reply.headers["x-next-offset"]),
            complete=reply.headers["x-complete"] == "true",
        )

    def chat(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The chunks of a streamed chat completion, as they come."""
        path = "/chat/completions"
        with self._streamed("POST", path, json=body, timeout=CHAT_TIMEOUT_S) as reply:
            for line in _lines(reply.iter_bytes()):
                if line.startswith(b"data: ") and line != b"data: [DONE]":
                    chunk: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
                    if "error" in chunk:
                        raise ServiceError(str(chunk["error"]["message"]))
                    yield chunk

    def download(self, file_id: str, path: Path) -> int:
        """Write a file's content to `path`, whole or not at all; returns its size in bytes."""
        partial = path.with_name(path.name + ".part")
        try:
            with (
                self._streamed("GET", f"/files/{file_id}/content") as reply,
                partial.open("wb") as file,
            ):
                for chunk in reply.iter_bytes():
                    file.write(chunk)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        return path.stat().st_size

    @contextmanager
    def _streamed(self, method: str, path: str, **arguments: Any) -> Iterator[httpx.Response]:
        try:
            with self._http.stream(method, path, **arguments) as reply:
                if reply.is_error:
                    reply.read()
                    raise _refusal(reply)
                yield reply
        except httpx.HTTPError as lost:
            raise _unreachable(lost) from lost

    def _call(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        body: dict[str, Any] = self._request(method, path, **arguments).json()
        return body

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            reply = self._http.request(method, path, **arguments)
        except httpx.HTTPError as lost:
            raise _unreachable(lost) from lost
        if reply.is_error:
            raise _refusal(reply)
        return reply


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Lines that end at newlines alone: an answer may hold what Unicode calls ends of a line."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    yield rest


def find_base_url(given: str | None) -> str:
    """The API's address: as given, or where the stack of the state directory listens."""
    owner = None if given else find_owner(_home())
    return given or f"{owner.url if owner and owner.url else DEFAULT_ROOT_URL}/v1"


def _home() -> Path:
    return Path(os.environ.get("COSERVE_HOME") or default_home())


def find_key(given: str | None) -> str:
    """The API key: as given, or the admin key of the state directory.

    Raises:
        ServiceError: There is neither.
    """
    if given:
        return given
    path = _home() / "admin-key"
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
    refused = reply.is_client_error and reply.status_code != 429
    return ServiceError(f"{reply.status_code}: {message}", refused=refused)


def _unreachable(lost: httpx.HTTPError) -> ServiceError:
    try:
        at = f" at {lost.request.url.copy_with(path='/', query=None)}"
    except RuntimeError:  # it failed before there was a request
        at = ""
    return ServiceError(f"The service does not answer{at}: {lost or type(lost).__name__}")
