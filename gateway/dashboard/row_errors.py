"""Why rows failed, read from the lines of their results; and the same errors counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True)
class RowError:
    """Why one row failed.

    Attributes:
        status_code: What the engine's answer had; none where there was no answer.
    """

    status_code: int | None
    code: str
    message: str

    @classmethod
    def of(cls, line: bytes) -> RowError | None:
        """Read a line of a result; none for one that succeeded."""
        result: dict[str, Any] = orjson.loads(line)
        response = result.get("response") or {}
        status_code = response.get("status_code")
        error = result.get("error") or (response.get("body") or {}).get("error") or {}
        if not error and (status_code or 200) < 400:
            return None
        return cls(
            status_code=status_code,
            code=str(error.get("code") or error.get("type") or ""),
            message=str(error.get("message") or "no message"),
        )

    @property
    def words(self) -> str:
        """Status, code and message in a line."""
        head = " ".join(str(one) for one in (self.status_code, self.code) if one)
        return f"{head}: {self.message}" if head else self.message


@dataclass(frozen=True)
class ErrorGroup:
    """Rows that failed alike.

    Attributes:
        message: Of the newest one.
    """

    code: str
    num: int
    message: str


def grouped(lines: Iterable[bytes]) -> Sequence[ErrorGroup]:
    """The same codes together, the most frequent first.

    Args:
        lines: Of failed rows, the newest first.
    """
    messages: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for line in lines:
        if (error := RowError.of(line)) is not None:
            counts[error.code] += 1
            messages.setdefault(error.code, error.message)
    return [ErrorGroup(code, num, messages[code]) for code, num in counts.most_common()]
