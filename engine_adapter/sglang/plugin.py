"""Entry point `sglang.srt.plugins: coserve`: puts our scheduler in the place of SGLang's.

SGLang calls `register` in the server, engine and scheduler processes, and swallows what a plugin
raises: a broken one would leave the stock scheduler running, unnoticed. So the checks are made
here, and a failed one ends the process. The service proves after start that the plugin is live
(`engine_adapter.liveness`).
"""

from __future__ import annotations

import sys
import traceback

TARGET = "sglang.srt.managers.scheduler.Scheduler"


def register() -> None:
    """Hook the scheduler class; ends the process when this SGLang is not the one we know."""
    from engine_adapter.sglang.settings import SettingError, refuse, repeat_at_the_end

    repeat_at_the_end()
    try:
        from engine_adapter.sglang.contract import broken_promises

        broken = broken_promises()
        if broken:
            refuse("; ".join(broken))
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        from engine_adapter.sglang import finish, garbage, guards, numbers
        from engine_adapter.sglang.scheduler import scheduler_class

        guards.guard_grammars()
        guards.honour_seeds()
        numbers.name_dead_ends()
        HookRegistry.register(TARGET, scheduler_class(), HookType.REPLACE)
        HookRegistry.register(guards.TOKEN_TEXTS, guards.with_bytes, HookType.AFTER)
        HookRegistry.register(numbers.VALIDATE, numbers.refuse_alone, HookType.AFTER)
        HookRegistry.register(finish.UPDATE, finish.stop_first, HookType.AROUND)
        HookRegistry.register(garbage.FIRST_REQUEST, garbage.freezing, HookType.AROUND)
    except SettingError as error:
        refuse(str(error))
    except Exception:  # noqa: BLE001 - SGLang would swallow it and start without us
        traceback.print_exc(file=sys.stderr)
        refuse("the plugin could not be loaded (above: why); run `make setup-engine`")
