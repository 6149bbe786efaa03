"""The way of one chat request through our code: which files, how deep, how often to and fro.

    python -m bench.walk > bench/results/walk.txt

A gateway runs in this process before a fake engine; one request of each kind is traced from its
first byte to its last, in the thread of the event loop. What the loop does by the second is left
out.

    files        with code that ran for the request
    floors       the most frames of ours that were on the stack at once
    hand-overs   calls from one of our files into another
    body         files that another file handed the request's body to, raw or parsed, in that order
    returns      how often it was handed to a file that had it before; `api/` is one place here: it
                 checks a body by tables of rules, which lie in many files

Quoted in docs/benchmark-gateway.md.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import groupby
from types import FrameType
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
import uvloop

from bench.gateway_compare.load import body
from bench.paths import ROOT
from bench.report import scratch_folder
from bench.servers import gateway_settings, new_key, surroundings
from coserve.local.ports import free_port
from gateway.http.app import create_app
from gateway.http.server import GatewayServer
from gateway.settings import GatewaySettings

PRODUCT: Final = ("gateway/", "api/", "engine_adapter/", "batch/", "store/", "service/")
LOOPS: Final = "service/loops.py"
MARK: Final = "a sea of words that nothing else holds"
NUM_WARM: Final = 3
MAX_DEPTH: Final = 6
KINDS: Final[Mapping[str, dict[str, Any]]] = {
    "whole": {},
    "stream": {"stream": True},
    "three choices": {"n": 3},
}


def holds(value: Any, depth: int = MAX_DEPTH) -> bool:
    """Whether a value has the request's text somewhere in it."""
    if isinstance(value, bytes | bytearray):
        return MARK.encode() in value
    if isinstance(value, str):
        return MARK in value
    if not depth:
        return False
    inside: Iterator[Any]
    if isinstance(value, dict):
        inside = iter(value.values())
    elif isinstance(value, list | tuple):
        inside = iter(value)
    elif is_dataclass(value):
        inside = (getattr(value, field.name, None) for field in fields(value))
    else:
        return False
    return any(holds(one, depth - 1) for one in inside)


class Walk:
    """What a profiler saw of one request."""

    def __init__(self) -> None:
        self._seen: dict[int, FrameType] = {}
        self.files: set[str] = set()
        self.floors = 0
        self.hand_overs = 0
        self.body: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """See `sys.setprofile`; a coroutine that goes on is no new call."""
        name = _name(frame)
        if event != "call" or name is None or id(frame) in self._seen:
            return
        stack = [name, *_callers(frame)]
        if LOOPS in stack:
            return
        self._seen[id(frame)] = frame  # kept, so that no other gets its id
        self.files.add(name)
        self.floors = max(self.floors, len(stack))
        if stack[1:2] == [name]:
            return
        self.hand_overs += 1
        code = frame.f_code
        if any(holds(frame.f_locals.get(argument)) for argument in code.co_varnames[: _num(code)]):
            self.body.append(name)

    def lines(self) -> Iterator[str]:
        places = ["api/" if name.startswith("api/") else name for name in self.body]
        stays = [name for name, _ in groupby(places)]
        yield f"  {'files':12} {len(self.files)}"
        yield f"  {'of gateway':12} {sum(name.startswith('gateway/') for name in self.files)}"
        yield f"  {'floors':12} {self.floors}"
        yield f"  {'hand-overs':12} {self.hand_overs}"
        yield f"  {'body':12} {len(set(self.body))}, {len(set(stays))} with api/ as one"
        yield f"  {'returns':12} {len(stays) - len(set(stays))}"
        yield from (f"    {name}" for name in stays)


def _num(code: Any) -> int:
    return int(code.co_argcount + code.co_kwonlyargcount)


def _name(frame: FrameType) -> str | None:
    """A file's name from the checkout on; none where it is not ours."""
    path = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
    return path if path.startswith(PRODUCT) else None


def _callers(frame: FrameType) -> Iterator[str]:
    above = frame.f_back
    while above is not None:
        if (name := _name(above)) is not None:
            yield name
        above = above.f_back


def ask(url: str, key: str, **more: Any) -> None:
    """One request and its whole answer."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    asked = {**body(f"{MARK} fake:tokens=8"), **more}
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    connection.request("POST", "/v1/chat/completions", orjson.dumps(asked), headers)
    reply = connection.getresponse()
    assert reply.status == 200, reply.read()
    reply.read()
    connection.close()


async def walked(settings: GatewaySettings, key: str) -> dict[str, Walk]:
    """Serve in this thread, ask from another."""
    server = GatewayServer(create_app(settings), settings)
    serving = asyncio.ensure_future(server.serve())
    while not server.started:  # noqa: ASYNC110 - the server has no event for it
        await asyncio.sleep(0.05)
    walks = {}
    for name, more in KINDS.items():
        asking = partial(ask, f"http://127.0.0.1:{settings.port}", key, **more)
        for _ in range(NUM_WARM):
            await asyncio.to_thread(asking)
        walks[name] = Walk()
        asked = asyncio.ensure_future(asyncio.to_thread(asking))
        sys.setprofile(walks[name])
        await asked
        sys.setprofile(None)
    server.should_exit = True
    await serving
    return walks


def main() -> int:
    """Print each walk."""
    with scratch_folder() as folder, surroundings(folder) as (engine, database, broker):
        key = asyncio.run(new_key(database, limited=True))
        os.environ |= gateway_settings(folder, engine, database, broker, free_port())
        walks = uvloop.run(walked(GatewaySettings(), key))
    for name, walk in walks.items():
        print("\n".join([name, *walk.lines()]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
