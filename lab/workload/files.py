"""Workload files by path, or by name where they lie beside the checkout."""

from __future__ import annotations

from pathlib import Path

WORKLOADS = Path(__file__).parents[3] / "shared" / "workloads"


def find_workload(name: str | None, kind: str) -> Path | None:
    """A workload file by path or by name.

    Args:
        name: A path, or a file's name with or without ``.csv``; None finds nothing.
        kind: ``"online"`` for traces, ``"lengths"`` for lengths of offline requests.

    Raises:
        ValueError: If there is no such file; the message says where it was looked for.
    """
    if name is None:
        return None
    for path in (Path(name), WORKLOADS / kind / name, WORKLOADS / kind / f"{name}.csv"):
        if path.is_file():
            return path
    raise ValueError(
        f"no workload {name!r}: neither a file nor in {WORKLOADS / kind}; without one, arrivals "
        "are generated (--rate, --cv, --on-off) and lengths are fixed"
    )
