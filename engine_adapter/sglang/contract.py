"""What this package takes for granted about SGLang, checked before anything is replaced.

An upgrade of SGLang then ends with a list of what to read again, instead of a wrong answer. Ways of
running SGLang in which our service cannot use an engine are refused when it starts.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from engine_adapter.runtime_settings import OFF, SettingError, read_settings
from engine_adapter.sglang.versions.promises import (
    differences,
    missing_on,
    promises_for,
    signed_versions,
)
from engine_adapter.sglang.versions.uses import SCHEDULER

logger = logging.getLogger(__name__)

# --- Which SGLang is installed, and whether it is what was signed (`versions.promises`).


def broken_promises(environ: Mapping[str, str] = os.environ) -> list[str]:
    """One sentence for each thing that is not as expected; empty when all is well.

    A release that nobody has signed is held to what the newest signed one of its family has, and
    starts only where that is asked for.
    """
    try:
        found = version("sglang")
    except PackageNotFoundError:
        return ["SGLang is not installed"]
    promised = promises_for(found)
    if promised is None or (promised.sglang != found and not read_settings(environ).unsigned):
        known = " and ".join(signed_versions())
        anyway = ", or try this one with COSERVE_SGLANG_UNSIGNED=1" if promised is not None else ""
        return [
            f"SGLang {found} is installed, this plugin was written for {known}: "
            f"run `coserve engine install`, which installs one{anyway}"
        ]
    if promised.sglang != found:
        logger.warning(
            "coserve: nobody has signed SGLang %s; it is held to what %s has",
            found,
            promised.sglang,
        )
    told = differences(promised, real=(SCHEDULER,))
    for sentence in told.texts:
        logger.warning("coserve: %s", sentence)
    return told.fatal


def is_signed() -> bool:
    """Whether the SGLang that is installed is one that somebody has signed."""
    return version("sglang") in signed_versions()


def refuse_another_scheduler(scheduler: Any) -> None:
    """Look at the scheduler that SGLang has built: it has what ours reads of it.

    Raises:
        SettingError: Naming everything that is missing.
    """
    promised = promises_for(version("sglang"))
    names = promised.attributes[SCHEDULER] if promised is not None else ()
    if missing := missing_on(scheduler, names):
        raise SettingError(f"SGLang's scheduler has no {', '.join(missing)}")


# --- Ways of running SGLang in which an engine of ours does not serve at all.

# Server argument -> the only value it may have.
REQUIRED: dict[str, object] = {
    "pp_size": 1,
    "dp_size": 1,
    "enable_dp_attention": False,
    "disaggregation_mode": "null",
    "attn_cp_size": 1,
    "dcp_size": 1,
    "enable_prefill_cp": False,
}
"""The service sees one scheduler of an engine, and it must have the whole of each request.

What limits co-serving and is served otherwise is in `forms`.
"""

REFUSED_ENVIRONMENT: dict[str, str] = {
    "SGLANG_RUST_SERVER": "its requests come by no socket that an arrival could be seen on",
}
"""Switches of SGLang's in the environment, and why co-serving does not work with them."""

BESIDE = "start engines beside each other; gateways and dispatchers share them out"
INSTEAD: dict[str, str] = {
    "pp_size": "spread the model with --tp-size, over nodes with --nnodes too",
    "dp_size": BESIDE,
    "enable_dp_attention": BESIDE,
    "disaggregation_mode": "let each engine do both: rows give way to chat between two layers",
}
"""What does the same here; the rest is left out."""


def refuse_unsupported_modes(server_args: Any, environ: Mapping[str, str] = os.environ) -> None:
    """Compare the server's arguments with what co-serving was built for.

    Raises:
        SettingError: Naming the argument and the two ways out.
    """
    for name, why in REFUSED_ENVIRONMENT.items():
        if environ.get(name, "").lower() in ("1", "true", "yes"):
            raise SettingError(
                f"co-serving does not work with {name}: {why}; unset it, or start the engine with "
                f"COSERVE_POLICY={OFF}"
            )
    for name, wanted in REQUIRED.items():
        value = getattr(server_args, name, wanted)
        if value != wanted and (value or wanted):
            flag = "--" + name.replace("_", "-")
            instead = INSTEAD.get(name, "start the engine without it")
            raise SettingError(
                f"co-serving does not work with {flag} {value}; "
                f"{instead}, or start it with COSERVE_POLICY={OFF}"
            )
