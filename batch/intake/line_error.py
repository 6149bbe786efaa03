"""What can be wrong with a batch's input: one fault, and the notes taken on one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

MAX_MESSAGE_CHARS: Final = 256
MAX_PARAM_CHARS: Final = 128

_JSON_TYPES: Final = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    type(None): "null",
}


@dataclass(frozen=True, slots=True)
class LineError:
    """One thing wrong with an input file; `as_wire` is an entry of a batch's `errors.data`.

    Attributes:
        code: One of the codes in docs/batches.md.
        message: One sentence; never holds prompts (row Z-12).
        param: Dotted path inside the line, or none.
        line: 1-based physical line, or none for the file as a whole.
    """

    code: str
    message: str
    param: str | None = None
    line: int | None = None

    @property
    def num_bytes(self) -> int:
        """About how long it is in a batch's `errors`."""
        return len(self.code) + len(self.message.encode()) + len((self.param or "").encode())

    def as_wire(self) -> dict[str, Any]:
        """The four keys of a batch error (row B-25)."""
        return {
            "code": self.code,
            "message": self.message,
            "param": self.param,
            "line": self.line,
        }


class LineNotes:
    """The faults of one line, in the order in which they were found."""

    def __init__(self, line_no: int) -> None:
        self.line_no = line_no
        self.faults: list[LineError] = []

    def add(self, code: str, message: str, param: str | None) -> None:
        """Note a fault of this line.

        Names of fields may come from the line: they are cut, and lose what the database's JSON
        cannot hold. A fault that cannot be stored would keep the batch in validation for ever.
        """
        self.faults.append(
            LineError(
                code,
                _fit(message, MAX_MESSAGE_CHARS),
                None if param is None else _fit(param, MAX_PARAM_CHARS),
                self.line_no,
            )
        )

    def missing(self, param: str) -> None:
        """A key that must be there is not."""
        self.add("missing_required_parameter", f"Missing required parameter: '{param}'.", param)

    def wrong_type(self, param: str, wanted: str, found: object) -> None:
        """A value has another JSON type than it must."""
        kind = json_type(found)
        self.add("invalid_type", f"'{param}' must be {wanted}, not {kind}.", param)

    def wrong_value(self, param: str, rule: str) -> None:
        """A value of the right type is not allowed; `rule` completes "'param' ..."."""
        self.add("invalid_value", f"'{param}' {rule}.", param)


def _fit(text: str, max_chars: int) -> str:
    return text[:max_chars].replace("\0", "\N{REPLACEMENT CHARACTER}")


def json_type(value: object) -> str:
    """JSON's name for the type of a decoded value, with its article."""
    return _JSON_TYPES[type(value)]
