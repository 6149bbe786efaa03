"""What an error of the database means for whoever meets it.

away        the server, or the way to it: repeat (OperationalError, InterfaceError)
busy        it is there, and takes no more at the moment: repeat, and say so
full        no room on its disk: repeat, and say so
read-only   it takes no writes, as after a failover: repeat on a new connection, and say so
refused     this statement with these values will never be taken: repeating is no use
"""

from __future__ import annotations

import re
from typing import Final

import psycopg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

DISK_FULL: Final = "53100"
READ_ONLY: Final = "25006"
"""Of a standby too, which the server before may be by now."""
AWAY: Final = (OperationalError, InterfaceError, NoConnectionFree, OSError)
"""What a transaction raises while the server, the way to it or a free connection is missing."""
DATABASE_ERRORS: Final = (DBAPIError, psycopg.Error)
"""What a statement raises: SQLAlchemy's errors, and of a COPY the driver's own."""
_NO_PLACE: Final = re.compile(
    "too many (clients|connections)|connection slots are reserved|no more connections allowed"
)
"""Of Postgres and of PgBouncer."""
_REFUSED_CLASSES: Final = ("22", "54", "XX")
"""Data exceptions, program limits, and what the server calls internal: sizes it cannot allocate."""


def is_full(error: BaseException | None) -> bool:
    """Whether the server has no room on its disk."""
    return _state_of(error) == DISK_FULL


def is_read_only(error: BaseException | None) -> bool:
    """Whether the server takes no writes."""
    return _state_of(error) == READ_ONLY


def is_busy(error: BaseException | None) -> bool:
    """Whether the server is there and has no connection, or no memory, for one more."""
    if isinstance(error, NoConnectionFree):
        return True
    state = _state_of(error)
    if state is not None:
        return state.startswith("53") and state != DISK_FULL
    # Of a connection that was refused the driver knows only the words.
    return isinstance(error, OperationalError) and _NO_PLACE.search(str(error.orig)) is not None


def why_away(error: BaseException) -> str:
    """Why the database was of no use, to follow its name; without the error's own words."""
    if is_full(error):
        return "has no room on its disk"
    if is_read_only(error):
        return "takes no writes"
    return "is busy" if is_busy(error) else "cannot be reached"


def is_refused(error: BaseException | None) -> bool:
    """Whether the values themselves are the trouble: too large, or nothing the server can keep."""
    state = _state_of(error)
    if state is None:
        # Refused by the driver, before the server saw it.
        return isinstance(error, DBAPIError) and isinstance(error.orig, psycopg.DataError)
    return state.startswith(_REFUSED_CLASSES)


def _state_of(error: BaseException | None) -> str | None:
    orig = error.orig if isinstance(error, DBAPIError) else error
    return orig.sqlstate if isinstance(orig, psycopg.Error) else None
