"""An engine that comes and goes by itself: `python -m engine_adapter.registration -- COMMAND...`.

Runs COMMAND, an engine, and tells the gateways of it:

    arrived    once it answers
    here       every `BEAT_S`
    draining   at SIGTERM: nothing new is sent there within a second
    left       when its last request has ended, or after `COSERVE_ENGINE_DRAIN_S`; then it is ended

Where it ends by itself, `left` is said too. Settings: `COSERVE_REGISTER_URLS` (gateways, comma
separated; the first that answers is told), `COSERVE_ENGINE_URL` (where gateways reach the engine),
`COSERVE_ENGINE_TOKEN`, or a file with it in `COSERVE_ENGINE_TOKEN_FILE`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from engine_adapter.client.engine_address import EngineAddress, NotAnAddress, addresses
from engine_adapter.client.engine_facts import read_live
from service.loops import Loops

BEAT_S: Final = 3.0
POLL_INTERVAL_S: Final = 0.25
SETTLE_S: Final = 2.0
"""Gateways and dispatchers have heard of a drain by then, and what they had just sent has come."""

NAMES: Final = (
    "COSERVE_REGISTER_URLS",
    "COSERVE_ENGINE_URL",
    "COSERVE_ENGINE_TOKEN",
    "COSERVE_ENGINE_TOKEN_FILE",
    "COSERVE_ENGINE_DRAIN_S",
)
"""Of the environment; the engine itself gets none of them."""

_LIMIT_S = 5.0
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RegistrationSettings:
    """Where and how to register.

    Attributes:
        gateways: Their addresses.
        url: Where gateways reach the engine.
        token: What opens the route.
        drain_s: How long open requests may go on once the engine is to end.
        local_url: Where this process reaches the engine.
    """

    gateways: tuple[str, ...]
    url: str
    token: str
    drain_s: float = 600.0
    local_url: str = ""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> RegistrationSettings:
        """Read the environment.

        Raises:
            ValueError: Something is missing; one sentence.
        """
        try:
            gateways = addresses(environ.get("COSERVE_REGISTER_URLS", ""))
        except NotAnAddress as error:
            raise ValueError(f"COSERVE_REGISTER_URLS: {error}.") from None
        url, token = environ.get("COSERVE_ENGINE_URL", ""), environ.get("COSERVE_ENGINE_TOKEN", "")
        if not token and (file := environ.get("COSERVE_ENGINE_TOKEN_FILE")):
            token = Path(file).read_text().strip()
        if not (gateways and url and token):
            raise ValueError(
                "An engine that registers itself needs COSERVE_REGISTER_URLS, COSERVE_ENGINE_URL "
                "and COSERVE_ENGINE_TOKEN."
            )
        drain_s = float(environ.get("COSERVE_ENGINE_DRAIN_S") or "600")
        try:
            address = EngineAddress.parse(url)
        except NotAnAddress as error:
            raise ValueError(f"COSERVE_ENGINE_URL is no engine's address: {error}.") from None
        # Without a port it may be a proxy that is reached by its name alone.
        named = address.netloc.endswith(f":{address.port}")
        local = f"http://127.0.0.1:{address.port}" if named else str(address)
        return cls(gateways, str(address), token, drain_s, local)


class Registration:
    """Speaks for one engine."""

    def __init__(self, settings: RegistrationSettings, session: aiohttp.ClientSession) -> None:
        self._settings = settings
        self._session = session
        self._has_arrived = False

    async def say(self, state: str) -> bool:
        """Tell the first gateway that listens; whether one did."""
        body = {"url": self._settings.url, "state": state}
        headers = {"authorization": f"Bearer {self._settings.token}"}
        for gateway in self._settings.gateways:
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with self._session.post(
                    f"{gateway}/internal/engines", json=body, headers=headers
                ) as answer:
                    if answer.status == 200:
                        return True
                    logger.warning("%s answered %d to %r", gateway, answer.status, state)
        return False

    async def num_live(self) -> int | None:
        """Requests that the engine has; none where it does not answer."""
        with suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):
            async with self._session.get(f"{self._settings.local_url}/server_info") as answer:
                if answer.status != 200:
                    return None
                return len(read_live(await answer.json()))
        return None

    async def beat(self) -> None:
        """Say once that the engine is there; the first time after it answers."""
        if not self._has_arrived:
            await self._until(lambda num: num is not None)
            self._has_arrived = await self.say("arrived")
        else:
            await self.say("here")

    async def drain(self) -> None:
        """Get nothing new, and wait until nothing is left or the time is up."""
        if not await self.say("draining"):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_s):
                await asyncio.sleep(SETTLE_S)
                await self._until(lambda num: not num)

    async def _until(self, enough: Callable[[int | None], bool]) -> None:
        """Look at the engine's open requests until they are as wanted."""
        while True:
            if enough(await self.num_live()):
                return
            await asyncio.sleep(POLL_INTERVAL_S)


async def run(command: Sequence[str], settings: RegistrationSettings) -> int:
    """Run an engine until it ends or SIGTERM comes; its exit status, 0 after an orderly end."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, stop.set)
    timeout = aiohttp.ClientTimeout(total=_LIMIT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        registration = Registration(settings, session)
        environ = {name: value for name, value in os.environ.items() if name not in NAMES}
        engine = await asyncio.create_subprocess_exec(*command, env=environ, start_new_session=True)
        ended = asyncio.ensure_future(engine.wait())
        stopped = asyncio.ensure_future(stop.wait())
        async with Loops() as loops:
            loops.forever("beat", registration.beat, every_s=BEAT_S)
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not ended.done():
            draining = asyncio.ensure_future(_told(registration.drain()))
            await asyncio.wait({ended, draining}, return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()
        await _told(registration.say("left"))
        if ended.done():
            return ended.result()
        engine.terminate()
        await ended
        return 0


async def _told(work: Awaitable[object]) -> None:
    """The engine ends in order, whatever comes of telling gateways so."""
    try:
        await work
    except Exception:
        logger.exception("the gateways were not told")


def main() -> None:
    """Run the command after `--`."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    command = sys.argv[2:] if sys.argv[1:2] == ["--"] else sys.argv[1:]
    try:
        settings = RegistrationSettings.of(os.environ)
    except ValueError as error:
        sys.exit(str(error))
    sys.exit(asyncio.run(run(command, settings)))


if __name__ == "__main__":
    main()
