"""Settings of the runtime: defaults, and every refusal one sentence that says what to do."""

from __future__ import annotations

import pytest

from engine_adapter.scheduling.targets import Slo
from engine_adapter.sglang.settings import (
    DEFAULT_POLICY,
    OFF,
    RuntimeSettings,
    SettingError,
    read_settings,
)


def test_nothing_set_is_co_serving_with_the_default_policy() -> None:
    settings = read_settings({})
    assert settings.policy == DEFAULT_POLICY == "conserve_v2"
    assert settings.is_on
    assert settings.ttft_s is None
    assert settings.host_kv_tokens is None
    assert settings.reserved_slot_share == 0.25
    assert settings.profile_dir.as_posix() == ".coserve/profiles"


def test_off_leaves_scheduling_to_sglang() -> None:
    assert not read_settings({"COSERVE_POLICY": OFF}).is_on


def test_values_are_read_in_their_units() -> None:
    settings = read_settings(
        {
            "COSERVE_POLICY": "sarathi_p",
            "COSERVE_TTFT_MS": "450",
            "COSERVE_TBT_MS": "62.5",
            "COSERVE_TPOT_MS": "40",
            "COSERVE_TARGET_PERCENTILE": "90",
            "COSERVE_SAFEPOINT_MS": "40",
            "COSERVE_HOST_KV_TOKENS": "0",
            "COSERVE_HOME": "/state",
            "COSERVE_SAFEPOINTS": "0",
        }
    )
    assert settings.ttft_s == pytest.approx(0.45)
    assert settings.tbt_s == pytest.approx(0.0625)
    assert settings.slo(Slo(9.0, 9.0)) == Slo(0.45, 0.0625, 0.04, 0.9)
    assert RuntimeSettings().slo(Slo(9.0, 8.0)) == Slo(9.0, 8.0)
    assert settings.safepoint_interval_s == pytest.approx(0.04)
    assert settings.host_kv_tokens == 0
    assert settings.profile_dir.as_posix() == "/state/profiles"
    assert not settings.safepoints
    assert settings.checkpoints


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("COSERVE_TTFT_MS", "0", "positive number of milliseconds"),
        ("COSERVE_TBT_MS", "-5", "positive number of milliseconds"),
        ("COSERVE_TTFT_MS", "soon", "give a number"),
        ("COSERVE_TPOT_MS", "0", "positive number of milliseconds"),
        ("COSERVE_TARGET_PERCENTILE", "100", "less than 100"),
        ("COSERVE_TTFT_MS", "nan", "give a number"),
        ("COSERVE_RESERVED_SLOT_SHARE", "1", "at least 0 and below 1"),
        ("COSERVE_HOST_KV_TOKENS", "many", "whole number of tokens"),
        ("COSERVE_SAFEPOINTS", "yes", "give 0 or 1"),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, value: str, hint: str) -> None:
    with pytest.raises(SettingError, match=hint) as refused:
        read_settings({name: value})
    assert name in str(refused.value)
    assert "\n" not in str(refused.value)
