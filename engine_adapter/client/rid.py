"""Engine request ids.

SGLang matches ids by prefix when it aborts (`r1` also aborts `r10`), so every id we send has the
same length: then no id is a prefix of another one.
"""

from __future__ import annotations

import secrets

RID_LENGTH = 32
_ALPHABET = frozenset("0123456789abcdef")


def new_rid() -> str:
    """A fresh engine request id: 32 hex digits, 128 random bits."""
    return secrets.token_hex(RID_LENGTH // 2)


def is_rid(text: str) -> bool:
    """Whether `text` has the fixed form of our ids."""
    return len(text) == RID_LENGTH and _ALPHABET.issuperset(text)
