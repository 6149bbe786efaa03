"""The ways in which a tenant can load the service within its limits: one table, `ATTACKS`.

Each is a coroutine that loads the service until it is cancelled, and never pauses for a refusal.
All come from an address of their own, so that what an address may have is asked of them alone.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final

import aiohttp
import orjson

from batch.worker.app import GC_PERIOD_S
from bench.batches import line
from engine_adapter.client.base import CHAT_PATH, EMBEDDINGS_PATH

MODEL: Final = "fake-model"
EMBEDDING_MODEL: Final = "fake-embeddings"
ADDRESS: Final = "127.0.0.2"
NUM_CALLERS, NUM_IMPATIENT, NUM_SOCKETS, NUM_FOLLOWERS = 4, 64, 1000, 100
RESULT_ROWS: Final = 3000
SECONDS: Final = 15.0
LIMITED_BYTES_PER_S: Final = 7 * 1024 * 1024


_STATUS: Final = re.compile(rb"HTTP/1.1 (\d{3})")


@dataclass
class Tenant:
    """Who attacks.

    Attributes:
        key: Of a project with the limits that a new project has.
        limited_key: Of one that may ask once a minute.
        batch_id: A batch of `RESULT_ROWS` lines of the first, which is complete.
        output_id: Its output file.
    """

    url: str
    key: str
    limited_key: str
    batch_id: str = ""
    output_id: str = ""


class Load:
    """A tenant's client, which counts what it is answered."""

    def __init__(self, tenant: Tenant, session: aiohttp.ClientSession) -> None:
        self.tenant = tenant
        self.answers: Counter[str] = Counter()
        self._session = session

    async def send(self, method: str, path: str, *, key: str | None = None, **given: Any) -> Any:
        """Send one request; the answer's JSON or bytes, none where it was refused."""
        headers = {"authorization": f"Bearer {key or self.tenant.key}"}
        if isinstance(given.get("data"), bytes):
            headers["content-type"] = "application/json"
        try:
            async with self._session.request(
                method, self.tenant.url + path, headers=headers, **given
            ) as reply:
                self.answers[str(reply.status)] += 1
                raw = await reply.read()
                if not reply.ok:
                    return None
                return orjson.loads(raw) if reply.content_type == "application/json" else raw
        except aiohttp.ClientError:
            self.answers["cut"] += 1
            return None

    async def upload(self, raw: bytes) -> str:
        """Upload a batch's input; its id, empty where it was refused."""
        form = aiohttp.FormData()
        form.add_field("purpose", "batch")
        form.add_field("file", raw, filename="input.jsonl")
        return str((await self.send("POST", "/v1/files", data=form) or {}).get("id", ""))

    async def over_and_over(self, num: int, step: Callable[[], Awaitable[object]]) -> None:
        """So many callers repeat a step for ever."""

        async def caller() -> None:
            while True:
                await step()

        async with asyncio.TaskGroup() as group:
            for _ in range(num):
                group.create_task(caller())


def heavy_bodies() -> list[bytes]:
    """Legal chat bodies that are work to parse: many messages, many parts, long texts."""
    part, small = {"type": "text", "text": "a"}, {"role": "user", "content": "a" * 20}
    contents: tuple[list[dict[str, Any]], ...] = (
        [small] * 20_000,
        [{"role": "user", "content": [part] * 40_000}],
        [{"role": "user", "content": "a" * 4 * 1024 * 1024}],
    )
    return [
        orjson.dumps({"model": MODEL, "messages": messages, "max_tokens": 1})
        for messages in contents
    ]


def chat(order: str, **more: Any) -> dict[str, Any]:
    """A chat body whose message tells the fake engine what to answer."""
    return {"model": MODEL, "messages": [{"role": "user", "content": order}], **more}


async def nothing(load: Load) -> None:
    await load.over_and_over(1, lambda: asyncio.sleep(1.0))


