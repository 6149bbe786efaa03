"""The bytes of a token that is no whole text: a part of an emoji, say.

SGLang tells a token's text, and as its `bytes` the UTF-8 of that text. Of a token that holds part
of a character the text is the replacement character, and its three bytes say nothing. OpenAI's
`bytes` are the token's own, so that a reader may join them (contract row E-12).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

TARGET: Final = "sglang.srt.managers.tokenizer_manager.TokenizerManager.detokenize_logprob_tokens"
REPLACEMENT: Final = "\ufffd"
_FALLBACK: Final = re.compile(r"<0x([0-9A-F]{2})>")


class PartialText(str):
    """The text of a token, encoded as the token's own bytes."""

    __slots__ = ("raw",)

    raw: bytes

    @classmethod
    def of(cls, text: str, raw: bytes) -> PartialText:
        """`text`, which stands for `raw`."""
        made = cls(text)
        made.raw = raw
        return made

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """The token's bytes, which is what SGLang asks for."""
        return self.raw if encoding == "utf-8" else super().encode(encoding, errors)


def with_bytes(
    found: Sequence[tuple[float, int, str | None]], manager: Any, *_: Any, **__: Any
) -> list[tuple[float, int, str | None]]:
    """What SGLang found of some tokens, with the texts that are not whole told apart."""
    return [
        (value, token_id, _told(manager.tokenizer, token_id, text))
        for value, token_id, text in found
    ]


def _told(tokenizer: Any, token_id: int, text: str | None) -> str | None:
    if text is None or REPLACEMENT not in text:
        return text
    raw = raw_bytes(tokenizer.convert_ids_to_tokens(token_id), byte_of_char())
    return text if raw is None else PartialText.of(text, raw)


def raw_bytes(token: str | None, byte_of: Mapping[str, int]) -> bytes | None:
    """The bytes of a vocabulary's entry; none where it is of neither kind that has such tokens.

    Args:
        token: The entry: of bytes that are written as printable characters, or `<0xF0>`.
        byte_of: Which byte each of these characters stands for.
    """
    if token is None:
        return None
    fallback = _FALLBACK.fullmatch(token)
    if fallback is not None:
        return bytes([int(fallback[1], 16)])
    try:
        return bytes(byte_of[char] for char in token)
    except KeyError:
        return None


@cache
def byte_of_char() -> dict[str, int]:
    """Of the alphabet that all byte-level vocabularies share."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {char: byte for byte, char in bytes_to_unicode().items()}
