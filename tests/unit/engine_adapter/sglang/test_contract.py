"""The contract with SGLang, where there is no SGLang; the engine tests check it where there is."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from engine_adapter.sglang.contract import PINNED_VERSION, broken_promises


@pytest.mark.skipif(find_spec("sglang") is not None, reason="the engine's environment")
def test_a_missing_engine_is_one_sentence() -> None:
    assert broken_promises() == ["SGLang is not installed"]


def test_the_pin_is_the_frozen_version(pytestconfig: pytest.Config) -> None:
    for name in ("engine-cpu.txt", "engine-cpu.in", "engine-cuda.in"):
        listed = (pytestconfig.rootpath / "requirements" / name).read_text()
        assert f"sglang=={PINNED_VERSION}" in listed, name
