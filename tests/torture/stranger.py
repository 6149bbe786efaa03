"""A fourth project that loads the installation in ways which the service must take."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx

from store.session import Database
from tests.chaos.observer import Observer
from tests.fakes.endless import ENDLESS, endless
from tests.torture.installation import TorturedInstallation
from tests.torture.tenants import new_project

NAME = "stranger"
NUM_BATCHES, NUM_FOLLOWERS, NUM_OBJECTS = 1000, 100, 2000
CALLERS = 8
CHAT = "/v1/chat/completions"
LINE = b"""{"custom_id": "one", "method": "POST", "url": "/v1/chat/completions", "body": {
"model": "fake-model", "messages": [{"role": "user", "content": "Hello."}]}}""".replace(b"\n", b" ")
NO_ENGINE = "http://127.0.0.1:99999"
OTHER_ANSWERS = (b"[]", b"null")
ENDLESS_WAYS = ("heads before it", "a chunk's extension", "a body in chunks")

Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Stranger:
    """Its loads; each returns when it is over."""

    def __init__(self, installation: TorturedInstallation, observer: Observer, key: str) -> None:
        self._installation = installation
        self._observer = observer
        self._headers = {"authorization": f"Bearer {key}"}

    @classmethod
    async def new(cls, installation: TorturedInstallation, observer: Observer) -> Stranger:
        """One with a project of its own."""
        database = Database(installation.servers.direct_url)
        try:
            _, key = await new_project(database, NAME)
        finally:
            await database.dispose()
        return cls(installation, observer, key)

    def _client(self) -> httpx.AsyncClient:
        url = self._installation.url
        return httpx.AsyncClient(base_url=url, headers=self._headers, timeout=60.0)

    async def small_batches(self) -> None:
        """A thousand batches of one line; over when all have ended."""
        async with self._client() as client:
            form = {"file": ("one.jsonl", LINE)}
            made = await client.post("/v1/files", data={"purpose": "batch"}, files=form)
            wanted = {
                "input_file_id": made.raise_for_status().json()["id"],
                "endpoint": CHAT, "completion_window": "24h",
            }  # fmt: skip

            async def caller() -> None:
                for _ in range(NUM_BATCHES // CALLERS):
                    with suppress(httpx.HTTPError):
                        await client.post("/v1/batches", json=wanted)

            await asyncio.gather(*(caller() for _ in range(CALLERS)))
        while await self._num_live():
            await asyncio.sleep(0.5)

    async def _num_live(self) -> int:
        found = await self._observer.ask(
            "SELECT count(*) FROM batches b JOIN projects p ON p.id = b.project_id"
            " WHERE p.name = %(name)s"
            " AND b.status IN ('validating', 'in_progress', 'finalizing', 'cancelling')",
            {"name": NAME},
        )
        return int(found[0][0])

    async def followers(self) -> None:
        """A hundred followers of one background response."""
        body = {
            "model": "fake-model", "background": True,
            "input": "fake:tokens=100 fake:token_ms=50",
        }  # fmt: skip
        async with self._client() as client:
            made = await client.post("/v1/responses", json=body)
            path = f"/v1/responses/{made.raise_for_status().json()['id']}?stream=true"

            async def follow() -> None:
                with suppress(httpx.HTTPError):
                    await client.get(path)

            await asyncio.gather(*(follow() for _ in range(NUM_FOLLOWERS)))
        while await self._num_live():
            await asyncio.sleep(0.5)

    @asynccontextmanager
    async def undeletable_objects(self) -> AsyncIterator[None]:
        """Expired files, in place of whose bytes lie folders that are not empty."""
        folder = self._installation.home / "files/objects/ck"
        names = [f"{number:08}stuck" for number in range(NUM_OBJECTS)]
        try:
            for name in names:
                (folder / name / "kept").mkdir(parents=True)
            await self._observer.ask(
                "INSERT INTO files (id, project_id, purpose, filename, size_bytes, sha256,"
                " storage_key, expires_at) SELECT 'file-' || given.key, p.id, 'batch', 'x',"
                " 1, repeat('0', 64), given.key, clock_timestamp() - interval '1 hour'"
                " FROM projects p, unnest(%(names)s::text[]) AS given(key)"
                " WHERE p.name = %(project)s",
                {"names": names, "project": NAME},
            )
            yield
        finally:
            await self._observer.ask("DELETE FROM files WHERE storage_key LIKE '%%stuck'", {})
            for name in names:
                shutil.rmtree(folder / name, ignore_errors=True)

    @asynccontextmanager
    async def bad_engines(self) -> AsyncIterator[None]:
        """Rows of engines whose address is none, or that answer other JSON, or without end."""
        urls = [NO_ENGINE]
        async with AsyncExitStack() as stack:
            for said in OTHER_ANSWERS:
                server = await asyncio.start_server(_answering(said), "127.0.0.1", 0)
                stack.callback(server.close)
                urls.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            servers = [endless(*ENDLESS[way]) for way in ENDLESS_WAYS]
            urls += [(await stack.enter_async_context(server)).url for server in servers]
            async with self._rows(urls):
                yield

    @asynccontextmanager
    async def _rows(self, urls: list[str]) -> AsyncIterator[None]:
        """Engines that are registered for a while."""
        try:
            await self._observer.ask(
                "INSERT INTO engines (url, added_at) SELECT url, now()"
                " FROM unnest(%(urls)s::text[]) url",
                {"urls": urls},
            )
            yield
        finally:
            await self._observer.ask(
                "DELETE FROM engines WHERE url = ANY(%(urls)s::text[])", {"urls": urls}
            )


def _answering(said: bytes) -> Answering:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await reader.readuntil(b"\r\n\r\n")
            head = f"content-type: application/json\r\ncontent-length: {len(said)}"
            writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode() + said)
            await writer.drain()
        writer.close()

    return answer