async def small_batches(load: Load) -> None:
    wanted = {
        "input_file_id": await load.upload(line(0) + b"\n"),
        "endpoint": CHAT_PATH, "completion_window": "24h",
    }  # fmt: skip
    await load.over_and_over(8, lambda: load.send("POST", "/v1/batches", json=wanted))


async def refused_bodies(load: Load) -> None:
    bodies = cycle(heavy_bodies())

    async def step() -> None:
        raw = next(bodies)
        await load.send("POST", CHAT_PATH, key=load.tenant.limited_key, data=raw)
        await asyncio.sleep(NUM_CALLERS * len(raw) / LIMITED_BYTES_PER_S)

    await load.over_and_over(NUM_CALLERS, step)


async def served_bodies(load: Load) -> None:
    bodies = cycle(heavy_bodies())
    await load.over_and_over(NUM_CALLERS, lambda: load.send("POST", CHAT_PATH, data=next(bodies)))


async def _long_history(load: Load) -> str:
    """The last of four responses of 4,000 items each."""
    items = [{"role": "user", "content": f"{number}"} for number in range(4000)]
    body: dict[str, Any] = {"model": MODEL, "input": items, "max_output_tokens": 16}
    for _ in range(4):
        made = await load.send("POST", "/v1/responses", json=body)
        if made is None:
            raise RuntimeError("a long conversation was refused")
        body["previous_response_id"] = made["id"]
    return str(body["previous_response_id"])


async def long_conversations(load: Load) -> None:
    first = await _long_history(load)
    body = {"model": MODEL, "input": "Go on.", "previous_response_id": first}
    await load.over_and_over(NUM_CALLERS, lambda: load.send("POST", "/v1/responses", json=body))


async def history_reads(load: Load) -> None:
    first = await _long_history(load)
    path = f"/v1/responses/{first}"
    paths = cycle([path, f"{path}/input_items?limit=100", f"{path}/input_items?order=asc"])
    await load.over_and_over(16, lambda: load.send("GET", next(paths)))


async def followers(load: Load) -> None:
    body = {"model": MODEL, "input": "fake:tokens=100000 fake:token_ms=10", "background": True}
    made = await load.send("POST", "/v1/responses", json={**body, "stream": False})
    path = f"/v1/responses/{(made or {}).get('id', '')}?stream=true"
    await load.over_and_over(2 * NUM_FOLLOWERS, lambda: load.send("GET", path))


async def dry_runs(load: Load) -> None:
    file_id = await load.upload(b"\n".join(map(line, range(50_000))))
    wanted = {"input_file_id": file_id, "endpoint": CHAT_PATH}
    await load.over_and_over(8, lambda: load.send("POST", "/v1/batches/check", json=wanted))


async def uploads(load: Load) -> None:
    raw = b"\n".join(map(line, range(50_000)))

    async def step() -> None:
        if file_id := await load.upload(raw):
            await load.send("DELETE", f"/v1/files/{file_id}")

    await load.over_and_over(NUM_CALLERS, step)


async def unknown_keys(load: Load) -> None:
    async def step() -> None:
        await load.send("GET", "/v1/models", key=f"sk-{secrets.token_hex(24)}")

    await load.over_and_over(NUM_IMPATIENT, step)


async def _connect(load: Load, head: bytes, hold_s: float) -> None:
    """A connection that says something and then neither reads nor writes."""
    host, _, port = load.tenant.url.removeprefix("http://").partition(":")
    try:
        reader, writer = await asyncio.open_connection(
            host, int(port), limit=1024, local_addr=(ADDRESS, 0)
        )
    except OSError:
        load.answers["cut"] += 1
        return
    load.answers["connections"] += 1
    try:
        writer.write(head)
        await asyncio.sleep(hold_s)
        first = (await reader.read(12)).decode(errors="replace")
        load.answers[first[9:12] or "cut"] += 1
    except OSError:
        load.answers["cut"] += 1
    finally:
        writer.transport.abort()


