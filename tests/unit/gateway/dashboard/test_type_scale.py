"""Text has five sizes and one shipped font."""

from __future__ import annotations

import re

import pytest

from gateway.dashboard.templating import STATIC

SHEETS = sorted(path.name for path in STATIC.glob("*.css"))
SIZES = {f"var(--t{number})" for number in range(1, 6)}


@pytest.mark.parametrize("name", SHEETS)
def test_every_size_is_one_of_the_scale(name: str) -> None:
    css = (STATIC / name).read_text()
    found = set(re.findall(r"(?<![\w-])font-size: ([^;}]+)", css))
    assert found <= {*SIZES, "inherit"}
    assert not re.search(r"(?<![\w-])font: ", css), "a short form hides a size"


def test_the_scale_is_twelve_to_twenty_eight_pixels() -> None:
    css = (STATIC / "app.css").read_text()
    assert re.findall(r"--t\d: ([\d.]+)rem", css) == [".75", ".875", "1", "1.25", "1.75"]
    assert "--pico-font-size: 100%" in css, "a rem has 16 pixels"


def test_each_font_that_is_named_is_shipped() -> None:
    css = (STATIC / "app.css").read_text()
    files = re.findall(r'url\("(vendor/[^"]+)"\)', css)
    assert files
    assert [name for name in files if not (STATIC / name).is_file()] == []
