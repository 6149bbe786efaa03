"""Digests of the source of what is replaced in SGLang: a changed text means, read it again."""

from __future__ import annotations

import hashlib
import inspect
import pkgutil
from collections.abc import Mapping


def changed_sources(digests: Mapping[str, str]) -> list[str]:
    """One sentence for each function whose source is not the one that was read.

    Args:
        digests: First 16 hex digits of SHA-256 over a function's source, by its dotted name.

    Raises:
        ImportError: A function's module is not there.
        AttributeError: A function is not there.
    """
    return [
        f"the source of {symbol} changed ({found}): read it again"
        for symbol, digest in digests.items()
        if (found := source_digest(symbol)) != digest
    ]


def source_digest(symbol: str) -> str:
    """Digest of a function's source text."""
    text = inspect.getsource(inspect.unwrap(pkgutil.resolve_name(symbol)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