async def slow_readers(load: Load) -> None:
    raw = orjson.dumps(chat("fake:tokens=100000 fake:width=4000 fake:token_ms=20", stream=True))
    head = (
        f"POST {CHAT_PATH} HTTP/1.1\r\nhost: coserve\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {load.tenant.key}\r\ncontent-length: {len(raw)}\r\n\r\n"
    ).encode()
    await load.over_and_over(100, lambda: _connect(load, head + raw, 5.0))


async def idle_connections(load: Load) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: coserve\r\n"
    await load.over_and_over(NUM_SOCKETS, lambda: _connect(load, head, 2.0))


async def _talk(load: Load, said: bytes, count: int) -> None:
    """A connection that says all of this at once, and reads so many answers."""
    host, _, port = load.tenant.url.removeprefix("http://").partition(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=(ADDRESS, 0))
    except OSError:
        load.answers["cut"] += 1
        return
    try:
        writer.write(said)
        found, num_found = b"", 0
        while num_found < count and (more := await reader.read(1 << 16)):
            found, last = found + more, 0
            for one in _STATUS.finditer(found):
                load.answers[one[1].decode()] += 1
                num_found, last = num_found + 1, one.end()
            found = found[max(last, len(found) - 12) :]
    except OSError:
        load.answers["cut"] += 1
    finally:
        writer.transport.abort()


def _head(load: Load, start: str, *more: str) -> bytes:
    lines = (start, "host: coserve", f"authorization: Bearer {load.tenant.key}", *more)
    return "".join(f"{line}\r\n" for line in lines).encode()


async def requests_in_a_row(load: Load) -> None:
    one = _head(load, "GET /v1/files/none HTTP/1.1") + b"\r\n"
    await load.over_and_over(8, lambda: _talk(load, one * 500, 500))


async def tiny_chunks(load: Load) -> None:
    raw = orjson.dumps(chat("a" * 100_000, max_tokens=1))
    head = _head(
        load, f"POST {CHAT_PATH} HTTP/1.1", "content-type: application/json",
        "transfer-encoding: chunked", "connection: close",
    )  # fmt: skip
    said = head + b"\r\n" + b"".join(b"1\r\n%c\r\n" % byte for byte in raw) + b"0\r\n\r\n"
    await load.over_and_over(8, lambda: _talk(load, said, 1))


async def work_to_parse(load: Load) -> None:
    """Heads and forms that others' parsers take long for, sent by nobody in particular."""
    form = {"content-type": "application/x-www-form-urlencoded"}
    parts = {"content-type": "multipart/form-data; boundary=a"}
    ways: cycle[tuple[str, dict[str, str], bytes]] = cycle([
        ("/healthz", {"cookie": f'a="{chr(92) * 30_000}"'}, b""),
        ("/admin/login", {"content-type": "multipart/form-data" + ";" * 30_000}, b"a"),
        ("/healthz?" + "&" * 8_000, {}, b""),
        ("/admin/login", form, b"&" * 16_000),
        ("/admin/login", parts, b"\r\n--ax" * 20_000),
    ])  # fmt: skip

    async def step() -> None:
        path, more, body = next(ways)
        method = "POST" if body else "GET"
        start = f"{method} {path} HTTP/1.1"
        length = {"content-length": str(len(body))} if body else {}
        lines = [f"{name}: {value}" for name, value in {**more, **length}.items()]
        head = "\r\n".join([start, "host: coserve", "connection: close", *lines, "", ""])
        await _talk(load, head.encode() + body, 1)

    await load.over_and_over(16, step)


async def log_probabilities(load: Load) -> None:
    body = chat("fake:tokens=2000 fake:token_ms=0", logprobs=True, top_logprobs=20)
    await load.over_and_over(NUM_CALLERS, lambda: load.send("POST", CHAT_PATH, json=body))


async def short_chats(load: Load) -> None:
    body = chat("Hello.", max_tokens=1)
    await load.over_and_over(NUM_IMPATIENT, lambda: load.send("POST", CHAT_PATH, json=body))


