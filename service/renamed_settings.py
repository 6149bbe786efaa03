"""Settings that were renamed, and the answer to an old name.

A start with an old name is refused: a setting that is ignored in silence would be worse. Standard
library only, because engines refuse old names too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

RENAMED: Final = {
    "COSERVE_BODIES_LIMIT_BYTES": "COSERVE_BODY_MEMORY_BYTES",
    "COSERVE_FIRST_TOKEN_SHARE": "COSERVE_TTFT_PLANNING_SHARE",
    "COSERVE_RETRY_LOST": "COSERVE_RETRY_ON_ENGINE_LOSS",
    "COSERVE_STALE_KEYS_S": "COSERVE_KEY_GRACE_S",
}
"""Old name: new name. An entry may go two releases after its change."""


def old_names(names: Iterable[str]) -> dict[str, str]:
    """The sentence for each name that is an old one."""
    return {
        name: f"{name} is now called {RENAMED[name]}." for name in sorted(names) if name in RENAMED
    }
