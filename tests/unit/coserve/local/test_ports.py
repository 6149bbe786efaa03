"""Ports for servers that clients connect to again and again while they are away."""

from __future__ import annotations

import socket
from pathlib import Path

from coserve.local.ports import free_port

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_no_outgoing_connection_is_given_a_servers_port() -> None:
    first = int(OUTGOING.read_text().split()[0])
    assert all(1024 < free_port() < max(first, 15_100) for _ in range(50))


def test_nobody_listens_there() -> None:
    port = free_port()
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
        server.listen()
        assert free_port() != port
