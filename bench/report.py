"""How a benchmark says what it measured, and on what."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from engine_adapter.host_cpu import cpu_name, matmul_dtype

RESULTS = Path(__file__).parent / "results"


def environment() -> dict[str, Any]:
    """Where figures come from; names no machine."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "num_cpus": os.cpu_count(),
        "cpu_engine_dtype": matmul_dtype(),
        "load_1min": round(os.getloadavg()[0], 2),
        "packages": {name: version(name) for name in ("fastapi", "uvicorn", "orjson", "psycopg")},
        "commit": _commit(),
    }


def report(name: str, measured: dict[str, Any], targets: dict[str, tuple[float, bool]]) -> bool:
    """Print figures beside their targets and write `bench/results/NAME.json`.

    Args:
        name: The benchmark.
        measured: Figures by name, units in the names.
        targets: For some of them: the limit, and whether more is better.

    Returns:
        Whether every target was met.
    """
    met = True
    for figure, value in measured.items():
        line = f"  {figure}: {value:,.4g}" if isinstance(value, float) else f"  {figure}: {value}"
        if figure in targets:
            limit, more_is_better = targets[figure]
            good = value >= limit if more_is_better else value <= limit
            met = met and good
            line += f"  (target {'>=' if more_is_better else '<='} {limit:g}: "
            line += "met)" if good else "MISSED)"
        print(line)
    RESULTS.mkdir(exist_ok=True)
    body = {
        "name": name,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),  # noqa: TID251
        "environment": environment(),
        "measured": measured,
        "targets": {figure: limit for figure, (limit, _) in targets.items()},
        "targets_met": met,
    }
    path = RESULTS / f"{name}.json"
    path.write_bytes(orjson.dumps(body, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")
    return met


def run(
    name: str,
    measure: Callable[[Path], dict[str, Any]],
    targets: dict[str, tuple[float, bool]],
    *,
    whole: bool,
) -> int:
    """Measure in a folder that is removed, and report; a run that is not whole only prints.

    Returns:
        The exit code: 1 where a target was missed.
    """
    with tempfile.TemporaryDirectory(prefix="csb-", ignore_cleanup_errors=True) as folder:
        measured = measure(Path(folder))
    if not whole:
        print(measured)
        return 0
    return 0 if report(name, measured, targets) else 1


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        cwd=RESULTS.parent,
        check=False,
    )
    return found.stdout.strip()
