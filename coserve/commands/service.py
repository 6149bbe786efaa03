"""The commands that ask a service: where it is, with which key, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from coserve.commands.terminal import refuse

if TYPE_CHECKING:
    from coserve.commands.service_client import ServiceClient

BaseUrl = Annotated[
    str | None,
    typer.Option(
        envvar="COSERVE_BASE_URL",
        help="Where the API is, /v1 included. By default that of the stack that runs here.",
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        envvar="COSERVE_API_KEY",
        show_envvar=True,
        help="By default the admin key in the state directory.",
    ),
]


@contextmanager
def connected(base_url: str | None, api_key: str | None) -> Iterator[ServiceClient]:
    """The service for the length of a block.

    Raises:
        typer.Exit: With status 1, where there is no key, or the service refuses or is away.
    """
    from coserve.commands.service_client import (
        ServiceClient,
        ServiceError,
        find_base_url,
        find_key,
    )

    try:
        with ServiceClient(find_base_url(base_url), find_key(api_key)) as client:
            yield client
    except ServiceError as error:
        refuse(error)
