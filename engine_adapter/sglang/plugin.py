"""Entry point `sglang.srt.plugins: coserve`: puts our scheduler in the place of SGLang's.

SGLang calls `register` in the server, engine and scheduler processes, and swallows what a plugin
raises: a broken one would leave the stock scheduler running, unnoticed. So the checks are made
here, and a failed one ends the process. The service proves after start that the plugin is live
(`engine_adapter.liveness`).
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

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

        from engine_adapter.sglang import finish, guards, logprobs, numbers

        guards.guard_grammars()
        guards.honour_seeds()
        numbers.name_dead_ends()
        HookRegistry.register(TARGET, scheduler_class(), HookType.REPLACE)
        HookRegistry.register(guards.TOKEN_TEXTS, guards.with_bytes, HookType.AFTER)
        HookRegistry.register(numbers.VALIDATE, numbers.refuse_alone, HookType.AFTER)
        HookRegistry.register(finish.UPDATE, finish.stop_first, HookType.AROUND)
        HookRegistry.register(FIRST_REQUEST, freezing, HookType.AROUND)
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


# --- Python's collector passes over what an engine holds for good.
#
# A full collection looks at every object of a process. SGLang's server has 630,000 of them from its
# imports alone: every few minutes of traffic it stood still for 0.4 s, and no stream got a token.
# SGLang can take them out of the collector's sight in all of its processes, if it is
# asked. It is asked at the first request, which is its own.

FIRST_REQUEST: Final = (
    "sglang.srt.managers.tokenizer_manager.TokenizerManager.auto_create_handle_loop"
)


def freezing(create_loop: Callable[..., None], manager: Any, *args: Any, **more: Any) -> None:
    """Around the call of every request that makes the server's loop, if it is not there yet."""
    is_first = manager.event_loop is None
    create_loop(manager, *args, **more)
    if is_first:
        manager.asyncio_tasks.add(manager.event_loop.create_task(manager.freeze_gc()))
