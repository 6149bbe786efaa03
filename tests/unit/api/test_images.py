from __future__ import annotations

from typing import Any

import pytest

from api.chat_request import check_chat
from api.errors import InvalidRequest
from api.images import MAX_IMAGE_BYTES, MAX_IMAGES, text_only, unreadable
from api.responses.items import check_input, listed, messages_of
from tests.fixtures.pictures import BROKEN, UNDECODABLE, data_url, png, sized

URL = data_url(png())
JPEG = data_url(b"\xff\xd8\xff\xe0\x00\x04ab\xff\xda\x00\x02scan\xff\xd9", "JPEG")
TOO_LARGE = "data:image/png;base64," + "A" * (MAX_IMAGE_BYTES * 4 // 3 + 8)


def image(url: Any = URL, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def asked(*parts: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": role, "content": list(parts)}]}


def test_data_urls_of_images_are_let_through() -> None:
    text = {"type": "text", "text": "What is this?"}
    body = asked(text, image(detail="low"), image(JPEG), image(JPEG.replace("JPEG", "jpg")))
    check_chat(body)
    with pytest.raises(InvalidRequest):
        text_only(body)
    text_only(asked(text))


@pytest.mark.parametrize(
    ("part", "param"),
    [
        (image("https://example.com/a.png"), "url"),
        (image("file:///etc/passwd"), "url"),
        (image("data:image/svg+xml;base64,AAAA"), "url"),
        (image("data:text/plain;base64,AAAA"), "url"),
        (image("data:image/png,AAAA"), "url"),
        (image("data:image/png;base64,AA*A"), "url"),
        (image("data:image/png;base64,AAA"), "url"),
        (image(TOO_LARGE), "url"),
        *((image(url), "url") for url in BROKEN.values()),
        (image(3), "url"),
        (image(detail="huge"), "detail"),
    ],
)
def test_what_is_no_image_is_refused_by_name(part: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_chat(asked(part))
    assert refused.value.param == f"messages[0].content[0].image_url.{param}"
    assert len(refused.value.message) < 300, "the image is not repeated"


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "gif"])
def test_a_picture_has_so_many_pixels(kind: str) -> None:
    for width, height in [(6000, 6000), (16_384, 2000), (1, 16_384)]:
        check_chat(asked(image(data_url(sized(kind, width, height), kind))))
    for width, height in [(6001, 6000), (16_385, 1), (1, 16_385), (60_000, 60_000)]:
        with pytest.raises(InvalidRequest, match=f"{width:,} x {height:,} pixels"):
            check_chat(asked(image(data_url(sized(kind, width, height), kind))))


def test_one_request_has_so_many() -> None:
    check_chat(asked(*[image()] * MAX_IMAGES))
    with pytest.raises(InvalidRequest) as refused:
        check_chat(asked(*[image()] * (MAX_IMAGES + 1)))
    assert refused.value.param == "messages"


def test_only_users_show_images() -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_chat(asked(image(), role="system"))
    assert refused.value.param == "messages[0].content[0].type"


def test_a_model_that_reads_text_only_names_the_image() -> None:
    text_only(asked({"type": "text", "text": "x"}))
    with pytest.raises(InvalidRequest) as refused:
        text_only(asked({"type": "text", "text": "x"}, image()))
    assert refused.value.param == "messages[0].content[1].type"


def test_an_image_of_a_response_is_one_of_the_chat() -> None:
    content = [{"type": "input_text", "text": "See"}, {"type": "input_image", "image_url": URL}]
    given = [{"role": "user", "content": content}]
    check_input("input", given)
    items = listed(given, "0" * 32)
    assert items[0]["content"][1] == {"type": "input_image", "image_url": URL, "detail": "auto"}
    (message,) = messages_of(items, None)
    assert message["content"] == [{"type": "text", "text": "See"}, image(detail="auto")]
    check_chat({"model": "m", "messages": [message]})


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "input_image", "image_url": "https://example.com/a.png"}, "image_url"),
        ({"type": "input_image", "file_id": "file-1"}, "file_id"),
        ({"type": "input_image", "image_url": URL, "detail": "huge"}, "detail"),
    ],
)
def test_what_is_no_image_of_a_response(part: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_input("input", [{"role": "user", "content": [part]}])
    assert refused.value.param == f"input[0].content[0].{param}"


def loading(url: str) -> str:
    """What SGLang says of data that it cannot decode."""
    told = f"ImageData(url='{url}', detail='auto')"
    return f"Internal server error: Error while loading data {told[:100]}...: broken data stream"


def test_what_an_engine_cannot_decode_is_named() -> None:
    body = asked({"type": "text", "text": "x"}, image(URL), image(JPEG), image(UNDECODABLE))
    refused = unreadable(body, loading(JPEG))
    assert refused is not None
    assert (refused.status, refused.param) == (400, "messages[0].content[2].image_url")
    assert "broken" not in refused.message, "the engine's words stay inside"
    alone = unreadable(asked(image(UNDECODABLE)), loading(UNDECODABLE))
    assert alone is not None
    assert alone.param == "messages[0].content[0].image_url"


def test_an_engine_that_counts_is_believed() -> None:
    said = "An exception occurred while loading IMAGE data at index 1: "
    message = loading(UNDECODABLE).replace("Error while", f"{said}Error while")
    refused = unreadable(asked(image(UNDECODABLE), image(UNDECODABLE)), message)
    assert refused is not None
    assert refused.param == "messages[0].content[1].image_url"


def test_of_images_that_begin_alike_their_message_is_named() -> None:
    twice = unreadable(asked(image(UNDECODABLE), image(UNDECODABLE)), loading(UNDECODABLE))
    assert twice is not None
    assert twice.param == "messages[0]"
    body = asked(image(UNDECODABLE))
    body["messages"] += body["messages"]
    apart = unreadable(body, loading(UNDECODABLE))
    assert apart is not None
    assert apart.param == "messages"


def test_other_failures_are_not_about_images() -> None:
    assert unreadable(asked(image()), "Internal server error: out of memory") is None
    assert unreadable(asked({"type": "text", "text": "x"}), loading(URL)) is None
