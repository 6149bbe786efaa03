"""An address that parses can be connected to, and everything else says why not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.client.connections import Connections
from engine_adapter.client.engine_address import (
    EngineAddress,
    NotAnAddress,
    addresses,
    shown,
    usable,
    why_unusable,
)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("http://127.0.0.1:30000", "http://127.0.0.1:30000"),
        ("http://127.0.0.1:30000/", "http://127.0.0.1:30000"),
        ("HTTP://Engine-2.Example:030000", "http://engine-2.example:30000"),
        ("https://engine/models/a/", "https://engine/models/a"),
        ("http://engine:80", "http://engine"),
        ("https://engine:443", "https://engine"),
        ("https://engine:80", "https://engine:80"),
        ("http://sglang_1:1", "http://sglang_1:1"),
        ("http://engine.svc.cluster.local.:65535", "http://engine.svc.cluster.local.:65535"),
        ("http://[0:0::1]:30000", "http://[::1]:30000"),
    ],
)
def test_an_address_has_one_normal_form(text: str, normal: str) -> None:
    assert str(EngineAddress.parse(text)) == normal
    assert str(EngineAddress.parse(normal)) == normal


NO_ADDRESSES = [
    "",
    "engine:30000",
    "ftp://engine",
    "http:engine",
    "http://",
    "http:///path",
    "http://:30000",
    "http://engine:",
    "http://engine:0",
    "http://engine:-1",
    "http://engine:65536",
    "http://127.0.0.1:99999",
    "http://engine:port",
    "http://engine:1:2",
    "http://a@engine",
    "http://a:secret@engine:1",
    "http://@engine",
    "http://engine?",
    "http://engine?a=b",
    "http://engine#",
    "http://engine/#part",
    "http://engine\n:1",
    "http://eng ine:1",
    "\thttp://engine:1",
    "http://engine:1\x00",
    "http://éngine:1",
    "http://engine:１",
    "http://engine\\@other",
    "http://engine/a//b",
    "http://engine/a\\b",
    "http://[::1:30000",
    "http://[::1]x:30000",
    "http://[nothing]:30000",
    "http://[fe80::1%25eth0]:1",
    "http://999.1.1.1:30000",
    "http://127.1:30000",
    "http://-engine:1",
    "http://engine..local:1",
    f"http://{'a.' * 127}aa:1",
    "http://engine/" + "a" * 1024,
]


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_what_is_none_says_why_and_repeats_no_secret(text: str) -> None:
    with pytest.raises(NotAnAddress) as refused:
        EngineAddress.parse(text)
    assert "http://host:port is expected" in str(refused.value)
    assert "secret" not in str(refused.value)
    assert why_unusable(text)
    assert usable([text, "http://engine"]) == ["http://engine"]


@given(
    st.one_of(
        st.text(),
        st.builds("http://{}".format, st.text(alphabet="a1.:[]@/?#%-_ \n\\é", max_size=30)),
        st.builds("http://{}:{}{}".format, st.from_regex(r"[a-z0-9.-]{1,9}"), st.integers(),
                  st.sampled_from(["", "/", "/a"])),
    )
)  # fmt: skip
def test_any_text_is_an_address_that_can_be_used_or_none(text: str) -> None:
    try:
        address = EngineAddress.parse(text)
    except NotAnAddress:
        return
    assert 1 <= address.port <= 65535
    assert EngineAddress.parse(str(address)) == address
    Connections(text).close()


def test_a_list_says_which_of_its_addresses_is_none() -> None:
    assert addresses(" http://one:1/ ,,http://TWO:2, http://two:2") == (
        "http://one:1",
        "http://two:2",
    )
    assert addresses("") == ()
    with pytest.raises(NotAnAddress, match="address 2: its host or port"):
        addresses("http://one:1,http://two:99999")


def test_a_log_shows_an_address_without_its_password() -> None:
    assert shown("http://a:secret@engine:1") == "http://engine:1"
    assert shown("a:secret@engine") == "engine"
    assert shown("http://engine\n:1") == "http://engine\\n:1"
