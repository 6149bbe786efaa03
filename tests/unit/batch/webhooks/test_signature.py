"""The official SDK is the judge of our signatures."""

from __future__ import annotations

import base64

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch.webhooks import signature
from service.clock import SystemClock

CLIENT = openai.OpenAI(api_key="none")


def _now_s() -> int:
    return int(SystemClock().now().timestamp())


@given(
    key=st.binary(min_size=1, max_size=64),
    webhook_id=st.from_regex(r"wh_[a-z0-9]{1,30}", fullmatch=True),
    body=st.text(st.characters(codec="utf-8"), max_size=200),
)
def test_the_sdk_accepts_it(key: bytes, webhook_id: str, body: str) -> None:
    headers = signature.headers(webhook_id, _now_s(), body.encode(), [key])
    CLIENT.webhooks.verify_signature(body.encode(), headers, secret=signature.shown(key))


@given(st.integers(min_value=0, max_value=39), st.integers(min_value=1, max_value=255))
def test_a_changed_byte_is_refused(place: int, change: int) -> None:
    key, body = signature.new_key(), b"a body of exactly forty bytes, no more.."
    headers = signature.headers("wh_1", _now_s(), body, [key])
    tampered = bytearray(body)
    tampered[place] ^= change & 0x7F or 1
    with pytest.raises(openai.InvalidWebhookSignatureError):
        CLIENT.webhooks.verify_signature(bytes(tampered), headers, secret=signature.shown(key))


def test_either_key_verifies_after_a_rotation_that_keeps_the_old_one() -> None:
    old, new, other = signature.new_key(), signature.new_key(), signature.new_key()
    headers = signature.headers("wh_1", _now_s(), b"{}", [new, old])
    for key in (old, new):
        CLIENT.webhooks.verify_signature(b"{}", headers, secret=signature.shown(key))
    with pytest.raises(openai.InvalidWebhookSignatureError):
        CLIENT.webhooks.verify_signature(b"{}", headers, secret=signature.shown(other))


def test_a_known_vector() -> None:
    """The example of the Standard Webhooks specification."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    headers = signature.headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body, [key])
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_hint_gives_nothing_away() -> None:
    key = signature.new_key()
    shown, hint = signature.shown(key), signature.hint(key)
    assert shown.startswith("whsec_")
    assert len(base64.b64decode(shown.removeprefix("whsec_"))) == 32
    assert hint.startswith("whsec_…")
    assert len(hint) == len("whsec_…") + 4
    assert shown.rstrip("=").endswith(hint[-4:])
