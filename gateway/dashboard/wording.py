"""Numbers and instants as a page prints them; pure, used as template filters."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


def count(value: int) -> str:
    """1234567 -> '1,234,567'."""
    return f"{value:,}"


def size(num_bytes: int) -> str:
    """Bytes in the unit that keeps the figure short: '17 B', '4.2 MB'."""
    value = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("the last unit takes every size")


def duration(seconds: float) -> str:
    """Two units at most: '8 s', '3 min 20 s', '5 h 12 min', '1 d 2 h'."""
    whole = max(0, round(seconds))
    if whole < MINUTE_S:
        return f"{whole} s"
    for big, big_name, small, small_name in (
        (MINUTE_S, "min", 1, "s"),
        (HOUR_S, "h", MINUTE_S, "min"),
        (DAY_S, "d", HOUR_S, "h"),
    ):
        if whole < big * (HOUR_S // MINUTE_S if big < HOUR_S else 24) or big == DAY_S:
            rest = whole % big // small
            return f"{whole // big} {big_name}" + (f" {rest} {small_name}" if rest else "")
    raise AssertionError("days take every duration")


def about(seconds: float) -> str:
    """A duration as an estimate: rounded so that it does not flicker while it is watched."""
    if seconds < 10:
        return "a few seconds"
    if seconds < MINUTE_S:
        return f"{math.ceil(seconds / 10) * 10} s"
    if seconds < HOUR_S:
        return f"{math.ceil(seconds / MINUTE_S)} min"
    if seconds < DAY_S:
        return duration(math.ceil(seconds / (10 * MINUTE_S)) * 10 * MINUTE_S)
    return duration(math.ceil(seconds / HOUR_S) * HOUR_S)


def ago(instant: datetime, now: datetime) -> str:
    """How long ago, in one unit: 'just now', '4 min ago', '3 d ago'."""
    passed_s = (now - instant) / timedelta(seconds=1)
    if passed_s < 10:
        return "just now"
    if passed_s < MINUTE_S:
        return "less than a minute ago"
    for unit_s, name in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min")):
        if passed_s >= unit_s:
            return f"{int(passed_s // unit_s)} {name} ago"
    raise AssertionError("every age has a unit")


def instant(value: datetime) -> str:
    """For people: '2026-11-21 08:05:09 UTC'."""
    return value.strftime("%Y-%m-%d %H:%M:%S UTC")


def machine_instant(value: datetime) -> str:
    return value.isoformat(timespec="seconds")


def pace(rows_per_s: float) -> str:
    """Rows per second, minute or hour, whichever is a figure one can picture."""
    for factor, unit in ((1, "s"), (MINUTE_S, "min"), (HOUR_S, "h")):
        if rows_per_s * factor >= 1:
            figure = rows_per_s * factor
            return f"{figure:,.0f} rows/{unit}" if figure >= 10 else f"{figure:.1f} rows/{unit}"
    return "less than 1 row/h"


def token_pace(tokens_per_s: float) -> str:
    """Tokens per second: '1,240 tok/s', '3.4 tok/s'."""
    figure = f"{tokens_per_s:,.0f}" if tokens_per_s >= 10 else f"{tokens_per_s:.1f}"
    return f"{figure} tok/s"


def percent(part: float, whole: float) -> float:
    """0 to 100; never 100 before the end, never 0 after the start."""
    if whole <= 0 or part <= 0:
        return 0.0
    if part >= whole:
        return 100.0
    return min(99.9, max(0.1, round(100 * part / whole, 1)))


def label(key: str) -> str:
    """An identifier as words: 'host_free_pages' -> 'host free pages', 'num_rows' -> 'rows'."""
    return key.removeprefix("num_").replace("_", " ").replace(".", " › ")


def share(value: float | None) -> str:
    """0.9876 -> '98.8 %'; whole where it is far from both ends; a dash where nothing is known."""
    if value is None:
        return "–"
    percent_of = 100 * value
    if 0 < percent_of < 10 or 90 < percent_of < 100:
        return f"{min(99.9, max(0.1, percent_of)):.1f}".removesuffix(".0") + " %"
    return f"{percent_of:.0f} %"


def latency(seconds: float) -> str:
    """0.0123 -> '12 ms', 1.23 -> '1.2 s'."""
    if seconds < 0.01:
        return f"{1000 * seconds:.1f} ms"
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def rate(per_s: float | None) -> str:
    """A figure per second without its unit: '1,240', '3.4'; a dash where nothing is known."""
    if per_s is None:
        return "–"
    return f"{per_s:,.0f}" if per_s >= 10 or per_s == 0 else f"{per_s:.1f}"


def amount(value: float) -> str:
    """A large number in words that are read at a glance: '8.1 M', '12 k', '640'."""
    for factor, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= factor:
            figure = value / factor
            return f"{figure:.1f}{unit}" if figure < 10 else f"{figure:,.0f}{unit}"
    return f"{value:,.0f}"


def figure(key: str, value: float) -> str:
    """A figure by the unit its name ends in: '2.8 µs', '41 ms', '97 %', '0.052'; no exponents."""
    if key.endswith("_s"):
        if 0 < value < 0.001:
            return f"{1e6 * value:.1f} µs"
        return latency(value) if value < MINUTE_S else duration(value)
    if key.endswith("_share"):
        return share(value)
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) < 0.0005:
        return "almost 0"
    return f"{value:.3f}".rstrip("0").rstrip(".")
