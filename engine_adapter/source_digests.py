"""Digests of the source of what is replaced in SGLang: a changed text means, read it again."""

from __future__ import annotations

import hashlib
import inspect
import pkgutil


def source_digest(symbol: str) -> str:
    """Digest of a function's source text."""
    text = inspect.getsource(inspect.unwrap(pkgutil.resolve_name(symbol)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
