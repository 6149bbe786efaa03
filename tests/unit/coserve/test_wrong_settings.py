from __future__ import annotations

import pytest

from batch.settings import BatchSettings
from coserve.settings import LocalSettings, wrong_values
from gateway.settings import GatewaySettings


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("COSERVE_PORT", "abc", "COSERVE_PORT must be a whole number."),
        ("COSERVE_PORT", "99999", "COSERVE_PORT must be at most 65535."),
        ("COSERVE_DEVICE", "gpu", "COSERVE_DEVICE must be one of: cpu, cuda."),
        ("COSERVE_KEEP_ALIVE_S", "-1", "COSERVE_KEEP_ALIVE_S must be greater than 0."),
        ("COSERVE_KEEP_ALIVE_S", "soon", "COSERVE_KEEP_ALIVE_S must be a number."),
    ],
)
def test_a_wrong_value_is_one_plain_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    assert wrong_values((LocalSettings, GatewaySettings, BatchSettings)) == [said]


def test_our_own_words_are_not_introduced_by_pydantics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSERVE_WEBHOOK_NETWORKS", "nowhere")
    (said,) = wrong_values((BatchSettings,))
    assert said.startswith("COSERVE_WEBHOOK_NETWORKS: ")
    assert "Value error" not in said


def test_right_values_say_nothing() -> None:
    assert wrong_values((LocalSettings, GatewaySettings, BatchSettings)) == []
