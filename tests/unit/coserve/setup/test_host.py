"""One clear line for a host we do not support."""

from __future__ import annotations

import pytest

from coserve.setup.host import unsupported, why_unsupported

GLIBC = ("glibc", "2.36")


@pytest.mark.parametrize("python", [(3, 11), (3, 12), (3, 13)])
def test_supported(python: tuple[int, int]) -> None:
    assert unsupported("Linux", "x86_64", GLIBC, python) is None
    assert unsupported("Linux", "x86_64", ("glibc", "2.34"), python) is None


@pytest.mark.parametrize(
    ("system", "machine", "libc", "python", "found"),
    [
        ("Darwin", "arm64", ("", ""), (3, 11), "Darwin"),
        ("Windows", "AMD64", ("", ""), (3, 11), "Windows"),
        ("Linux", "aarch64", GLIBC, (3, 11), "Linux on aarch64"),
        ("Linux", "x86_64", ("", ""), (3, 11), "other than glibc"),
        ("Linux", "x86_64", ("glibc", "2.17"), (3, 11), "glibc 2.17"),
        ("Linux", "x86_64", ("glibc", "2.33"), (3, 11), "glibc 2.33"),
        ("Linux", "x86_64", GLIBC, (3, 9), "Python 3.9"),
        ("Linux", "x86_64", GLIBC, (3, 14), "Python 3.14"),
    ],
)
def test_unsupported(
    system: str, machine: str, libc: tuple[str, str], python: tuple[int, int], found: str
) -> None:
    why = unsupported(system, machine, libc, python)
    assert why is not None
    assert found in why
    assert "\n" not in why


def test_this_host_is_supported() -> None:
    assert why_unsupported() is None
