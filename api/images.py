"""Images in messages: data URLs of a few kinds, for models that read them.

An address of an image is refused: an engine would fetch it from inside the operator's network.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from api import image_files, rules
from api.errors import InvalidRequest
from api.objects import only

IMAGE_PART: Final = "image_url"
MAX_IMAGES: Final = 16
"""In one request."""
MAX_IMAGE_BYTES: Final = 8 * 1024 * 1024
"""Of one image, once decoded."""
MAX_IMAGE_PIXELS: Final = 36_000_000
MAX_IMAGE_SIDE: Final = 16_384
"""A small file may hold a large picture, and an engine decodes it whole."""
IMAGE_TOKENS: Final = 1024
"""About what one takes of a prompt; models differ, and the engine's own count is what is paid."""

_HEAD: Final = re.compile(r"data:image/(png|jpe?g|webp|gif);base64,", re.IGNORECASE)
_LONGEST_HEAD: Final = 32
_ENGINE_SAYS: Final = "Error while loading data "
_AT: Final = re.compile(r"while loading IMAGE data at index (\d+)")
_QUOTED: Final = re.compile(r"data:image/[^'\s]+", re.IGNORECASE)
_CODE: Final = "unsupported_content"
DETAILS: Final = ("auto", "low", "high", "original")
"""How closely a model looks; engines know no `original`, which is `high` there."""


def check_image(name: str, value: Any) -> None:
    """The `image_url` of a part.

    Raises:
        InvalidRequest: It is none, too large, or somewhere else.
    """
    rules.obj(name, value)
    only(name, value, "image")
    check_url(f"{name}.url", value.get("url"))
    if value.get("detail") is not None:
        rules.one_of(*DETAILS)(f"{name}.detail", value["detail"])


def check_url(name: str, url: Any) -> None:
    """A data URL with an image.

    Raises:
        InvalidRequest: It is none, too large, or the address of one; it is of another kind than
            it says, or not all there.
    """
    rules.string()(name, url)
    head = _HEAD.match(url[:_LONGEST_HEAD])
    if head is None:
        what = "images are given as data URLs (data:image/png;base64,…; png, jpeg, webp or gif)"
        raise rules.wrong(name, f"{what}; addresses are not fetched", _CODE)
    if (len(url) - head.end()) * 3 // 4 > MAX_IMAGE_BYTES:
        raise rules.wrong(name, f"an image may have {MAX_IMAGE_BYTES:,} bytes at most")
    try:
        data = binascii.a2b_base64(url[head.end() :], strict_mode=True)
    except (binascii.Error, ValueError):
        raise rules.wrong(name, "its data is not valid base64") from None
    # Many say jpg, which no registry does.
    kind, said = image_files.kind_of(data), head[1].lower().replace("jpg", "jpeg")
    if kind is None:
        raise rules.wrong(name, "its data is no png, jpeg, webp or gif")
    if kind != said:
        raise rules.wrong(name, f"its data is of the kind {kind}, not {said}")
    if not image_files.is_whole(kind, data):
        raise rules.wrong(name, f"its data is a {kind} that is damaged or cut short")
    width, height = image_files.size_of(kind, data) or (0, 0)
    if max(width, height) > MAX_IMAGE_SIDE or width * height > MAX_IMAGE_PIXELS:
        raise rules.wrong(
            name,
            f"it has {width:,} x {height:,} pixels; an image may have {MAX_IMAGE_PIXELS:,}, and "
            f"{MAX_IMAGE_SIDE:,} on a side",
        )


def check_number(body: Mapping[str, Any]) -> None:
    """Refuse more images than one request may have.

    Raises:
        InvalidRequest: Naming the messages.
    """
    if sum(1 for _ in _images(body)) > MAX_IMAGES:
        raise rules.wrong("messages", f"may have {MAX_IMAGES} images at most")


def text_only(body: Mapping[str, Any]) -> None:
    """Refuse images, for a model that reads none.

    Raises:
        InvalidRequest: Naming the first of them.
    """
    for path, _ in _images(body):
        raise InvalidRequest(
            "This model reads text only: leave the image out, or ask a model that reads images.",
            param=f"{path}.type",
            code=_CODE,
        )


def unreadable(body: Mapping[str, Any], message: str) -> InvalidRequest | None:
    """The error for an image that an engine could not decode, if that is what its message says.

    SGLang says which image it was, or only quotes the beginning of its data. Where then several
    images begin so, it is their message that is named, or all of them.
    """
    if _ENGINE_SAYS not in message:
        return None
    urls = [(f"{path}.{IMAGE_PART}", part[IMAGE_PART]["url"]) for path, part in _images(body)]
    if not urls:
        return None
    at = _AT.search(message)
    if at is not None and int(at[1]) < len(urls):
        return _not_decoded(urls[int(at[1])][0])
    quoted = _QUOTED.search(message)
    begins = quoted[0].removesuffix("...") if quoted else ""
    found = [param for param, url in urls if url.startswith(begins)] or [p for p, _ in urls]
    param = found[0]
    if len(found) > 1:
        same = {path.partition(".")[0] for path in found}
        param = same.pop() if len(same) == 1 else "messages"
    return _not_decoded(param)


def _not_decoded(param: str) -> InvalidRequest:
    return rules.wrong(param, "the engine cannot decode the image")


def _images(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A body's images: the path of each part, and the part."""
    for i, message in enumerate(body.get("messages") or ()):
        content = message.get("content")
        if type(content) is list:
            for k, part in enumerate(content):
                if part.get("type") == IMAGE_PART:
                    yield f"messages[{i}].content[{k}]", part
