"""The scheduler that runs in SGLang's scheduler processes: co-serving, or SGLang's own choice.

``COSERVE_POLICY`` decides when the process starts. With ``off`` SGLang schedules and the class
only reports; otherwise :class:`~engine_adapter.sglang.coserving.CoServingScheduler` plans
every step.
"""

from __future__ import annotations

from engine_adapter.scheduling.policies.registry import POLICIES, TEST_POLICIES, TWO_POOLS
from engine_adapter.sglang.reporting import ReportingScheduler
from engine_adapter.sglang.settings import OFF, RuntimeSettings, SettingError, read_settings


def settings_at_start() -> RuntimeSettings:
    """The settings, with the policy's name checked.

    Raises:
        SettingError: With one sentence that says what to do.
    """
    settings = read_settings()
    if settings.policy in TWO_POOLS:
        raise SettingError(
            f"COSERVE_POLICY is {settings.policy!r}, which takes two pools of engines; only "
            "`coserve simulate` has them"
        )
    if settings.is_on and settings.policy not in {*POLICIES, *TEST_POLICIES}:
        known = ", ".join([OFF, *sorted(POLICIES)])
        raise SettingError(f"COSERVE_POLICY is {settings.policy!r}; choose one of {known}")
    return settings


def scheduler_class() -> type[ReportingScheduler]:
    """The class for this process."""
    if not settings_at_start().is_on:
        return ReportingScheduler
    from engine_adapter.sglang.runtime_contract import broken_runtime_promises

    if broken := broken_runtime_promises():
        raise SettingError(
            f"this SGLang is not the one the plugin was written for ({'; '.join(broken)}): "
            "run `make setup-engine`, which installs that one"
        )
    from engine_adapter.sglang.coserving import CoServingScheduler

    return CoServingScheduler


CoServeScheduler = scheduler_class()
