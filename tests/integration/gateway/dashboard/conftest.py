from __future__ import annotations

from tests.fixtures.dashboard import site

__all__ = ["site"]
