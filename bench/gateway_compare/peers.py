"""The servers that are compared: processes of their own, before one fake engine."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
from sqlalchemy import update

from bench.gateway_compare.environments import LITELLM, ROUTERS, programs
from bench.paths import ROOT
from bench.servers import postgres_url, stop, valkey_url
from coserve.local.ports import free_port
from store.models import DEFAULT_PROJECT_ID, ApiKey
from store.repositories import key as keys
from store.session import Database

START_LIMIT_S = 180.0
NEVER_REACHED = 1_000_000_000
ROUTER_PACKAGES = ("sglang_router", "vllm_router")
LITELLM_KEY = "sk-bench-litellm"
LITELLM_CONFIG = """\
model_list:
  - model_name: fake-model
    litellm_params:
      model: openai/fake-model
      api_base: {engine}/v1
      api_key: none
general_settings:
  master_key: {key}
litellm_settings:
  telemetry: false
"""


@dataclass(frozen=True)
class Peer:
    """One server: where it answers, with which key, and whose CPU time counts."""

    name: str
    url: str
    key: str
    pid: int


@contextmanager
def all_peers(folder: Path) -> Iterator[list[Peer]]:
    """The engine, two relays, the gateway (without and with limits), LiteLLM, two routers."""
    with own_peers(folder, None) as ours, ExitStack() as stack:
        engine = ours[0]
        others = [_litellm(folder, engine.url)]
        others += [_router(name, folder, engine.url) for name in ROUTER_PACKAGES]
        yield [*ours, *map(stack.enter_context, others)]


@contextmanager
def own_peers(folder: Path, before: Path | None) -> Iterator[list[Peer]]:
    """The engine, a plain and a lean relay, the gateway without and with limits.

    Args:
        folder: For their state and logs.
        before: A checkout of an earlier gateway, to be measured too.
    """
    with ExitStack() as stack:
        engine = stack.enter_context(_engine())
        relay = stack.enter_context(
            _printing("bench.gateway_compare.plain_relay", [engine.url], "plain_relay", "")
        )
        lean = stack.enter_context(
            _printing("bench.gateway_compare.lean_relay", [engine.url], "lean_relay", "")
        )
        database = stack.enter_context(postgres_url(folder))
        broker = stack.enter_context(valkey_url(folder))
        free, limited = asyncio.run(two_keys(database))
        gateway = stack.enter_context(_gateway(folder, engine.url, database, broker, free))
        limits = replace(gateway, name="gateway_with_limits", key=limited)
        peers = [engine, relay, lean, gateway, limits]
        if before is not None:
            home = folder / "before"
            home.mkdir()
            other = stack.enter_context(
                _gateway(home, engine.url, database, broker, free, root=before)
            )
            peers.append(replace(other, name="before"))
            peers.append(replace(other, name="before_with_limits", key=limited))
        yield peers


@contextmanager
def one_gateway(folder: Path, fill: Callable[[str], None] | None = None) -> Iterator[Peer]:
    """The gateway alone, with its engine, database (which `fill` may fill) and broker."""
    with surroundings(folder, fill) as (engine, database, broker):
        key, _ = asyncio.run(two_keys(database))
        with _gateway(folder, engine, database, broker, key) as gateway:
            yield gateway


@contextmanager
def surroundings(
    folder: Path, fill: Callable[[str], None] | None = None
) -> Iterator[tuple[str, str, str]]:
    """What a gateway needs: the URLs of an engine, a database and a broker."""
    with ExitStack() as stack:
        engine = stack.enter_context(_engine())
        database = stack.enter_context(postgres_url(folder))
        broker = stack.enter_context(valkey_url(folder))
        if fill is not None:
            fill(database)
        yield engine.url, database, broker


def environment(folder: Path, engine: str, database: str, broker: str, port: int) -> dict[str, str]:
    """A gateway's settings."""
    return {
        "DATABASE_URL": database,
        "BROKER_URL": broker,
        "ENGINE_URLS": engine,
        "COSERVE_HOME": str(folder),
        "COSERVE_PORT": str(port),
    }


