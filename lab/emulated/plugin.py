"""SGLang plugin that emulates a GPU where ``COSERVE_EMULATED`` names a table; else it does nothing.

It takes the arithmetic out after the fixes a CPU engine needs, whichever plugin is loaded first.
"""

from __future__ import annotations

import functools
import os

from engine_adapter.cpu_compat import plugin as cpu


@functools.cache  # once a process: what was replaced has another source
def register() -> None:
    """Emulate the table's device; ends the process if SGLang is not what this was written for."""
    table = os.environ.get("COSERVE_EMULATED", "")
    if not table:
        return
    cpu.register()
    try:
        from lab.emulated import model_runner

        model_runner.install(table)
    except (ImportError, AttributeError) as error:
        cpu.give_up(error)
