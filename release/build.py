"""`python -m release.build [FOLDER]`: the wheel with the site in it, and the source distribution.

Both are built from a copy of the files that git knows or would add, so that nothing else that lies
in a checkout is ever published.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_BUILD = "import sys; from setuptools import build_meta as b; b.build_{}(sys.argv[1])"


def copy_tree(to: Path) -> None:
    """Copy what git tracks, or would, to an empty folder."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def build_site(tree: Path) -> None:
    """Build the pages of `tree` into its package, where `coserve docs` finds them."""
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    argv = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", "coserve/site"]
    subprocess.run(argv, cwd=tree, env=env, check=True)


def build_from(tree: Path, kind: str, to: Path) -> None:
    """Build a `wheel` or an `sdist` out of a folder of sources.

    Raises:
        CalledProcessError: It cannot be built.
    """
    argv = [sys.executable, "-c", _BUILD.format(kind), str(to.absolute())]
    subprocess.run(argv, cwd=tree, check=True, capture_output=True)


def build(to: Path, *, site: bool = True) -> Path:
    """Build both into `to`.

    Args:
        to: Where they go; older ones there are removed.
        site: With the pages; without them it takes seconds.

    Returns:
        The wheel.
    """
    to.mkdir(parents=True, exist_ok=True)
    for old in (*to.glob("coserve-*.whl"), *to.glob("coserve-*.tar.gz")):
        old.unlink()
    with tempfile.TemporaryDirectory() as work:
        tree = Path(work) / "tree"
        copy_tree(tree)
        if site:
            build_site(tree)
        build_from(tree, "wheel", to)
        build_from(tree, "sdist", to)
    (wheel,) = to.glob("coserve-*.whl")
    return wheel


def main() -> None:
    to = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "dist"
    build(to)
    for made in sorted(to.iterdir()):
        print(f"{made}  {made.stat().st_size / 1e6:.1f} MB")  # noqa: T201 - the command's answer


if __name__ == "__main__":
    main()
