"""Compares what a wheel of SGLang requires with the pinned list of an earlier release."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from email.parser import HeaderParser
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def wheel_requirements(wheel: Path) -> dict[str, str]:
    """Version specifiers by name, of what a wheel needs on Linux and without its extras."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        head = HeaderParser().parsestr(archive.read(name).decode())
    found = {}
    for line in head.get_all("Requires-Dist", ()):
        wanted, _, when = line.partition(";")
        if "extra ==" in when or 'sys_platform != "linux"' in when.partition(" or ")[0]:
            continue
        package = _NAME.match(wanted.strip())
        assert package is not None
        rest = wanted.strip().removeprefix(package.group())
        found[canonical(package.group())] = rest.strip()
    return found


def canonical(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def followed(
    listed: str, old: Mapping[str, str], wanted: Mapping[str, str], version: str
) -> tuple[str, list[str]]:
    """A list with the pins of another release.

    Args:
        listed: The list of a signed release.
        old: Specifiers by name, of that release's wheel.
        wanted: The same of the wheel that is followed.
        version: The wheel's.

    Returns:
        The new list, and a line for each pin that differs. What is as it was in the old wheel
        stays as it was listed.
    """
    lines, told = [], []
    for line in listed.splitlines():
        name = _NAME.match(line)
        if name is None:
            lines.append(line)
            continue
        own, _, note = line.partition("#")
        kept = own.strip().removeprefix(name.group())
        package = canonical(name.group())
        asked = wanted.get(package, "")
        pin = kept if asked == old.get(package, "") else asked
        pin = f"=={version}" if package == "sglang" else pin
        pin = re.sub(r"^\[.*?\]", "", pin).strip()
        if pin != kept:
            told.append(f"{name.group()}{kept or ' (any)'} -> {pin}")
        lines.append(f"{name.group()}{pin}" + (f"  #{note}" if note else ""))
    return "\n".join(lines) + "\n", told


def new_requirements(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What a wheel needs that the one before it did not; a host without CUDA may need it too."""
    return [f"{name}{new[name]}" for name in sorted(new.keys() - old.keys())]
