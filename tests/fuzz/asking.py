"""One caller of the service: sends a request, and keeps the ids of what it made."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx
import orjson

from tests.fuzz.bodies import Sent
from tests.fuzz.judge import faults

PATIENCE_S = 20.0
"""A longer answer is cut, as callers do: the engine is to give its place free."""


class Answer(NamedTuple):
    """What came back; of a cut one nothing is known."""

    status: int
    content: bytes
    faults: list[str]

    @property
    def said(self) -> Any:
        """The decoded answer; None if it is no JSON."""
        try:
            return orjson.loads(self.content)
        except ValueError:
            return None


CUT = Answer(0, b"", [])


class Caller:
    """Sends requests to one stack.

    Args:
        keys: Of a project, and of an administrator.
    """

    def __init__(self, url: str, keys: tuple[str, str], templates: frozenset[str]) -> None:
        # Every status of interest is that of the first answer; a connection is never one's fault.
        self._client = httpx.AsyncClient(base_url=url, timeout=PATIENCE_S)
        self._keys = keys
        self._templates = templates
        self.ids: dict[str, str] = {}
        """The newest id of each kind, by the name that paths have for it."""

    async def close(self) -> None:
        await self._client.aclose()

    async def ask(self, sent: Sent) -> Answer:
        """Send it; a connection that ends without an answer is a fault."""
        headers = {
            "authorization": f"Bearer {self._keys[sent.needs_admin]}",
            "content-type": "application/json",
            **sent.headers,
        }
        try:
            async with asyncio.timeout(PATIENCE_S):
                reply = await self._client.request(
                    sent.method,
                    self._filled(sent.path),
                    content=self._filled(sent.content.decode("latin-1")).encode("latin-1"),
                    params=sent.query or None,
                    headers=headers,
                )
        except (TimeoutError, httpx.TimeoutException):
            return CUT
        except httpx.TransportError as error:
            return Answer(0, b"", [f"no answer: {type(error).__name__}"])
        content_type = reply.headers.get("content-type", "")
        found = faults(reply.status_code, content_type, reply.content)
        answer = Answer(reply.status_code, reply.content, found)
        if sent.method == "POST" and reply.status_code == 200:
            self._remember(sent.template, answer.said)
        return answer

    async def upload(self, data: bytes) -> Answer:
        """Send a file of rows."""
        reply = await self._client.post(
            "/v1/files",
            headers={"authorization": f"Bearer {self._keys[0]}"},
            files={"file": ("rows.jsonl", data)},
            data={"purpose": "batch"},
        )
        content_type = reply.headers.get("content-type", "")
        found = faults(reply.status_code, content_type, reply.content)
        return Answer(reply.status_code, reply.content, found)

    def _filled(self, text: str) -> str:
        return re.sub(r"\{(\w+_id)\}", lambda m: self.ids.get(m[1], f"no-{m[1]}"), text)

    def _remember(self, template: str, said: Any) -> None:
        made = said.get("id") if isinstance(said, Mapping) else None
        if isinstance(made, str):
            for item in self._templates:
                if found := re.fullmatch(re.escape(template) + r"/\{(\w+)\}", item):
                    self.ids[found[1]] = made
