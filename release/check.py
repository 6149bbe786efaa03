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
from release.build import ROOT, build, build_from
from release.trial import install, new_user, stranger

CHART: Final = ROOT / "deploy" / "helm" / "coserve"


def pack_chart(to: Path) -> Path:
    """Check the chart, and make its archive."""
    helm = helm_program(ROOT)
    subprocess.run([helm, "lint", "--strict", CHART, "--set", "existingSecret=s"], check=True)
    subprocess.run([helm, "package", CHART, "--destination", to], check=True)
    return to / f"coserve-{version_of(ROOT)}.tgz"


def pack_site(wheel: Path, to: Path) -> Path:
    """Make an archive of the site that the wheel holds."""
    archive = to / f"coserve-site-{version_of(ROOT)}.tar.gz"
    with tempfile.TemporaryDirectory() as work:
        shutil.unpack_archive(wheel, work, "zip")
        with tarfile.open(archive, "w:gz") as file:
            file.add(Path(work) / "coserve" / "site", "site")
    return archive


def try_source(source: Path) -> None:
    """Build a wheel from the source distribution alone."""
    with tempfile.TemporaryDirectory() as work:
        shutil.unpack_archive(source, work)
        (tree,) = Path(work).iterdir()
        build_from(tree, "wheel", Path(work))


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


def try_images(version: str) -> list[str]:
    """Build and run both images, and name them; none where that is not possible here."""
    if not shutil.which("podman") or os.geteuid() != 0:
        show("images", "not built: they need podman, and root")
        return []
    subprocess.run([sys.executable, "-m", "tests.images", "--engine", "fake"], check=True)
    return [f"coserve/{name}:{version}" for name in ("service", "engine")]


def show(what: str, line: str) -> None:
    print(f"{what:12} {line}", flush=True)  # noqa: T201 - the command's answer


def main() -> None:
    """Build and try everything; a trial that fails ends it by its exception."""
    to, version = ROOT / "dist", version_of(ROOT)
    wheel = build(to)
    (source,) = to.glob("coserve-*.tar.gz")
    try_source(source)
    archives = [wheel, source, pack_chart(to), pack_site(wheel, to)]
    show("as this user", try_wheel(wheel))
    if os.geteuid() == 0:
        with new_user() as user:
            show("as a user", try_wheel(wheel, user))
    images = try_images(version)
    show("would be", f"published as {version}:")
    for one in archives:
        digest = hashlib.sha256(one.read_bytes()).hexdigest()
        show("", f"{one.relative_to(ROOT)}  {one.stat().st_size / 1e6:.1f} MB  sha256 {digest}")
    for name in images:
        show("", name)
    show("notes", "\n" + notes(version))


if __name__ == "__main__":
    main()
