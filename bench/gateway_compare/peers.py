"""The servers that are compared: processes of their own, before one fake engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from bench.gateway_compare.environments import LITELLM, ROUTERS, programs
from bench.servers import (
    Server,
    fake_engine,
    gateway,
    new_key,
    postgres_url,
    printing,
    started,
    valkey_url,
    wait_for_models,
)
from coserve.local.ports import free_port

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


@contextmanager
def all_peers(folder: Path) -> Iterator[list[Server]]:
    """The engine, two relays, the gateway (without and with limits), LiteLLM, two routers."""
    with own_peers(folder, None) as ours, ExitStack() as stack:
        engine = ours[0]
        others = [_litellm(folder, engine.url)]
        others += [_router(name, folder, engine.url) for name in ROUTER_PACKAGES]
        yield [*ours, *map(stack.enter_context, others)]


@contextmanager
def own_peers(folder: Path, before: Path | None) -> Iterator[list[Server]]:
    """The engine, a plain and a lean relay, the gateway without and with limits.

    Args:
        folder: For their state and logs.
        before: A checkout of an earlier gateway, to be measured too.
    """
    with ExitStack() as stack:
        engine = stack.enter_context(fake_engine("--context-tokens", "65536"))
        relays = [
            stack.enter_context(printing(f"bench.gateway_compare.{name}", engine.url, name=name))
            for name in ("plain_relay", "lean_relay")
        ]
        database = stack.enter_context(postgres_url(folder))
        broker = stack.enter_context(valkey_url(folder))
        free = asyncio.run(new_key(database, role="admin"))
        limited = asyncio.run(new_key(database, limited=True))
        ours = stack.enter_context(gateway(folder, engine.url, database, broker, free))
        limits = replace(ours, name="gateway_with_limits", key=limited)
        peers = [engine, *relays, ours, limits]
        if before is not None:
            home = folder / "before"
            home.mkdir()
            other = stack.enter_context(
                gateway(home, engine.url, database, broker, free, root=before)
            )
            peers.append(replace(other, name="before"))
            peers.append(replace(other, name="before_with_limits", key=limited))
        yield peers


@contextmanager
def _litellm(folder: Path, engine: str) -> Iterator[Server]:
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
    with started(argv, folder / "litellm.log", env, folder=folder) as process:
        peer = Server("litellm", f"http://127.0.0.1:{port}", LITELLM_KEY, process.pid)
        wait_for_models(process, peer)
        yield peer


@contextmanager
def _router(name: str, folder: Path, engine: str) -> Iterator[Server]:
    """A router in Rust as its package starts it: no keys, no limits, one engine."""
    port = free_port()
    argv = [
        str(programs(ROUTERS) / "python"), "-m", f"{name}.launch_router",
        "--host", "127.0.0.1", "--port", str(port), "--worker-urls", engine,
        "--policy", "round_robin", "--prometheus-port", str(free_port()), "--log-level", "error",
    ]  # fmt: skip
    with started(argv, folder / f"{name}.log", {}, folder=folder) as process:
        peer = Server(name, f"http://127.0.0.1:{port}", "none", process.pid)
        wait_for_models(process, peer)
        yield peer
