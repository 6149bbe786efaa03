"""`python -m release.freeze LIST.in...`: pin the engine's lists for a CPU, with hashes.

LIST.in = what SGLang imports, resolved + lines marked "no-deps", taken as they stand
LIST.txt = all of it but torch, so complete that it is installed without dependencies
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from coserve.setup.installer import get_uv
from release.build import ROOT

NO_DEPS = "# no-deps"
_COMPILE = ("pip", "compile", "-q", "--universal", "--python-version", "3.11", "--no-header",
            "--no-annotate", "--no-emit-index-url")  # fmt: skip


def freeze(source: Path) -> Path:
    """Pin a list.

    Args:
        source: The list; its name ends in ``.in``.

    Returns:
        The pinned list beside it.

    Raises:
        subprocess.CalledProcessError: It cannot be resolved; what uv says is printed.
    """
    uv = get_uv(ROOT)
    lines = source.read_text().splitlines()
    alone = [line.split("#")[0].strip() for line in lines if NO_DEPS in line]
    with tempfile.TemporaryDirectory() as folder:
        wanted, flat = Path(folder) / "wanted.in", Path(folder) / "flat.in"
        wanted.write_text("\n".join(line for line in lines if NO_DEPS not in line) + "\n")
        compile_: list[str | Path] = [uv, *_COMPILE]
        resolved = _output([*compile_, "--no-emit-package", "torch", wanted])
        flat.write_text(resolved + "\n".join(alone) + "\n")
        pinned = _output([*compile_, "--no-deps", "--generate-hashes", flat])
    target = source.with_suffix(".txt")
    target.write_text(
        f"# Frozen from {source.name} by `make lock-engine`. Complete but for torch, so installed "
        f"without dependencies.\n{pinned}"
    )
    return target


def _output(argv: list[str | Path]) -> str:
    done = subprocess.run([str(one) for one in argv], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def main() -> None:
    for name in sys.argv[1:]:
        print(freeze(Path(name)))  # noqa: T201 - the command's answer


if __name__ == "__main__":
    main()
