"""Pictures as SVG paths, made by the server: they need no script and can be tested. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def bars(heights: Sequence[float], bases: Sequence[float], *, top: float, gap: float = 0.2) -> str:
    """One path of upright bars: bar n stands at n, in a box of 1 by bar, `top` is its full height.

    Args:
        heights: Of each bar.
        bases: What each stands on.
        top: The value at the upper edge of the box, whose height is 100.
        gap: Free part of each bar's place.
    """
    parts = []
    for number, (height, base) in enumerate(zip(heights, bases, strict=True)):
        if height > 0:
            left, lower = number + gap / 2, 100 - 100 * base / top
            upper = 100 - 100 * (base + height) / top
            parts.append(f"M{left:g} {lower:.2f}V{upper:.2f}h{1 - gap:g}V{lower:.2f}z")
    return "".join(parts)


def line(values: Iterable[float | None], *, top: float) -> str:
    """A path through the middles of the same places; it breaks where nothing is known."""
    parts, pen = [], "M"
    for number, value in enumerate(values):
        if value is None:
            pen = "M"
            continue
        height = 100 - 100 * min(value, top) / top
        parts.append(f"{pen}{number + 0.5:g} {height:.2f}")
        pen = "L"
    return "".join(parts)


def steps(values: Sequence[float], *, top: float) -> str:
    """A closed path under a histogram's outline, one place per value."""
    parts = ["M0 100"]
    for number, value in enumerate(values):
        parts.append(f"V{100 - 100 * min(value, top) / top:.2f}H{number + 1}")
    return "".join([*parts, "V100z"])


def nice_top(value: float) -> float:
    """The next round number: 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power > value:
        power /= 10
    while power * 10 <= value:
        power *= 10
    return next(power * step for step in (1, 2, 5, 10) if power * step >= value * (1 - 1e-9))
