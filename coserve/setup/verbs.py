"""What each set-up verb does, in order; one at a time per checkout."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from coserve.setup.conformance import set_up_conformance
from coserve.setup.engine_env import engine_venv, set_up_engine
from coserve.setup.model import ensure_default_model
from coserve.setup.progress import folder_bytes
from coserve.setup.service_env import set_up_service
from coserve.setup.tools import (
    set_up_browser,
    set_up_helm,
    set_up_pgbouncer,
    set_up_promtool,
    set_up_proxies,
    set_up_triton,
)
from coserve.setup.vllm_env import set_up_vllm

ALREADY_SET_UP_S = 3.0


@contextmanager
def only_one(checkout: Path) -> Iterator[None]:
    """Wait until no other set-up of this checkout runs (`make test` beside `make run`)."""
    tools = checkout / ".tools"
    tools.mkdir(parents=True, exist_ok=True)
    with (tools / "setup.lock").open("w") as lock:
        waits = False
        while not _taken(lock):
            if not waits:
                print("  another set-up is running here: waiting", flush=True)
            waits = True
            # An interrupt that comes just before a call that waits for the lock is not heard.
            time.sleep(0.2)
        yield


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def state_home() -> Path:
    """The state directory, as the service understands it."""
    from service.data_folder import default_home

    return Path(os.environ.get("COSERVE_HOME") or default_home()).absolute()


def _set_up_engine(checkout: Path) -> None:
    if os.environ.get("ENGINE_URLS"):
        print("  engine: ENGINE_URLS is set, none is installed here", flush=True)
        return
    python = set_up_engine(checkout)
    if not os.environ.get("COSERVE_MODEL"):
        ensure_default_model(checkout, state_home(), python)


def first_start_lines(checkout: Path, environ: Mapping[str, str]) -> list[str]:
    """What somebody should know who waits for the first start; nothing for later ones."""
    missing = [".venv"] if not (checkout / ".venv").exists() else []
    if not environ.get("ENGINE_URLS") and not (venv := engine_venv(checkout)).exists():
        missing.append(venv.name)
    if not missing:
        return []
    return [
        f"The first start installs {' and '.join(missing)}: two minutes and, on a CPU, 2.5 GB.",
        "Later starts take half a minute and need no network.",
    ]


FROM_DEBIAN: dict[str, Callable[[], object]] = {
    "browser": set_up_browser,
    "pgbouncer": set_up_pgbouncer,
    "proxies": set_up_proxies,
}
IN_THE_CHECKOUT: dict[str, Callable[[Path], object]] = {
    "service": partial(set_up_service, dev=False),
    "dev": partial(set_up_service, dev=True),
    "run": partial(set_up_service, dev=False),
    "engine": _set_up_engine,
    "kernels": set_up_triton,
    "conformance": set_up_conformance,
    "helm": set_up_helm,
    "promtool": set_up_promtool,
    "vllm": set_up_vllm,
}


def run_verb(verb: str, checkout: Path) -> None:
    """Do `verb`; `run` does not return. Raises SetupFailed with one sentence."""
    started_at = time.monotonic()
    if verb == "run":
        told = first_start_lines(checkout, os.environ)
        if told:
            _check_port(os.environ)
        for line in told:
            print(line, flush=True)
    if verb in FROM_DEBIAN:
        FROM_DEBIAN[verb]()
        return
    with only_one(checkout):
        IN_THE_CHECKOUT[verb](checkout)
    if verb == "run":
        took_s = time.monotonic() - started_at
        coserve = checkout / ".venv" / "bin" / "coserve"
        options = ["--service-setup-s", f"{took_s:.1f}"] if took_s > ALREADY_SET_UP_S else []
        sys.stdout.flush()
        os.execv(coserve, [str(coserve), "up", *options])


def _check_port(environ: Mapping[str, str]) -> None:
    """End now, and not after the installation, where the port is taken; `up` looks at the rest."""
    from coserve.local.probes import why_port_unusable

    port = environ.get("COSERVE_PORT") or "8080"
    host = environ.get("COSERVE_HOST") or "127.0.0.1"
    unusable = why_port_unusable(host, int(port)) if port.isdecimal() else None
    if unusable:
        print(unusable, file=sys.stderr)
        sys.exit(2)


def sizes(checkout: Path, home: Path) -> str:
    """What the installation takes on disk, as one line."""
    parts = {
        ".venv": checkout / ".venv",
        engine_venv(checkout).name: engine_venv(checkout),
        "models": home / "models",
    }
    return ", ".join(
        f"{name} {folder_bytes(folder) / 1e6:,.0f} MB"
        for name, folder in parts.items()
        if folder.exists()
    )
