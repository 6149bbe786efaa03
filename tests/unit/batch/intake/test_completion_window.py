from __future__ import annotations

import pytest

from api.errors import InvalidRequest
from batch.intake.completion_window import seconds_of


@pytest.mark.contract("E-15")
@pytest.mark.parametrize(
    ("window", "seconds"),
    [("24h", 86400), ("1d", 86400), ("1h", 3600), ("168h", 604_800), ("7d", 604_800)],
)
def test_hours_and_days(window: str, seconds: int) -> None:
    assert seconds_of(window) == seconds


@pytest.mark.contract("E-15")
@pytest.mark.parametrize(
    "window", ["", "0h", "169h", "8d", "24", "24H", " 24h", "24h\n", "1.5h", "-1h", "90m", "٢h"]
)
def test_what_is_none(window: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        seconds_of(window)
    assert refused.value.param == "completion_window"
