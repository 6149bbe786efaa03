"""Ports of this machine's loopback."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

_LOWEST: Final = 15_000
_TRIES: Final = 100
_OUTGOING: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A TCP port that nobody has now, of those that no outgoing connection is given.

    A client that connects again and again to one of the others may be given that very port, is
    then connected to itself, and keeps the port from the server that is to come back.
    """
    for port in secrets.SystemRandom().sample(range(_LOWEST, _first_outgoing()), _TRIES):
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        given: int = probe.getsockname()[1]
    return given


def _first_outgoing() -> int:
    try:
        return max(_LOWEST + _TRIES, int(_OUTGOING.read_text().split()[0]))
    except (OSError, ValueError, IndexError):
        return 32_768
