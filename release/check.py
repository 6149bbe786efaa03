"""`make release-check`: everything that would be published, built and tried; nothing is sent.

| part | built by | tried by |
| --- | --- | --- |
| wheel, with the site | `release.build` | a stranger's first minutes, then without a network |
| source distribution | `release.build` | a wheel is built from it |
| chart | Helm | `helm lint --strict` |
| images | podman, where it is there | `make images` |
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from coserve.setup.engine_link import version_of
from coserve.setup.tools import helm_program
from release.build import ROOT, build
from release.trial import install, new_user, stranger

CHART: Final = ROOT / "deploy" / "helm" / "coserve"


def chart(to: Path) -> Path:
    """The chart as an archive."""
    helm = helm_program(ROOT)
    subprocess.run([helm, "lint", "--strict", CHART, "--set", "existingSecret=s"], check=True)
    subprocess.run([helm, "package", CHART, "--destination", to], check=True)
    return to / f"coserve-{version_of(ROOT)}.tgz"


def site(wheel: Path, to: Path) -> Path:
    """The site that the wheel holds, as an archive."""
    archive = to / f"coserve-site-{version_of(ROOT)}.tar.gz"
    with tempfile.TemporaryDirectory() as work:
        shutil.unpack_archive(wheel, work, "zip")
        with tarfile.open(archive, "w:gz") as file:
            file.add(Path(work) / "coserve" / "site", "site")
    return archive


def again(source: Path) -> None:
    """Build a wheel from the source distribution alone."""
    with tempfile.TemporaryDirectory() as work:
        shutil.unpack_archive(source, work)
        (tree,) = Path(work).iterdir()
        code = "import sys; from setuptools import build_meta as b; b.build_wheel(sys.argv[1])"
        subprocess.run(
            [sys.executable, "-c", code, work], cwd=tree, check=True, capture_output=True
        )


def try_wheel(wheel: Path, user: str = "") -> str:
    """A stranger's first minutes, twice; the second time without a network where that can be."""
    with stranger(user) as who:
        install(who, wheel)
        said = who.run("coserve", "--version").strip()
        title = re.search(r"<title>(.*?)</title>", who.pages())
        with_network = who.first_minutes().split("\n")[0]
        network = os.geteuid() != 0
        who.first_minutes(network=network)
        second = "again" if network else "again without a network"
    shown = title[1] if title else "no title"
    return f"{said}; pages: {shown}; chat: {with_network!r}; {second}"


def notes(version: str) -> str:
    """The section of CHANGELOG.md that goes with the release."""
    text = (ROOT / "CHANGELOG.md").read_text()
    found = re.search(rf"^## \[{re.escape(version)}\].*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    return found[0].strip() if found else "(CHANGELOG.md has no section of this version)"


def show(what: str, line: str) -> None:
    print(f"{what:12} {line}", flush=True)  # noqa: T201 - the command's answer


def main() -> int:
    """Build and try everything; 1 where a trial fails, by its exception."""
    to = ROOT / "dist"
    wheel = build(to)
    version = version_of(ROOT)
    (source,) = to.glob("coserve-*.tar.gz")
    again(source)
    made = [wheel, source, chart(to), site(wheel, to)]
    show("as this user", try_wheel(wheel))
    if os.geteuid() == 0:
        with new_user() as user:
            show("as a user", try_wheel(wheel, user))
    if shutil.which("podman") and os.geteuid() == 0:
        subprocess.run([sys.executable, "-m", "tests.images", "--engine", "fake"], check=True)
        images = [f"coserve/{name}:{version}" for name in ("service", "engine")]
    else:
        images = []
        show("images", "not built: they need podman, and root")
    show("would be", f"published as {version}:")
    for one in made:
        digest = hashlib.sha256(one.read_bytes()).hexdigest()
        show("", f"{one.relative_to(ROOT)}  {one.stat().st_size / 1e6:.1f} MB  sha256 {digest}")
    for name in images:
        show("", name)
    show("notes", "\n" + notes(version))
    return 0


if __name__ == "__main__":
    sys.exit(main())
