"""`python -m bench [NAME...]`: run benchmarks, each in a process of its own.

python -m bench                # what the service's own steps cost: `make bench`
python -m bench --list         # every benchmark and its question
python -m bench walk outage    # these, without options; `python -m bench.walk --help` has them
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from bench.paths import ENGINE_PYTHON, ROOT

SERVICE = ("upload", "validate", "batch_dispatch", "slow_clients")
IN_THE_ENGINE = ("cpu_layers", "plan_walk")
"""They run as scripts in the engine's environment."""

PARTS = ("__main__", "actuate_cost", "equal_attainment_page", "quick_engine")
"""Files that can be run and are no benchmarks: they serve one, or show what it has written."""


def questions() -> dict[str, str]:
    """Every benchmark by name, file or package, with the first line of its docstring."""
    folder = Path(__file__).parent
    files = [path for path in folder.glob("*.py") if "def main(" in path.read_text()]
    found = {path.stem: path for path in files if path.stem not in PARTS}
    found |= {
        path.parent.name: path.with_name("__init__.py") for path in folder.glob("*/__main__.py")
    }
    return {name: _first_line(path) for name, path in sorted(found.items())}


def _first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]


def main(wanted: list[str]) -> int:
    """Run the benchmarks of these names.

    Returns:
        1 where one failed or missed a target, 2 where a name is none.
    """
    known = questions()
    if wanted == ["--list"]:
        print("\n".join(f"{name:20} {question}" for name, question in known.items()))
        return 0
    unknown = set(wanted) - set(known)
    if unknown:
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
        return 2
    failed = []
    for name in wanted or SERVICE:
        print(f"== {name}", flush=True)
        in_service = [sys.executable, "-m", f"bench.{name}"]
        in_engine = [str(ENGINE_PYTHON), f"bench/{name}.py"]
        argv = in_engine if name in IN_THE_ENGINE else in_service
        if subprocess.run(argv, cwd=ROOT, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