async def two_keys(url: str) -> tuple[str, str]:
    """A key without limits, and one whose limits are looked at and never reached."""
    database = Database(url)
    async with database.unit_of_work() as session:
        _, free = await keys.create(session, DEFAULT_PROJECT_ID, "free", role="admin")
        key, limited = await keys.create(session, DEFAULT_PROJECT_ID, "limited")
        await session.execute(
            update(ApiKey)
            .where(ApiKey.id == key.id)
            .values(requests_per_minute=NEVER_REACHED, tokens_per_minute=NEVER_REACHED)
        )
    await database.dispose()
    return free, limited


def _engine() -> AbstractContextManager[Peer]:
    options = ["--context-tokens", "65536"]
    return _printing("tests.fakes.server", options, "direct", "")


@contextmanager
def _printing(module: str, options: list[str], name: str, key: str) -> Iterator[Peer]:
    """A server of ours that prints its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *options], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        port = process.stdout.readline().split()[-1]
        yield Peer(name, f"http://127.0.0.1:{port}", key, process.pid)
    finally:
        stop(process)


@contextmanager
def _gateway(
    folder: Path, engine: str, database: str, broker: str, key: str, *, root: Path = ROOT
) -> Iterator[Peer]:
    port = free_port()
    env = environment(folder, engine, database, broker, port)
    # The working directory comes first among the places of modules.
    with _logged([sys.executable, "-m", "gateway"], env, root, folder / "gateway.log") as process:
        peer = Peer("gateway", f"http://127.0.0.1:{port}", key, process.pid)
        _wait_for_models(process, peer)
        yield peer


@contextmanager
def _litellm(folder: Path, engine: str) -> Iterator[Peer]:
    """As its documentation has it for production: one worker, no debug log, nothing fetched."""
    port, config = free_port(), folder / "litellm.yaml"
    config.write_text(LITELLM_CONFIG.format(engine=engine, key=LITELLM_KEY))
    argv = [
        str(programs(LITELLM) / "litellm"), "--config", str(config), "--host", "127.0.0.1",
        "--port", str(port), "--num_workers", "1",
    ]  # fmt: skip
    env = {
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOG": "ERROR",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "NO_DOCS": "True",
    }
    with _logged(argv, env, folder, folder / "litellm.log") as process:
        peer = Peer("litellm", f"http://127.0.0.1:{port}", LITELLM_KEY, process.pid)
        _wait_for_models(process, peer)
        yield peer


@contextmanager
def _router(name: str, folder: Path, engine: str) -> Iterator[Peer]:
    """A router in Rust as its package starts it: no keys, no limits, one engine."""
    port = free_port()
    argv = [
        str(programs(ROUTERS) / "python"), "-m", f"{name}.launch_router",
        "--host", "127.0.0.1", "--port", str(port), "--worker-urls", engine,
        "--policy", "round_robin", "--prometheus-port", str(free_port()), "--log-level", "error",
    ]  # fmt: skip
    with _logged(argv, {}, folder, folder / f"{name}.log") as process:
        peer = Peer(name, f"http://127.0.0.1:{port}", "none", process.pid)
        _wait_for_models(process, peer)
        yield peer


@contextmanager
def _logged(
    argv: list[str], env: dict[str, str], folder: Path, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    inherited = {name: value for name, value in os.environ.items() if "COSERVE" not in name}
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, cwd=folder, env={**inherited, **env}, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield process
    except BaseException:
        sys.stderr.write(log.read_text(errors="replace")[-3000:])
        raise
    finally:
        stop(process)


def _wait_for_models(process: subprocess.Popen[bytes], peer: Peer) -> None:
    """Until the server answers and knows the model."""
    headers = {"authorization": f"Bearer {peer.key}"}
    limit = time.monotonic() + START_LIMIT_S
    while time.monotonic() < limit and process.poll() is None:
        try:
            reply = httpx.get(f"{peer.url}/v1/models", headers=headers)
            if reply.status_code == 200 and reply.json().get("data"):
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"{peer.name} did not start")
