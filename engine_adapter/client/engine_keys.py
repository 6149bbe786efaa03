"""API keys of engines that want one: `http://vllm:8000=key, https://other:443/v1=key`."""

from __future__ import annotations

import re
from typing import Final

from engine_adapter.client.engine_address import EngineAddress, NotAnAddress

_KEY: Final = re.compile(r"[!-+\--~]{1,4096}")
"""What a header can carry; a comma ends an entry."""


def parse_keys(text: str) -> dict[str, str]:
    """Keys by the normal form of an engine's address.

    Raises:
        ValueError: It has another form; says which entry, by its place, and never a key.
    """
    found: dict[str, str] = {}
    for number, part in enumerate(filter(None, map(str.strip, text.split(","))), start=1):
        url, _, key = part.partition("=")
        try:
            address = str(EngineAddress.parse(url.strip()))
        except NotAnAddress as error:
            raise ValueError(f"entry {number}: {error}") from None
        if not _KEY.fullmatch(key.strip()):
            raise ValueError(f"entry {number} is not of the form address=key")
        if address in found:
            raise ValueError(f"entry {number}: its address is there twice")
        found[address] = key.strip()
    return found
