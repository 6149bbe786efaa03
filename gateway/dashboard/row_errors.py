"""Why rows failed, read from the lines of their results; and the same errors counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from batch.finish.output import CANCELLED_CODE, EXPIRED_CODE
from batch.run.retry import is_retryable
from store.models import Batch

MAX_GROUPED: Final = 5000
"""Errors that are counted together, the newest ones."""
STOPPED_CODES: Final = frozenset({CANCELLED_CODE, EXPIRED_CODE})
"""In the lines of rows that were not run."""


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
        status_code: Likewise.
    """

    code: str
    num: int
    message: str
    status_code: int | None = None

    @property
    def again(self) -> bool:
        """Whether the same request gets the same answer, however often it is sent."""
        return self.status_code is not None and not is_retryable(self.status_code)


def grouped(lines: Iterable[bytes]) -> Sequence[ErrorGroup]:
    """The same codes together, the most frequent first.

    Args:
        lines: Of failed rows, the newest first.
    """
    newest: dict[str, RowError] = {}
    counts: Counter[str] = Counter()
    for line in lines:
        if (error := RowError.of(line)) is not None:
            counts[error.code] += 1
            newest.setdefault(error.code, error)
    return [
        ErrorGroup(code, num, newest[code].message, newest[code].status_code)
        for code, num in counts.most_common()
    ]


@dataclass(frozen=True)
class RetryOutlook:
    """What a retry of a batch would run.

    Attributes:
        num_not_run: Rows that a cancel or the end of the window closed.
        groups: Failed rows by the code of their error.
        counted: How many errors were looked at, where there are more.
    """

    num: int
    num_not_run: int
    groups: Sequence[ErrorGroup]
    counted: int | None


def outlook(batch: Batch, lines: Sequence[bytes], *, limit: int) -> RetryOutlook:
    """What a retry would run, from the newest lines of the error file."""
    ran = [line for line in lines if not _was_stopped(line)]
    return RetryOutlook(
        batch.num_failed,
        batch.num_stopped,
        grouped(ran),
        limit if len(lines) == limit else None,
    )


def _was_stopped(line: bytes) -> bool:
    error = RowError.of(line)
    return error is not None and error.status_code is None and error.code in STOPPED_CODES
