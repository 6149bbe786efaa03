"""Signatures as Standard Webhooks defines them and the official SDK verifies them (row W-04).

    webhook-signature: v1,base64(HMAC-SHA256(key, "{webhook-id}.{webhook-timestamp}.{body}"))

The key is shown to its owner as `whsec_` and its base64.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Final

SECRET_PREFIX: Final = "whsec_"
KEY_BYTES: Final = 32
_HINT_CHARS: Final = 4


def new_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def shown(key: bytes) -> str:
    """The key as its owner gets it."""
    return SECRET_PREFIX + base64.b64encode(key).decode()


def hint(key: bytes) -> str:
    """Enough of it for its owner to tell it from others."""
    return f"{SECRET_PREFIX}…{shown(key).rstrip('=')[-_HINT_CHARS:]}"


def headers(
    webhook_id: str, timestamp_s: int, body: bytes, keys: Sequence[bytes]
) -> dict[str, str]:
    """The three headers of a delivery, signed with every key (row W-03)."""
    signed = f"{webhook_id}.{timestamp_s}.".encode() + body
    signatures = (base64.b64encode(hmac.digest(key, signed, hashlib.sha256)) for key in keys)
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": " ".join(f"v1,{one.decode()}" for one in signatures),
    }
