"""What `coserve doctor` looks at: each thing with what was found, and what to do if it is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from coserve.local.lock import Owner
from coserve.local.probes import http_get, why_port_unusable
from coserve.settings import LocalSettings
from coserve.setup.engine_env import engine_python, has_cuda, is_current
from coserve.setup.host import why_unsupported
from engine_adapter.client.engine_address import addresses, shown, why_unusable
from engine_adapter.client.engine_facts import read_facts
from engine_adapter.host_cpu import cpu_name, matmul_dtype
from engine_adapter.host_gpu import OLDEST_DRIVER, cuda_environment
from gateway.verdict.remedies import in_words
from service.broker import Broker

GIB: Final = 2**30
LITTLE_DISK_BYTES, NO_DISK_BYTES = 10 * GIB, GIB
LITTLE_MEMORY_BYTES = 4 * GIB
_NVIDIA = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
_NVIDIA_LIMIT_S = 20.0
_ASK_TORCH: Final = (
    "import torch; print(torch.version.cuda,"
    " torch.cuda.device_count() if torch.cuda.is_available() else 0)"
)
_TORCH_LIMIT_S: Final = 60.0
_BROKER_LIMIT_S = 5.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        state: `good`, `warn` (it works, though not as it could), `bad`, or `unknown`.
        fix: What to do; empty if nothing.
    """

    name: str
    state: str
    found: str
    fix: str = ""


@dataclass(frozen=True)
class Case:
    """What is examined.

    Attributes:
        database_url: Of the running stack or of DATABASE_URL; none while there is no database.
        broker: Where one was given.
    """

    settings: LocalSettings
    checkout: Path
    owner: Owner | None
    database_url: str | None
    broker: Broker | None


def examine(case: Case) -> Iterator[Finding]:
    """Look at everything, cheap things first."""
    yield _host()
    yield _port(case)
    yield _disk(case.settings.home_path)
    yield _memory()
    yield _cpu()
    yield _gpu()
    yield _engine_environment(case)
    if has_cuda() and not case.settings.engine_urls:
        python = engine_python(case.checkout)
        yield cuda(python)
        yield compilers(python, os.environ)
    yield asyncio.run(_database(case))
    whole = _statusz(case.owner)
    said: Mapping[str, Any] = whole.get("parts") or {}
    yield from _issues(whole.get("verdict") or {})
    yield _broker(case, said)
    yield _engine(case, said)
    yield from asyncio.run(_plugins(case, answers=bool(said) and said["engine"]["ok"]))


def _host() -> Finding:
    why = why_unsupported()
    found = (
        f"coserve {version('coserve')}, Python {platform.python_version()}, {platform.machine()}"
    )
    return (
        Finding("host", "bad", why, "Use a supported host.")
        if why
        else Finding("host", "good", found)
    )


def _port(case: Case) -> Finding:
    settings = case.settings
    where = f"{settings.host}:{settings.port}"
    if case.owner is not None:
        return Finding("port", "good", f"{case.owner.url or where} is coserve's")
    why = why_port_unusable(settings.host, settings.port)
    if why:
        return Finding("port", "bad", why, "Set COSERVE_PORT, or stop what listens there.")
    return Finding("port", "good", f"{where} is free")


def _disk(home: Path) -> Finding:
    place = next(path for path in (home, *home.parents) if path.exists())
    usage = shutil.disk_usage(place)
    found = f"{usage.free / GIB:.1f} of {usage.total / GIB:.1f} GiB free below {place}"
    fix = "Free some, or set COSERVE_HOME to a larger disk."
    if not os.access(place, os.W_OK):
        return Finding("disk", "bad", f"{place} cannot be written to", "Set COSERVE_HOME.")
    if usage.free < NO_DISK_BYTES:
        return Finding("disk", "bad", found, fix)
    if usage.free < LITTLE_DISK_BYTES:
        return Finding("disk", "warn", found, fix)
    return Finding("disk", "good", found)


def _memory() -> Finding:
    fields = dict(
        line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line
    )
    free, total = (1024 * int(fields[name].split()[0]) for name in ("MemAvailable", "MemTotal"))
    found = f"{free / GIB:.1f} of {total / GIB:.1f} GiB available"
    if free < LITTLE_MEMORY_BYTES:
        fix = "The default model on a CPU wants 4 GiB; end something else, or use a GPU."
        return Finding("memory", "warn", found, fix)
    return Finding("memory", "good", found)


def _cpu() -> Finding:
    cores = len(os.sched_getaffinity(0))
    found = f"{cores} cores, {cpu_name()}; an engine on it computes in {matmul_dtype()}"
    return Finding("processor", "good", found)


