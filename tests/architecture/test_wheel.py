"""The built wheel holds what it needs to run in any folder, and runs there without a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

from coserve.setup.engine_link import LINKS, link_packages
from release.build import ROOT, build


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel; the source distribution lies beside it."""
    return build(tmp_path_factory.mktemp("dist"), site=False)


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files as an installer lays them out, where no checkout is near."""
    site = tmp_path_factory.mktemp("site-packages")
    with zipfile.ZipFile(built) as wheel:
        wheel.extractall(site)
    return site


def run(
    installed: Path, home: Path, *argv: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    """`coserve` out of the wheel, with the libraries of this environment and an empty home."""
    # The finder of an editable installation would otherwise offer the checkout.
    code = (
        "import sys; sys.argv[0] = 'coserve'; sys.path.insert(0, sys.argv.pop(1)); "
        "from coserve.cli import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-P", "-c", code, str(installed), *argv],
        cwd=home,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_holds_the_lists_that_the_product_installs_and_no_other(installed: Path) -> None:
    held = {found.name for found in (installed / "requirements").iterdir()}
    assert {"engine-cpu.txt", "engine-cuda.in", "model-convert.txt", "uv.txt"} <= held
    assert not any(name.startswith(("dev", "bench", "conformance")) for name in held)


def test_it_holds_migrations_and_kernels_and_nothing_of_a_checkout(installed: Path) -> None:
    migrations = {found.name for found in (ROOT / "migrations/versions").glob("*.py")}
    assert {found.name for found in (installed / "migrations/versions").glob("*.py")} == migrations
    for read in (ROOT / "migrations").glob("*.*"):
        assert (installed / "migrations" / read.name).is_file(), read.name
    kernels = {found.name for found in (ROOT / "kernels/coserve_kernels").glob("*.py")}
    assert {found.name for found in (installed / "coserve_kernels").glob("*.py")} == kernels
    folders = {found.name for found in installed.iterdir()}
    assert not folders & {"tests", "bench", "lab", "release", "docs", "kernels"}


def test_every_package_of_ours_is_in_it(installed: Path) -> None:
    for name in ("api", "batch", "coserve", "engine_adapter", "gateway", "service", "store"):
        ours = {found.relative_to(ROOT) for found in (ROOT / name).rglob("*.py")}
        held = {found.relative_to(installed) for found in (installed / name).rglob("*.py")}
        assert ours - held == set()


def test_sglang_finds_the_plugin_in_its_metadata(installed: Path) -> None:
    (file,) = installed.glob("coserve-*.dist-info/entry_points.txt")
    found = ConfigParser()
    found.read(file)
    assert found["sglang.srt.plugins"]["coserve"] == "engine_adapter.sglang.plugin:register"


def test_an_engine_environment_is_linked_to_what_is_installed(
    installed: Path, tmp_path: Path
) -> None:
    venv = tmp_path / "engine"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    site = link_packages(venv / "bin/python", installed, cpu=True)
    for name in (*LINKS, "sgl_kernel"):
        assert (site / name).is_symlink(), name
        assert (site / name / "__init__.py").is_file(), name
    assert not (site / "lab").exists()


def test_it_keeps_its_state_in_the_users_data_folder(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "doctor", ENGINE_URLS="http://127.0.0.1:1")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.glob(".coserve")) == []
    chat = run(installed, tmp_path, "chat", "hello")
    assert ".local/share/coserve/state/admin-key" in " ".join(chat.stderr.split())


def test_an_engine_of_another_version_is_refused(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "engine", "install", "--sglang", "0.1.0")
    assert done.returncode == 2
    assert "SGLang 0.1.0 is not supported" in done.stderr
    assert list(tmp_path.iterdir()) == [], "nothing was installed"


def test_the_source_distribution_builds_the_same(built: Path) -> None:
    (archive,) = built.parent.glob("coserve-*.tar.gz")
    assert archive.stat().st_size > 100_000
