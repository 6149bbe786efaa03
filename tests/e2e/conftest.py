"""What tests of the whole stack can have besides."""

from __future__ import annotations

from tests.fixtures.installation import installation
from tests.fixtures.visit import visit

__all__ = ["installation", "visit"]
