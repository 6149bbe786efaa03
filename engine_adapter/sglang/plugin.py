"""Entry point `sglang.srt.plugins: coserve`: puts our scheduler in the place of SGLang's.

SGLang calls `register` in the server, engine and scheduler processes, and swallows what a plugin
raises: a broken one would leave the stock scheduler running, unnoticed. So the checks are made
here, and a failed one ends the process. The service proves after start that the plugin is live
(`engine_adapter.liveness`).
"""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from engine_adapter.runtime_settings import OFF, RuntimeSettings, SettingError, read_settings
from engine_adapter.scheduling.policies.registry import POLICIES, find_policy
from engine_adapter.sglang.settings import refuse, repeat_at_the_end

if TYPE_CHECKING:
    from engine_adapter.sglang.scheduler import ReportingScheduler

TARGET = "sglang.srt.managers.scheduler.Scheduler"


def register() -> None:
    """Hook the scheduler class; ends the process when this SGLang is not the one we know."""
    repeat_at_the_end()
    try:
        from engine_adapter.sglang.contract import broken_promises

        broken = broken_promises()
        if broken:
            refuse("; ".join(broken))
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        from engine_adapter.sglang import finish, garbage, guards, logprobs, numbers

        guards.guard_grammars()
        guards.honour_seeds()
        numbers.name_dead_ends()
        HookRegistry.register(TARGET, scheduler_class(), HookType.REPLACE)
        HookRegistry.register(guards.TOKEN_TEXTS, guards.with_bytes, HookType.AFTER)
        HookRegistry.register(numbers.VALIDATE, numbers.refuse_alone, HookType.AFTER)
        HookRegistry.register(finish.UPDATE, finish.stop_first, HookType.AROUND)
        HookRegistry.register(garbage.FIRST_REQUEST, garbage.freezing, HookType.AROUND)
        HookRegistry.register(logprobs.MANAGER, logprobs.tell_all, HookType.AFTER)
    except SettingError as error:
        refuse(str(error))
    except Exception:  # noqa: BLE001 - SGLang would swallow it and start without us
        traceback.print_exc(file=sys.stderr)
        refuse("the plugin could not be loaded (above: why); run `coserve engine install`")


def settings_at_start() -> RuntimeSettings:
    """The settings, with the policy's name checked.

    Raises:
        SettingError: With one sentence that says what to do.
    """
    settings = read_settings()
    policy = find_policy(settings.policy)
    if getattr(policy, "pools", 1) > 1:
        raise SettingError(
            f"COSERVE_POLICY is {settings.policy!r}, which takes two pools of engines; only "
            "`coserve simulate` has them"
        )
    if settings.is_on and policy is None:
        known = ", ".join([OFF, *sorted(POLICIES)])
        raise SettingError(f"COSERVE_POLICY is {settings.policy!r}; choose one of {known}")
    return settings


def scheduler_class() -> type[ReportingScheduler]:
    """The class for this process."""
    from engine_adapter.sglang.scheduler import ReportingScheduler

    if not settings_at_start().is_on:
        return ReportingScheduler
    from engine_adapter.sglang.coserving import CoServingScheduler

    return CoServingScheduler
