"""One version, said alike everywhere; licences that travel with what is shipped."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coserve.cli import app
from coserve.setup.engine_link import ENTRY_POINTS, version_of, write_metadata
from gateway.observability.metrics import Metrics

ROOT = Path(__file__).parents[2]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
VENDOR = ROOT / "gateway/dashboard/static/vendor"


def test_the_package_and_its_command_say_the_same_version() -> None:
    assert distribution("coserve").version == VERSION
    assert CliRunner().invoke(app, ["--version"]).stdout == f"coserve {VERSION}\n"


def test_metrics_say_the_same_version() -> None:
    assert f'coserve_build_info{{version="{VERSION}"}} 1.0' in Metrics().exposition().decode()


def test_the_engine_environment_knows_one_version_of_us(tmp_path: Path) -> None:
    assert version_of(ROOT) == VERSION
    for version in ("0.0.1", VERSION):
        write_metadata(tmp_path, version, ENTRY_POINTS)
    assert [found.name for found in tmp_path.glob("*.dist-info")] == [
        f"coserve_engine-{VERSION}.dist-info"
    ]


def test_the_images_and_the_changelog_name_the_version() -> None:
    tags = re.findall(r"image: coserve/\w+:(\S+)", (ROOT / "docker-compose.yml").read_text())
    assert set(tags) == {VERSION}
    assert f"## [{VERSION}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_notice_lists_every_vendored_file_with_its_version() -> None:
    notice = (ROOT / "NOTICE").read_text()
    rows = re.findall(
        r"^\| (\S+) \| (\S+) \| ([\d.]+) \|", (VENDOR / "VENDOR.md").read_text(), re.M
    )
    files = {path.name for path in VENDOR.iterdir() if path.suffix in (".js", ".css", ".woff2")}
    assert {name for name, _, _ in rows} == files
    for name, package, version in rows:
        assert name in notice
        assert f"{package} {version}" in notice


def test_the_licence_is_the_one_that_is_declared() -> None:
    text = (ROOT / "LICENSE").read_bytes()
    digest = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    assert hashlib.sha256(text).hexdigest() == digest
    assert distribution("coserve").metadata["License-Expression"] == "Apache-2.0"


@pytest.mark.parametrize(
    "name", ["LICENSE", "NOTICE", "htmx.txt", "pico.txt", "uplot.txt", "inter.txt"]
)
def test_licence_files_are_installed_with_the_package(name: str) -> None:
    shipped = distribution("coserve").metadata.get_all("License-File") or []
    assert name in {Path(path).name for path in shipped}


def test_a_built_wheel_has_licences_assets_and_typing_marks(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.split("\0")
    for name in filter(None, listed):
        if not name.startswith(("tests/", "docs/", "bench/")) and (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
    code = "import sys; from setuptools import build_meta as b; print(b.build_wheel(sys.argv[1]))"
    subprocess.run(
        [ROOT / ".venv/bin/python", "-c", code, tmp_path], cwd=tree, check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"coserve-{VERSION}-")
    names = zipfile.ZipFile(wheel).namelist()
    licences = f"coserve-{VERSION}.dist-info/licenses"
    wanted = [f"{licences}/LICENSE", f"{licences}/NOTICE"]
    wanted += [
        f"gateway/dashboard/static/vendor/{path.relative_to(VENDOR)}"
        for path in VENDOR.rglob("*")
        if path.is_file()
    ]
    packages = (
        "api",
        "service",
        "coserve",
        "gateway",
        "batch",
        "store",
        "engine_adapter",
        "migrations",
    )
    ours = tuple(f"{name}/" for name in (*packages, "kernels/coserve_kernels"))
    # A file that a package reads and the wheel lacks is missed by strangers alone.
    wanted += [name.removeprefix("kernels/") for name in listed if name.startswith(ours)]
    assert sorted(set(wanted) - set(names)) == []
