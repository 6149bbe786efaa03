"""What is taken for granted about SGLang, and the ways of running it that are refused."""

from __future__ import annotations

from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from engine_adapter.runtime_settings import SettingError
from engine_adapter.sglang.contract import (
    INSTEAD,
    REFUSED_ENVIRONMENT,
    REQUIRED,
    broken_promises,
    refuse_unsupported_modes,
)
from engine_adapter.sglang.versions import FAMILIES, family_of
from engine_adapter.sglang.versions.promises import promises_for, signed_versions
from engine_adapter.sglang.versions.uses import REPLACED_ON_CPU, files, uses_of


@pytest.mark.skipif(find_spec("sglang") is not None, reason="the engine's environment")
def test_a_missing_engine_is_one_sentence() -> None:
    assert broken_promises() == ["SGLang is not installed"]


def test_every_list_is_of_a_signed_release(pytestconfig: pytest.Config) -> None:
    lists = sorted((pytestconfig.rootpath / "requirements").glob("engine-c*"))
    found = {
        line.split()[0].removeprefix("sglang==")
        for path in lists
        for line in path.read_text().splitlines()
        if line.startswith("sglang==")
    }
    assert found == set(signed_versions())


# --- The signed files hold what the code uses today.


@pytest.mark.parametrize("release", signed_versions())
def test_what_the_code_uses_is_signed(release: str) -> None:
    """`make follow` writes them."""
    promised = promises_for(release)
    assert promised is not None
    uses = uses_of(files(FAMILIES[family_of(release)]))
    assert uses.names - set(promised.names) - set(REPLACED_ON_CPU) == set()
    for owner, names in uses.attributes.items():
        assert names - set(promised.attributes[owner]) == set(), owner
    assert set(promised.fixed) == set(REPLACED_ON_CPU)


# --- Unsupported ways of running SGLang are refused by the name of their argument.


def test_the_plain_mode_is_accepted() -> None:
    refuse_unsupported_modes(SimpleNamespace(**REQUIRED))


def test_several_nodes_are_accepted() -> None:
    refuse_unsupported_modes(SimpleNamespace(**REQUIRED, nnodes=2))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pp_size", 2),
        ("dp_size", 2),
        ("enable_dp_attention", True),
        ("disaggregation_mode", "decode"),
        ("attn_cp_size", 2),
        ("dcp_size", 2),
        ("enable_prefill_cp", True),
    ],
)
def test_other_modes_are_refused(name: str, value: object) -> None:
    with pytest.raises(SettingError) as refused:
        refuse_unsupported_modes(SimpleNamespace(**{**REQUIRED, name: value}))
    assert "--" + name.replace("_", "-") in str(refused.value)
    assert "COSERVE_POLICY=off" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", REFUSED_ENVIRONMENT)
@pytest.mark.parametrize("value", ["1", "true"])
def test_switches_of_the_environment_are_refused_by_name(name: str, value: str) -> None:
    plain = SimpleNamespace(**REQUIRED)
    refuse_unsupported_modes(plain, {name: "0"})
    with pytest.raises(SettingError, match=f"does not work with {name}: .*COSERVE_POLICY=off"):
        refuse_unsupported_modes(plain, {name: value})


@pytest.mark.parametrize("name", INSTEAD)
def test_what_has_another_way_here_is_refused_with_it(name: str) -> None:
    with pytest.raises(SettingError) as refused:
        refuse_unsupported_modes(SimpleNamespace(**{**REQUIRED, name: 7}))
    assert INSTEAD[name] in str(refused.value)
