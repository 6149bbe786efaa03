"""Each setting of an engine's runtime is declared once; its readers, names and docs follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_adapter.engine_process import EngineSettings, engine_command
from engine_adapter.runtime_settings import (
    NAMES,
    OFF,
    RuntimeSettings,
    SettingError,
    read_settings,
    table,
)
from engine_adapter.scheduling.policies.settings import DEFAULT_POLICY
from engine_adapter.scheduling.targets import Slo
from service.renamed_settings import RENAMED

ROOT = Path(__file__).parents[3]


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
            "COSERVE_TTFT_PERCENTILE": "90",
            "COSERVE_TBT_PERCENTILE": "99",
            "COSERVE_TPOT_PERCENTILE": "95",
            "COSERVE_SAFEPOINT_MS": "40",
            "COSERVE_HOST_KV_TOKENS": "0",
            "COSERVE_HOME": "/state",
            "COSERVE_SAFEPOINTS": "0",
            "COSERVE_TTFT_PLANNING_SHARE": "0.4",
        }
    )
    assert settings.ttft_s == pytest.approx(0.45)
    assert settings.tbt_s == pytest.approx(0.0625)
    assert settings.slo(Slo(9.0, 9.0)) == Slo(0.45, 0.0625, 0.04, 0.9, 0.99, 0.95)
    assert RuntimeSettings().slo(Slo(9.0, 8.0)) == Slo(9.0, 8.0)
    assert settings.safepoint_interval_s == pytest.approx(0.04)
    assert settings.host_kv_tokens == 0
    assert settings.profile_dir.as_posix() == "/state/profiles"
    assert settings.ttft_planning_share == pytest.approx(0.4)
    assert not settings.safepoints
    assert settings.checkpoints


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("COSERVE_TTFT_MS", "0", "positive number of milliseconds"),
        ("COSERVE_TBT_MS", "-5", "positive number of milliseconds"),
        ("COSERVE_TTFT_MS", "soon", "give a number"),
        ("COSERVE_TPOT_MS", "0", "positive number of milliseconds"),
        ("COSERVE_TTFT_PERCENTILE", "100", "less than 100"),
        ("COSERVE_TBT_PERCENTILE", "40", "at least 50"),
        ("COSERVE_TPOT_PERCENTILE", "all", "give a number"),
        ("COSERVE_TTFT_MS", "nan", "give a number"),
        ("COSERVE_RESERVED_SLOT_SHARE", "1", "at least 0 and below 1"),
        ("COSERVE_TTFT_PLANNING_SHARE", "1.5", "between 0 and 1"),
        ("COSERVE_ISOLATION_SHARE", "0", "above 0, and at most 0.2"),
        ("COSERVE_HOST_KV_TOKENS", "many", "whole number of tokens"),
        ("COSERVE_SAFEPOINTS", "yes", "give 0 or 1"),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, value: str, hint: str) -> None:
    with pytest.raises(SettingError, match=hint) as refused:
        read_settings({name: value})
    assert name in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_empty_value_is_none() -> None:
    assert read_settings(dict.fromkeys(NAMES, "")) == RuntimeSettings()


@pytest.mark.parametrize(("old", "new"), [pair for pair in RENAMED.items() if pair[1] in NAMES])
def test_an_old_name_reaches_the_engine_and_is_refused_with_the_new_one(old: str, new: str) -> None:
    _, env = engine_command(EngineSettings(Path("python"), Path("model"), 30001), {old: "1"})
    with pytest.raises(SettingError, match=f"^{old} is now called {new}$"):
        read_settings(env)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_an_engine_is_given_every_setting(name: str) -> None:
    _, env = engine_command(EngineSettings(Path("python"), Path("model"), 30001), {name: "x"})
    assert env[name] == "x"


def test_the_page_has_the_table_of_the_code() -> None:
    page = (ROOT / "docs/settings.md").read_text()
    assert "\n".join(table()) in page, "paste what python -m engine_adapter.runtime_settings prints"


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_setting_is_declared_in_one_place(name: str) -> None:
    """Prose may name it. The commands that start an engine look at two of them by themselves."""
    commands = {f"coserve/commands/{one}.py" for one in ("profile", "settings", "up")}
    table, renamed = "engine_adapter/runtime_settings.py", "service/renamed_settings.py"
    found = {
        str(path.relative_to(ROOT))
        for room in ("engine_adapter", "coserve", "gateway", "batch", "service")
        for path in (ROOT / room).rglob("*.py")
        if f'"{name}"' in path.read_text()
    }
    assert found - commands - {renamed} == {table}
