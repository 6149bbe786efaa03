"""Files that a process makes outside its folder and never removes.

Which of them are its own is read from what its processes hold open: another engine on this host
has files of the same form. Standard library only, for the shim.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


class Leftovers:
    """The files whose names begin in one way, as far as they were seen open.

    Args:
        prefix: Of their whole path; empty for none.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._seen: set[Path] = set()

    @property
    def sought(self) -> bool:
        """Whether there are such files, and none has been seen yet."""
        return bool(self._prefix) and not self._seen

    def note(self, pids: Iterable[int]) -> None:
        """See what these processes hold open; what they have closed by then is not seen."""
        if not self._prefix:
            return
        for pid in pids:
            with suppress(OSError):  # it has ended
                for link in Path(f"/proc/{pid}/fd").iterdir():
                    with suppress(OSError):
                        target = str(link.readlink())
                        if target.startswith(self._prefix):
                            self._seen.add(Path(target))

    def remove(self) -> None:
        """Remove what was seen; its processes have ended."""
        for path in self._seen:
            with suppress(OSError):
                path.unlink()
