"""Acts on tenants from the host's own command line: it has the database, so it may do everything.

Each leaves its entry in the audit log, under the name of the user of the host.
"""

from __future__ import annotations

import getpass
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from coserve.commands.terminal import refuse
from coserve.commands.transaction import in_transaction

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from gateway.tenants.actor import Actor

Result = TypeVar("Result")

OrgOption = Annotated[str, typer.Option("--org", help="As `coserve org list` shows it.")]
ProjectOption = Annotated[str, typer.Option(help="As `coserve project list` shows it.")]
LimitOption = Annotated[str | None, typer.Option(help="A number, or `none`.")]
ModelsOption = Annotated[
    str | None, typer.Option(help="The models it may use, with commas between, or `none`: all.")
]
TierOption = Annotated[
    str | None, typer.Option(help="Of requests that name none: default, flex, or `none`.")
]
WaitOption = Annotated[
    str | None, typer.Option(help="How long flex waits for room, in seconds, or `none`.")
]
LifetimeOption = Annotated[int | None, typer.Option(help="For ever if not said.", min=1)]


def act(work: Callable[[AsyncSession], Awaitable[Result]]) -> Result:
    """Run `work` in one transaction; what is refused ends the command with a sentence."""
    from api.errors import ApiError

    try:
        return in_transaction(work)
    except ApiError as refused:
        refuse(refused.message)


def host_user() -> str:
    """Who types; a container may know no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "host"


def host_actor(organization_id: str) -> Actor:
    """The host as the actor in an organisation."""
    from gateway.tenants.actor import Actor

    return Actor(organization_id, "cli", host_user())


async def actor_of_org(session: AsyncSession, organization_id: str) -> Actor:
    """The host as the actor in an organisation that exists.

    Raises:
        NotFound: It does not.
    """
    from api.errors import NotFound
    from store.repositories import organization as organizations

    if await organizations.get(session, organization_id) is None:
        raise NotFound(f"No organisation found with id '{organization_id[:64]}'.")
    return host_actor(organization_id)


async def actor_of_project(session: AsyncSession, project_id: str) -> Actor:
    """The host as the actor in the organisation of a project.

    Raises:
        ProjectNotFound: There is no such project.
    """
    from gateway.tenants.errors import ProjectNotFound
    from store.repositories import project as projects

    project = await projects.find(session, project_id)
    if project is None:
        raise ProjectNotFound(project_id)
    return host_actor(project.organization_id)


async def actor_of_key(session: AsyncSession, key_id: str) -> Actor:
    """The host as the actor in the organisation of a key.

    Raises:
        KeyNotFound: There is no such key.
    """
    from gateway.tenants.errors import KeyNotFound
    from store.repositories import key as keys

    found = await keys.find(session, key_id)
    if found is None:
        raise KeyNotFound(key_id)
    return host_actor(found[1].organization_id)


def limits_of(**given: str | None) -> dict[str, Any]:
    """Limits as typed: those not given are left out, `none` is none.

    Args:
        given: By name: `models` with commas between, `service_tier` a word, all others a number.
    """
    limits: dict[str, Any] = {}
    for name, text in given.items():
        if text is None:
            continue
        if text == "none":
            limits[name] = None
        elif name == "models":
            limits[name] = [one.strip() for one in text.split(",") if one.strip()]
        elif name == "service_tier":
            limits[name] = text
        elif text.isascii() and text.isdigit():
            limits[name] = int(text)
        else:
            option = "--" + name.replace("_", "-")
            refuse(f"{option} takes a number or `none`, not {text!r}.", status=2)
    return limits


def number(value: int | None) -> str:
    """A limit in a table."""
    return "-" if value is None else f"{value:,}"