def _gpu() -> Finding:
    if not has_cuda():
        return Finding("GPU", "good", "none, so the engine computes on the CPU")
    try:
        done = subprocess.run(
            _NVIDIA, capture_output=True, text=True, timeout=_NVIDIA_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("GPU", "bad", f"nvidia-smi: {error}", "Repair the NVIDIA driver.")
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it failed"]
        return Finding("GPU", "bad", f"nvidia-smi: {said[0]}", "Repair the NVIDIA driver.")
    return driver("; ".join(done.stdout.strip().splitlines()))


def driver(said: str) -> Finding:
    """The GPUs as `nvidia-smi` names them, and whether their driver is new enough.

    Args:
        said: `name, driver version, memory` of each, with semicolons between.
    """
    versions = [fields[1].strip() for one in said.split(";") if len(fields := one.split(",")) > 1]
    old = [one for one in versions if one.split(".")[0].isdigit()
           and int(one.split(".")[0]) < OLDEST_DRIVER]  # fmt: skip
    if old:
        fix = f"Install driver {OLDEST_DRIVER} or newer: the engine is built for CUDA 13."
        return Finding("GPU", "bad", said, fix)
    return Finding("GPU", "good", said)


def compilers(python: Path, environ: Mapping[str, str]) -> Finding:
    """What an engine on a GPU compiles its kernels with, where it would look for it."""
    env = {**environ, **cuda_environment(python, environ)}
    path, toolkit = env["PATH"], env.get("CUDA_HOME")
    missing = [
        words
        for words, there in (
            ("ninja (coserve engine install)", shutil.which("ninja", path=path)),
            (
                "a C++ compiler (Debian: apt install g++)",
                shutil.which(env.get("CXX", "c++"), path=path),
            ),
            (
                "nvcc (a CUDA 13 toolkit, or coserve engine install)",
                (toolkit and Path(toolkit, "bin", "nvcc").exists())
                or shutil.which("nvcc", path=path),
            ),
            (
                "Python's headers (Debian: apt install python3-dev)",
                Path(sysconfig.get_paths()["include"], "Python.h").exists(),
            ),
        )
        if not there
    ]
    if missing:
        fix = "Install them: SGLang compiles kernels when an engine starts."
        return Finding("compilers", "bad", f"missing: {', '.join(missing)}", fix)
    return Finding("compilers", "good", f"found; CUDA toolkit: {toolkit or 'on the PATH'}")


def cuda(python: Path) -> Finding:
    """Whether torch of the engine's packages can use the GPU through this driver."""
    if not python.exists():
        return Finding("CUDA", "unknown", "the engine's packages are not installed")
    try:
        done = subprocess.run(
            [python, "-c", _ASK_TORCH],
            capture_output=True,
            text=True,
            timeout=_TORCH_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("CUDA", "bad", f"torch: {type(error).__name__}", "coserve engine install")
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["it failed"]
        return Finding("CUDA", "bad", f"torch: {said[-1]}", "coserve engine install")
    needs, _, devices = done.stdout.strip().partition(" ")
    if devices == "0":
        fix = f"Install an NVIDIA driver that serves CUDA {needs}."
        return Finding("CUDA", "bad", f"torch wants CUDA {needs} and finds no device", fix)
    return Finding("CUDA", "good", f"torch has CUDA {needs} and finds {devices} device(s)")


def _engine_environment(case: Case) -> Finding:
    if case.settings.engine_urls:
        return Finding("engine packages", "good", "ENGINE_URLS is used")
    python = engine_python(case.checkout)
    if not python.exists():
        fix = "coserve up installs them (or coserve engine install)."
        return Finding("engine packages", "bad", "not installed", fix)
    if not is_current(case.checkout):
        fix = "The next coserve up installs them anew (or coserve engine install)."
        return Finding("engine packages", "warn", "of another version than this one", fix)
    return Finding("engine packages", "good", f"as this version wants them ({python.parents[1]})")


async def _database(case: Case) -> Finding:
    from store.bounded_connection import ANSWER_LIMIT_S
    from store.schema import HOW, NEEDED, WrongDatabase, is_newer, reached, stored_schema
    from store.session import Database

    if case.database_url is None:
        return Finding("database", "unknown", "nothing runs here; coserve up starts one")
    database = Database(case.database_url, pool_size=1, limit_s=ANSWER_LIMIT_S)
    try:
        async with database.unit_of_work() as session:
            found = await stored_schema(session)
    except (SQLAlchemyError, OSError) as error:
        fix = "Start it, or correct DATABASE_URL."
        why = f"it does not answer ({type(error).__name__})"
        return Finding("database", "bad", why, fix)
    finally:
        await database.dispose()
    if found is None:
        return Finding("database", "bad", "it has no tables of coserve", HOW)
    try:
        if not is_newer(found) and reached(found) < NEEDED:
            return Finding("database", "bad", f"at schema {found}, {NEEDED} is needed", HOW)
    except WrongDatabase as error:
        return Finding("database", "bad", "not this version's", str(error))
    return Finding("database", "good", f"it answers, at schema {found}")


def _statusz(owner: Owner | None) -> Mapping[str, Any]:
    reply = http_get(f"{owner.url}/statusz") if owner and owner.url else None
    try:
        said = json.loads(reply.body) if reply else {}
    except ValueError:
        return {}
    return said if isinstance(said, Mapping) else {}


def _issues(verdict: Mapping[str, Any]) -> Iterator[Finding]:
    """What the gateway says is wrong, as on the overview of the dashboard."""
    for issue in verdict.get("issues", ()):
        found = f"{issue['what']}. {issue['cause']}" if issue["cause"] else issue["what"]
        yield Finding("verdict", issue["tone"], found, in_words(issue["code"]))


def _broker(case: Case, said: Mapping[str, Any]) -> Finding:
    if "broker" in said:
        return _told("broker", said["broker"], "coserve logs valkey", "it answers the gateway")
    if case.broker is None:
        return Finding("broker", "unknown", "nothing runs here; coserve up starts one")
    if fault := asyncio.run(case.broker.fault(_BROKER_LIMIT_S)):
        return Finding(
            "broker", "bad", f"it does not answer ({fault})", "Start it, or correct BROKER_URL."
        )
    return Finding("broker", "good", "it answers")


def _engine(case: Case, said: Mapping[str, Any]) -> Finding:
    if "engine" not in said:
        if case.owner is None:
            return Finding("engine", "unknown", "nothing runs here; coserve up starts one")
        return Finding("engine", "bad", "the gateway does not answer", "Look at: coserve status")
    return _told("engine", said["engine"], "coserve logs engine", "one answers the gateway")


def _told(name: str, part: Mapping[str, Any], command: str, good: str) -> Finding:
    if part["ok"]:
        return Finding(name, "good", good)
    return Finding(name, "bad", str(part["why"]), f"Look at: {command}")


async def _plugins(case: Case, *, answers: bool) -> Iterator[Finding]:
    """Whether each engine in use runs our scheduler, asked of the engine itself.

    Args:
        case: What is examined.
        answers: Whether at least one answers the gateway.
    """
    if case.owner is None or case.database_url is None:
        return iter(())
    from store.bounded_connection import ANSWER_LIMIT_S
    from store.session import Database

    database = Database(case.database_url, pool_size=1, limit_s=ANSWER_LIMIT_S)
    try:
        async with database.unit_of_work() as session:
            urls = await engines_in_use(session, addresses(case.settings.engine_urls or ""))
    except SQLAlchemyError:
        return iter(())
    finally:
        await database.dispose()
    found = [await asyncio.to_thread(_plugin, url) for url in urls]
    return iter([only_busy(found[0])] if answers and len(found) == 1 else found)


async def engines_in_use(session: AsyncSession, named: Sequence[str]) -> list[str]:
    """Addresses that the gateway uses; where none is named, it started one of its own.

    Each start gives that one a new port, so the one seen last is meant.
    """
    from store.repositories import engine as engines

    own = [
        (one.seen_at, one.url)
        for one in await engines.list_all(session)
        if one.added_at is None and one.seen_at is not None
    ]
    static = named or [url for _, url in sorted(own)[-1:]]
    return [one.url for one in await engines.in_use(session, static)]


def only_busy(engine: Finding) -> Finding:
    """What was found of the only engine, which the gateway reaches: one that is silent is busy."""
    if engine.state != "bad":
        return engine
    slow = "it answers the gateway, but did not say in time what it runs"
    return Finding(engine.name, "warn", slow, "It is busy: ask again.")


def _plugin(url: str) -> Finding:
    name = f"engine {shown(url)}"
    if why := why_unusable(url):
        fix = "Remove it with coserve engine remove, and add the right address."
        return Finding(name, "bad", f"it is left out: {why}", fix)
    reply = http_get(f"{url}/server_info")
    if reply is None or reply.status != 200:
        return Finding(name, "bad", "it does not answer", "Look at: coserve logs engine")
    try:
        facts = read_facts(json.loads(reply.body))
    except ValueError:
        return Finding(name, "warn", "it does not say what it is", "Is it SGLang?")
    sglang = f"SGLang {facts.version}".strip()
    if not facts.runtime:
        fix = "Start it with our plugin (docs/engine.md), or batch work delays chat."
        return Finding(name, "warn", f"{sglang} without our scheduler", fix)
    policy = facts.reported("policy") or "unknown"
    return Finding(name, "good", f"{sglang}, our scheduler is live, policy {policy}")