async def many_tools(load: Load) -> None:
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(14)}}
    functions = [{"name": f"f{n}", "parameters": schema} for n in range(128)]
    tools = [{"type": "function", "function": function} for function in functions]
    raw = orjson.dumps(chat("Hello.", max_tokens=1, tools=tools))
    await load.over_and_over(16, lambda: load.send("POST", CHAT_PATH, data=raw))


async def many_embeddings(load: Load) -> None:
    body = {"model": EMBEDDING_MODEL, "input": [f"input {number}" for number in range(2048)]}
    await load.over_and_over(NUM_CALLERS, lambda: load.send("POST", EMBEDDINGS_PATH, json=body))


async def result_downloads(load: Load) -> None:
    tenant = load.tenant
    paths = cycle([
        f"/v1/files/{tenant.output_id}/content",
        f"/v1/batches/{tenant.batch_id}/results?limit=1000",
        f"/v1/batches/{tenant.batch_id}/results/stream",
    ])  # fmt: skip
    await load.over_and_over(8, lambda: load.send("GET", next(paths)))


async def expired_objects(load: Load) -> None:
    """They lie there already; what is asked of the attacker is to make more."""

    async def step() -> None:
        if file_id := await load.upload(b"{}\n"):
            await load.send("DELETE", f"/v1/files/{file_id}")

    await load.over_and_over(8, step)


@dataclass(frozen=True)
class Attack:
    """One way to load the service.

    Attributes:
        does: What the tenant does.
        run: Does it until it is cancelled.
        lasts_s: How long it takes to show; none: as long as any other.
    """

    does: str
    run: Callable[[Load], Awaitable[None]]
    lasts_s: float | None = None


ATTACKS: Final = {
    "nobody": Attack("does nothing", nothing),
    "small batches": Attack("creates one-line batches, 8 at a time", small_batches),
    "refused bodies": Attack("sends large bodies that a limit refuses, 7 MiB/s", refused_bodies),
    "served bodies": Attack("has bodies of 1 to 4 MiB served, 4 at a time", served_bodies),
    "long conversations": Attack(
        "continues a conversation of 16,000 items, 4 at a time", long_conversations
    ),
    "history reads": Attack(
        "reads a response of 16,000 items and its input, 16 at a time", history_reads
    ),
    "followers": Attack("follows one background response, 200 at a time", followers),
    "dry runs": Attack("checks a file of 50,000 lines, 8 at a time", dry_runs),
    "uploads": Attack("uploads files of 50,000 lines and deletes them, 4 at a time", uploads),
    "objects": Attack(
        "has 5,000 expired files whose bytes cannot be removed, and makes more",
        expired_objects,
        lasts_s=GC_PERIOD_S,
    ),
    "unknown keys": Attack("sends keys that do not exist, 64 at a time", unknown_keys),
    "slow readers": Attack("opens 100 streams of long tokens and does not read", slow_readers),
    "idle connections": Attack(
        "opens 1,000 connections, sends half a head and waits", idle_connections
    ),
    "requests in a row": Attack(
        "sends 500 requests in a row on a connection, 8 at a time", requests_in_a_row
    ),
    "tiny chunks": Attack("sends bodies in chunks of one byte, 8 at a time", tiny_chunks),
    "work to parse": Attack(
        "sends cookies, types, queries and forms that are work to parse, 16 at a time",
        work_to_parse,
    ),
    "log probabilities": Attack(
        "asks for 2,000 tokens with 20 alternatives each, 4 at a time", log_probabilities
    ),
    "short chats": Attack("asks for one token, 64 at a time", short_chats),
    "tools": Attack("offers 128 tools in 50 KB, 16 at a time", many_tools),
    "embeddings": Attack("embeds 2,048 inputs a request, 4 at a time", many_embeddings),
    "downloads": Attack("downloads results of 3,000 lines, 8 at a time", result_downloads),
}
