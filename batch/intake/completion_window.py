"""How long a batch may take: `24h` as at OpenAI, or any whole hours or days up to a week. Pure."""

from __future__ import annotations

import re
from typing import Final

from api.errors import InvalidRequest

MAX_S: Final = 7 * 86400

_WORD: Final = re.compile(r"([1-9][0-9]{0,2})([hd])")
_UNIT_S: Final = {"h": 3600, "d": 86400}


def seconds_of(completion_window: str, *, param: str = "completion_window") -> int:
    """The seconds of a completion window, or of another time from `1h` to `7d`.

    Raises:
        InvalidRequest: It is none, naming `param`.
    """
    found = _WORD.fullmatch(completion_window)
    seconds = 0 if found is None else int(found[1]) * _UNIT_S[found[2]]
    if not 0 < seconds <= MAX_S:
        raise InvalidRequest(
            f"The {param.rpartition('.')[2].replace('_', ' ')} must be '24h', or another number of "
            "hours or days from '1h' to '7d'.",
            param=param,
        )
    return seconds
