"""One gateway before one fake engine for all tests of the contract, in a thread of its own.

The tests are ordinary callers: the synchronous official client and bare HTTP.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import openai
import orjson
import pytest

from batch.finish.finalize import finalize
from batch.intake.validate import validate
from coserve.local import postgres, valkey
from engine_adapter.client.http import HttpEngineClient
from gateway.settings import GatewaySettings
from store.repositories import key as keys
from store.repositories import project as projects
from store.session import Database
from tests.fakes.engine import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import Bench
from tests.fixtures.databases import TEMPLATE
from tests.fixtures.online import Gateway, running_gateway
from tests.fixtures.receiver import LOOPBACK

MODEL = "org/fake-model"
CHAT: Final = "/v1/chat/completions"
T = TypeVar("T")


@dataclass(frozen=True)
class Live:
    """The running gateway and what is behind it."""

    gateway: Gateway
    engine: FakeEngine
    engine_url: str
    database: Database
    other_key: str
    loop: asyncio.AbstractEventLoop

    def client(self, **more: Any) -> openai.OpenAI:
        options: dict[str, Any] = {"api_key": self.gateway.key, "max_retries": 0, **more}
        return openai.OpenAI(base_url=f"{self.gateway.url}/v1", **options)

    def http(self, key: str | None = None) -> httpx.Client:
        headers = {"authorization": f"Bearer {key or self.gateway.key}"}
        return httpx.Client(base_url=self.gateway.url, headers=headers, timeout=30)

    def chat(self, prompt: str, **more: Any) -> dict[str, Any]:
        return self.gateway.chat(prompt, **more)

    def ask(self, prompt: str, **more: Any) -> httpx.Response:
        """One chat completion on the bare wire."""
        with self.http() as http:
            return http.post(CHAT, json=self.chat(prompt, **more))

    def events(self, prompt: str, **more: Any) -> list[Any]:
        """A streamed chat: each event's data parsed, `[DONE]` as it is."""
        with self.http() as http:
            raw = http.post(CHAT, json=self.chat(prompt, stream=True, **more)).text
        data = [block.removeprefix("data: ") for block in raw.split("\n\n")[:-1]]
        return [one if one == "[DONE]" else orjson.loads(one) for one in data if one[0] != ":"]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the gateway's thread."""
        return self.schedule(work).result(30)

    def schedule(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Let something run in the gateway's thread meanwhile."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def create_batch(self, lines: list[bytes], **more: Any) -> str:
        """Upload the lines and create their batch."""
        with self.client() as client:
            file = client.files.create(file=("in.jsonl", b"\n".join(lines)), purpose="batch")
            return client.batches.create(
                input_file_id=file.id, endpoint=CHAT, completion_window="24h", **more
            ).id

    def validate(self, batch_id: str) -> None:
        """What a worker does first."""
        self.run(validate(self.database, self.gateway.app.state.file_store, batch_id))

    def process(self, batch_id: str) -> None:
        """Validate, run and finalize, as workers do."""
        self.validate(batch_id)
        self.run(self._dispatch(batch_id))

    async def _dispatch(self, batch_id: str) -> None:
        file_store = self.gateway.app.state.file_store
        client = HttpEngineClient(self.engine_url)
        await Bench(self.database, file_store=file_store).dispatch(client)
        await client.close()
        await finalize(self.database, file_store, batch_id)


def line(custom_id: str, prompt: str = "fake:text=four", **body: Any) -> bytes:
    """One input line for the fake engine."""
    messages = [{"role": "user", "content": prompt}]
    whole = {"model": MODEL, "messages": messages, **body}
    return orjson.dumps({"custom_id": custom_id, "method": "POST", "url": CHAT, "body": whole})


def error_of(reply: httpx.Response, status: int) -> dict[str, Any]:
    """The error of a reply, which must be in the envelope."""
    assert reply.status_code == status, reply.text
    error: dict[str, Any] = reply.json()["error"]
    assert list(error) == ["message", "type", "param", "code"]
    return error


async def _serve(
    database_url: str, broker_url: str, home: Path, ready: Future[Live], done: threading.Event
) -> None:
    database = Database(database_url)
    engine = FakeEngine(FakeSettings(model=MODEL))
    async with serving(engine) as engine_url:
        settings = GatewaySettings(
            database_url=database_url,
            broker_url=broker_url,
            engine_urls=engine_url,
            home=home,
            webhook_networks=LOOPBACK,
        )
        async with database.unit_of_work() as session:
            other = await projects.create(session, "other")
            _, other_key = await keys.create(session, other.id, "other")
        async with running_gateway(database, settings, MODEL) as gateway:
            loop = asyncio.get_running_loop()
            ready.set_result(Live(gateway, engine, engine_url, database, other_key, loop))
            await asyncio.to_thread(done.wait)
    await database.dispose()


@pytest.fixture(scope="session")
def live(
    postgres_server: postgres.PostgresFiles,
    valkey_server: valkey.ValkeyFiles,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Live]:
    name = "test_contract"
    with postgres_server.connect() as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY wal_log")
    ready: Future[Live] = Future()
    done = threading.Event()

    def serve() -> None:
        home = tmp_path_factory.mktemp("contract")
        try:
            asyncio.run(_serve(postgres_server.url(name), valkey_server.url, home, ready, done))
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=serve)
    thread.start()
    yield ready.result(60)
    done.set()
    thread.join()
    with postgres_server.connect() as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
