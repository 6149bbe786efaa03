from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gateway.dashboard import wording

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("num_bytes", "said"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (91_157, "91.2 kB"), (209_715_200, "210 MB")],
)
def test_size(num_bytes: int, said: str) -> None:
    assert wording.size(num_bytes) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-3, "0 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (18_720, "5 h 12 min"),
        (86_400, "1 d"),
        (93_600, "1 d 2 h"),
        (900_000, "10 d 10 h"),
    ],
)
def test_duration(seconds: float, said: str) -> None:
    assert wording.duration(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "a few seconds"),
        (11, "20 s"),
        (61, "2 min"),
        (3601, "1 h 10 min"),
        (86_399, "1 d"),
        (90_000, "1 d 1 h"),
    ],
)
def test_about_never_promises_too_little(seconds: float, said: str) -> None:
    assert wording.about(seconds) == said


@pytest.mark.parametrize(
    ("passed_s", "said"),
    [
        (-5, "just now"),
        (9, "just now"),
        (30, "less than a minute ago"),
        (60, "1 min ago"),
        (7300, "2 h ago"),
        (90_000, "1 d ago"),
    ],
)
def test_ago(passed_s: float, said: str) -> None:
    assert wording.ago(NOW - timedelta(seconds=passed_s), NOW) == said


@pytest.mark.parametrize(
    ("rows_per_s", "said"),
    [
        (1234.5, "1,234 rows/s"),
        (1.25, "1.2 rows/s"),
        (0.5, "30 rows/min"),
        (0.001, "3.6 rows/h"),
        (0.0001, "less than 1 row/h"),
    ],
)
def test_pace(rows_per_s: float, said: str) -> None:
    assert wording.pace(rows_per_s) == said


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        (0, 0, 0.0),
        (0, 5, 0.0),
        (5, 5, 100.0),
        (1, 50_000, 0.1),
        (49_999, 50_000, 99.9),
        (1, 3, 33.3),
    ],
)
def test_percent_is_whole_only_at_the_ends(part: int, whole: int, expected: float) -> None:
    assert wording.percent(part, whole) == expected


def test_identifiers_become_words() -> None:
    assert wording.label("host_free_pages") == "host free pages"
    assert wording.label("num_rows") == "rows"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("coefficients.token_s", 2.837e-06, "2.8 µs"),
        ("pass_gap_s", 0.0412, "41 ms"),
        ("step_s", 200.0, "3 min 20 s"),
        ("tbt_share", 0.97, "97 %"),
        ("mean", 0.0521, "0.052"),
        ("squares", 2.837e-06, "almost 0"),
        ("big", 12345.6, "12,346"),
        ("none", 0.0, "0"),
    ],
)
def test_figures_have_units_and_no_exponents(key: str, value: float, said: str) -> None:
    assert wording.figure(key, value) == said
