"""Who may read the metrics: whoever brings the token, or anybody on a loopback address.

They hold no prompts, but they name models, engines' addresses and traffic.
"""

from __future__ import annotations

import ipaddress
import secrets
from typing import Annotated

from fastapi import Header

from api.errors import AuthenticationFailed, PermissionDenied
from gateway.dependencies import SettingsDep


async def may_read_metrics(
    settings: SettingsDep, authorization: Annotated[str, Header(include_in_schema=False)] = ""
) -> None:
    """With a token, whoever brings it; without one, everybody on this machine and nobody else.

    Raises:
        AuthenticationFailed: Another token than the one that is set.
        PermissionDenied: None is set, and others can reach the port.
    """
    if settings.metrics_token:
        wanted = f"Bearer {settings.metrics_token}".encode()
        if not secrets.compare_digest(authorization.encode(), wanted):
            raise AuthenticationFailed("Metrics want the token that COSERVE_METRICS_TOKEN sets.")
    elif not _is_loopback(settings.host):
        raise PermissionDenied(
            "Metrics are closed: COSERVE_METRICS_TOKEN opens them on an address that others reach."
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
