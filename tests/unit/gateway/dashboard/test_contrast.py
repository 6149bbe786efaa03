"""Text can be read on what it stands on, in light and in dark (WCAG 2.2, 1.4.3: 4.5 to 1)."""

from __future__ import annotations

import re

import pytest

from gateway.dashboard.templating import STATIC

ENOUGH = 4.5

# What stands on what, by the names of the colours.
PAIRS = [
    *((text, ground) for text in ("ink", "soft-ink", "accent") for ground in ("paper", "surface")),
    ("ink", "idle-soft"),
    ("soft-ink", "idle-soft"),
    ("accent", "accent-soft"),
    ("accent-ink", "accent"),
    ("surface", "bad"),
    *((tone, f"{tone}-soft") for tone in ("run", "good", "warn", "bad", "idle")),
    *((tone, "surface") for tone in ("run", "good", "warn", "bad")),
]


def _colors(theme: str) -> dict[str, str]:
    css = (STATIC / "app.css").read_text()
    block = re.search(rf'\[data-theme="{theme}"\] {{(.*?)}}', css, re.DOTALL)
    assert block is not None
    return dict(re.findall(r"--([a-z-]+): #([0-9a-f]{6});", block[1]))


def _luminance(color: str) -> float:
    """Relative luminance of `rrggbb`, 0 to 1, as WCAG defines it."""
    channels = [int(color[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_the_measure_is_that_of_the_standard() -> None:
    assert _contrast("000000", "ffffff") == pytest.approx(21)
    assert _contrast("777777", "ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read(theme: str) -> None:
    colors = _colors(theme)
    poor = {
        f"{text} on {ground}": round(_contrast(colors[text], colors[ground]), 2)
        for text, ground in PAIRS
        if _contrast(colors[text], colors[ground]) < ENOUGH
    }
    assert poor == {}
