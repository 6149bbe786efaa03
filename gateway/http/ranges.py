"""`Range` of a download: one range of bytes (RFC 9110, section 14; row F-24)."""

from __future__ import annotations

import re
from urllib.parse import quote

from api.errors import ApiError
from batch.files import ByteRange

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class RangeNotSatisfiable(ApiError):
    """The range begins beyond the end of the file."""

    status = 416
    type = "invalid_request_error"
    default_code = "range_not_satisfiable"

    def __init__(self, size_bytes: int) -> None:
        super().__init__(
            f"The range does not overlap the file of {size_bytes:,} bytes.",
            param="range",
            headers={"content-range": f"bytes */{size_bytes}"},
        )


def read_range(
    header: str | None, size_bytes: int, *, if_range: str | None = None, etag: str = ""
) -> ByteRange | None:
    """The part of a file that was asked for; None for all of it.

    A header that is not one range of bytes is ignored, as the RFC wants, and so is one whose
    `If-Range` names another version.

    Raises:
        RangeNotSatisfiable: The range lies outside of the file.
    """
    found = _RANGE.fullmatch((header or "").replace(" ", ""))
    if found is None or found[0] == "bytes=-" or (if_range is not None and if_range != etag):
        return None
    first, last = found.groups()
    if not first:
        length = min(int(last), size_bytes)
        if not length:
            raise RangeNotSatisfiable(size_bytes)
        return ByteRange(size_bytes - length, length)
    offset = int(first)
    if last and int(last) < offset:
        return None
    if offset >= size_bytes:
        raise RangeNotSatisfiable(size_bytes)
    end = min(int(last) + 1, size_bytes) if last else size_bytes
    return ByteRange(offset, end - offset)


def content_disposition(filename: str) -> str:
    """The header that names a download, for old and new clients (RFC 6266)."""
    plain = "".join(
        char if char.isascii() and char.isprintable() and char not in '"\\%' else "_"
        for char in filename
    )
    if plain == filename:
        return f'attachment; filename="{plain}"'
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"
