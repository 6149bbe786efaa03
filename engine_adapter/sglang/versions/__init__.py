"""What differs between the releases of SGLang that the plugin runs on: a module for each family.

A family begins with the release it is named after and ends before the next one. All of them have
the same functions (`protocol.Seam`), and nothing outside this package touches those internals of a
request, the prefix tree or the arguments whose form changed. So a new release costs one module at
most. Importing this file loads no SGLang.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FAMILIES: Final[Mapping[str, str]] = {
    "0.5.16": "v0_5_16",
    "0.5.22": "v0_5_22",
}
"""First release of a family -> its module, oldest first."""


def number(version: str) -> tuple[int, ...]:
    """A version to compare by; what follows its numbers (``.post1``) does not count.

    Raises:
        ValueError: It does not begin with numbers.
    """
    parts = version.split(".")[:3]
    return tuple(int(part) for part in parts)


def family_of(version: str) -> str:
    """The first release of the family that a version belongs to; the oldest one's if none fits."""
    known = [first for first in FAMILIES if number(first) <= number(version)]
    return known[-1] if known else next(iter(FAMILIES))
