"""What every benchmark shares: options, a folder, targets, and how figures are printed and kept.

    options = option_parser(__doc__).parse_args()
    with scratch_folder() as folder:
        measured = measure(folder)
    return report("name", measured, {"p99_ms": at_most(50.0)})

So ends the `main` of each of them; what it returns is the exit status.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from bench.paths import RESULTS, ROOT
from engine_adapter.host_cpu import cpu_name, matmul_dtype


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should be; made by :func:`at_most` and :func:`at_least`."""

    limit: float
    more_is_better: bool

    def is_met(self, value: float) -> bool:
        """Whether a figure is on the right side of the limit, or at it."""
        return value >= self.limit if self.more_is_better else value <= self.limit

    def __str__(self) -> str:
        return f"{'>=' if self.more_is_better else '<='} {self.limit:g}"


def at_most(limit: float) -> Target:
    """A figure of which less is better."""
    return Target(limit, more_is_better=False)


def at_least(limit: float) -> Target:
    """A figure of which more is better."""
    return Target(limit, more_is_better=True)


def option_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the benchmark's docstring, as it stands."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that lives as long as the block; any user may pass through it, as Postgres' does."""
    with tempfile.TemporaryDirectory(prefix="csb-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def at_share(values: Iterable[float], share: float) -> float:
    """The order statistic at this share of the values; nothing is interpolated.

    Raises:
        IndexError: If there is no value.
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def jain(shares: Iterable[float]) -> float:
    """Jain's index of fairness: 1 where all are equal, 1/n where one has all, 0 for nothing."""
    given = list(shares)
    squares = len(given) * sum(share * share for share in given)
    return sum(given) ** 2 / squares if squares else 0.0


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


def report(
    name: str,
    measured: Mapping[str, Any],
    targets: Mapping[str, Target] | None = None,
    *,
    keep: bool = True,
) -> int:
    """Print figures beside their targets and write `bench/results/NAME.json`.

    Args:
        name: The benchmark.
        measured: Figures by name, units in the names.
        targets: For some of them; those of figures that were not measured do not count.
        keep: Whether to write; a run that is smaller than the one that is quoted only prints.

    Returns:
        The exit status: 1 where a target was missed by a run that is kept.
    """
    targets = targets or {}
    met = True
    for figure, value in measured.items():
        line = f"  {figure}: {value:,.4g}" if isinstance(value, float) else f"  {figure}: {value}"
        if figure in targets:
            good = targets[figure].is_met(value)
            met = met and good
            line += f"  (target {targets[figure]}: {'met' if good else 'MISSED'})"
        print(line)
    if not keep:
        return 0
    body = {
        "name": name,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),  # noqa: TID251
        "environment": environment(),
        "measured": measured,
        "targets": {figure: target.limit for figure, target in targets.items()},
        "targets_met": met,
    }
    path = RESULTS / f"{name}.json"
    path.write_bytes(orjson.dumps(body, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")
    return 0 if met else 1


def write_cells(path: Path, cells: object) -> None:
    """Write the cells of a table that is filled in several runs; so they are read again."""
    path.write_text(json.dumps(cells, indent=1) + "\n")


def between(text: str, begin: str, end: str, made: str) -> str:
    """A page with what stands between two markers written anew."""
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n\n{made}\n{end}{rest.partition(end)[2]}"


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    return found.stdout.strip()
