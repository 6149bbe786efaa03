"""This machine: host, port, disk, memory, processor, and the engine's packages on it."""

from __future__ import annotations

import os
import platform
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Final

from coserve.checkup.finding import Finding
from coserve.local.lock import Owner
from coserve.local.probes import why_port_unusable
from coserve.settings import LocalSettings
from coserve.setup.engine_env import engine_python, is_current
from coserve.setup.host import why_unsupported
from engine_adapter.host_cpu import cpu_name, matmul_dtype

GIB: Final = 2**30
LITTLE_DISK_BYTES, NO_DISK_BYTES = 10 * GIB, GIB
LITTLE_MEMORY_BYTES = 4 * GIB


def host() -> Finding:
    """Whether coserve runs on such a machine at all."""
    why = why_unsupported()
    found = (
        f"coserve {version('coserve')}, Python {platform.python_version()}, {platform.machine()}"
    )
    return (
        Finding("host", "bad", why, "Use a supported host.")
        if why
        else Finding("host", "good", found)
    )


def port(settings: LocalSettings, owner: Owner | None) -> Finding:
    """Whether the gateway can listen at its address, or does."""
    where = f"{settings.host}:{settings.port}"
    if owner is not None:
        return Finding("port", "good", f"{owner.url or where} is coserve's")
    why = why_port_unusable(settings.host, settings.port)
    if why:
        return Finding("port", "bad", why, "Set COSERVE_PORT, or stop what listens there.")
    return Finding("port", "good", f"{where} is free")


def disk(home: Path) -> Finding:
    """Room below the state directory."""
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


def memory() -> Finding:
    """Memory for an engine on the CPU."""
    fields = dict(
        line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line
    )
    free, total = (1024 * int(fields[name].split()[0]) for name in ("MemAvailable", "MemTotal"))
    found = f"{free / GIB:.1f} of {total / GIB:.1f} GiB available"
    if free < LITTLE_MEMORY_BYTES:
        fix = "The default model on a CPU wants 4 GiB; end something else, or use a GPU."
        return Finding("memory", "warn", found, fix)
    return Finding("memory", "good", found)


def processor() -> Finding:
    """Cores, and the number format that an engine on them computes in."""
    cores = len(os.sched_getaffinity(0))
    found = f"{cores} cores, {cpu_name()}; an engine on it computes in {matmul_dtype()}"
    return Finding("processor", "good", found)


def engine_packages(checkout: Path, settings: LocalSettings) -> Finding:
    """Whether the engine's environment is as this version wants it."""
    if settings.engine_urls:
        return Finding("engine packages", "good", "ENGINE_URLS is used")
    python = engine_python(checkout)
    if not python.exists():
        fix = "coserve up installs them (or coserve engine install)."
        return Finding("engine packages", "bad", "not installed", fix)
    if not is_current(checkout):
        fix = "The next coserve up installs them anew (or coserve engine install)."
        return Finding("engine packages", "warn", "of another version than this one", fix)
    return Finding("engine packages", "good", f"as this version wants them ({python.parents[1]})")
