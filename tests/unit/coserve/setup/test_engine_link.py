"""Our packages are linked into an engine environment without an installer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coserve.setup.engine_link import START_UP_HOOK, link_packages

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an empty environment."""
    venv = tmp_path_factory.mktemp("env") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    return venv / "bin" / "python"


def said(python: Path, code: str) -> str:
    done = subprocess.run(
        [python, "-P", "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    return done.stdout.strip()


def test_a_cpu_environment_gets_packages_hook_and_all_plugins(python: Path) -> None:
    link_packages(python, ROOT, cpu=True)
    link_packages(python, ROOT, cpu=True)  # a second run changes nothing
    names = said(
        python,
        "from importlib.metadata import entry_points\n"
        "print(sorted(e.name for e in entry_points(group='sglang.srt.plugins')))",
    )
    assert names == "['coserve', 'coserve_cpu', 'coserve_emulated']"
    loaded = said(
        python,
        "import sys, sgl_kernel, engine_adapter, service, lab, coserve_kernels\n"
        "print(sorted({'torch', 'sglang', 'pydantic', 'gateway', 'kernels'} & set(sys.modules)))\n"
        "print('engine_adapter.cpu_compat.startup' in sys.modules)",
    )
    assert loaded == "[]\nTrue"


def test_the_checkout_itself_is_not_importable(python: Path) -> None:
    link_packages(python, ROOT, cpu=True)
    code = "import importlib.util as u; print([u.find_spec(n) for n in ('kernels', 'gateway')])"
    assert said(python, code) == "[None, None]"


def test_a_cuda_environment_gets_neither_stand_in_nor_hook(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    site = link_packages(venv / "bin" / "python", ROOT, cpu=False)
    assert not (site / "sgl_kernel").exists()
    assert not (site / START_UP_HOOK).exists()
    metadata = next(site.glob("coserve_engine-*.dist-info"))
    assert "coserve_cpu" not in (metadata / "entry_points.txt").read_text()


def test_something_else_under_our_name_is_not_overwritten(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    site = link_packages(venv / "bin" / "python", ROOT, cpu=False)
    (site / "engine_adapter").unlink()
    (site / "engine_adapter").mkdir()
    with pytest.raises(SystemExit, match="is in the way"):
        link_packages(venv / "bin" / "python", ROOT, cpu=False)
