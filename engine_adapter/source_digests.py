"""Digests of the source of what is replaced in SGLang: a changed text means, read it again."""

from __future__ import annotations

import hashlib
import inspect
import pkgutil


def source_digest(symbol: str) -> str:
    """Digest of a function's source text."""
    return hashlib.sha256(source_text(symbol).encode()).hexdigest()[:16]


def source_text(symbol: str) -> str:
    """The source of a function."""
    return inspect.getsource(inspect.unwrap(pkgutil.resolve_name(symbol)))
