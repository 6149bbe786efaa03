"""Whether this host can run the product at all: one clear line when it cannot.

Parsed by any Python 3, however old: nothing newer than it may be written in this file.
"""

import os
import platform
import sys

SUPPORTED = "Linux on x86-64 with glibc 2.34 or newer and Python 3.11, 3.12 or 3.13"
OLDEST_PYTHON = (3, 11)
NEWEST_PYTHON = (3, 13)
OLDEST_GLIBC = (2, 34)


def _version(text):
    # type: (str) -> tuple[int, ...]
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def unsupported(system, machine, libc, python):
    # type: (str, str, tuple[str, str], tuple[int, int]) -> str | None
    """Why such a host is not supported, or None. Plain arguments, so that it can be tested."""
    if system != "Linux":
        found = system or "an unknown system"
    elif machine.lower() not in ("x86_64", "amd64"):
        found = "Linux on " + machine
    elif libc[0] != "glibc":
        found = "Linux with a C library other than glibc"
    elif _version(libc[1]) < OLDEST_GLIBC:
        found = "glibc " + libc[1]
    elif not OLDEST_PYTHON <= python <= NEWEST_PYTHON:
        found = "Python %d.%d" % python  # noqa: UP031
    else:
        return None
    return "coserve needs %s; this is %s." % (SUPPORTED, found)  # noqa: UP031


def why_unsupported():
    # type: () -> str | None
    """Why this host is not supported, or None."""
    name, version = platform.libc_ver()
    if hasattr(os, "confstr") and not name:
        told = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
        name, version = (told[0], told[1]) if len(told) == 2 else ("", "")
    return unsupported(platform.system(), platform.machine(), (name, version), sys.version_info[:2])
