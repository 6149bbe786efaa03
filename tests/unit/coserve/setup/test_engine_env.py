"""The engine's environment is built once and again only when its recipe changes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from coserve.setup import engine_env
from coserve.setup.engine_env import (
    default_sglang,
    engine_python,
    has_cuda,
    known_sglangs,
    list_of,
    recipe,
    set_up_engine,
)
from coserve.setup.engine_link import START_UP_HOOK, link_packages, site_packages
from coserve.setup.progress import SetupFailed

ROOT = Path(__file__).parents[4]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy with what the step reads, and an environment that was built before."""
    monkeypatch.setenv("COSERVE_DEVICE", "cpu")
    monkeypatch.delenv("COSERVE_SGLANG", raising=False)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    for name in ("engine_adapter", "kernels", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    venv = tmp_path / ".venv-engine"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (venv / "coserve-stamp").write_text(recipe(tmp_path, cpu=True))
    return tmp_path


def test_a_second_run_installs_nothing(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert set_up_engine(checkout) == engine_python(checkout)
    assert capsys.readouterr().out.strip() == "engine environment: ready (.venv-engine)"


def test_another_release_has_an_environment_and_lists_of_its_own(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default, before = default_sglang(checkout), recipe(checkout, cpu=True)
    monkeypatch.setenv("COSERVE_SGLANG", default)
    assert engine_python(checkout).parents[1].name == ".venv-engine"
    assert recipe(checkout, cpu=True) == before
    for release in set(known_sglangs(checkout)) - {default}:
        monkeypatch.setenv("COSERVE_SGLANG", release)
        assert engine_python(checkout).parents[1].name == f".venv-engine-{release}"
        for cpu, name in ((True, "engine-cpu.txt"), (False, "engine-cuda.in")):
            assert f"sglang=={release}" in list_of(checkout, name).read_text()
            assert recipe(checkout, cpu=cpu) != before


def test_a_release_without_a_list_is_one_sentence(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSERVE_SGLANG", "0.4.2")
    with pytest.raises(SetupFailed, match=r"COSERVE_SGLANG is '0\.4\.2'; give 0\.5\.16 or "):
        set_up_engine(checkout)


@pytest.mark.parametrize("name", ["engine-cpu.txt"])
def test_a_changed_list_is_another_recipe(checkout: Path, name: str) -> None:
    before = recipe(checkout, cpu=True)
    with (checkout / "requirements" / name).open("a") as listed:
        listed.write("one-more==1.0\n")
    assert recipe(checkout, cpu=True) != before


def test_an_index_for_torch_is_another_recipe(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = recipe(checkout, cpu=True)
    monkeypatch.setenv("COSERVE_TORCH_INDEX", "file:///wheels")
    assert recipe(checkout, cpu=True) != before
    assert recipe(checkout, cpu=False) == recipe(checkout, cpu=False)


def test_cpu_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSERVE_DEVICE", "cpu")
    assert not has_cuda()


def test_every_frozen_package_has_a_hash() -> None:
    frozen = [one.name for one in (ROOT / "requirements").glob("engine-cpu*.txt")]
    for name in (*frozen, "model-convert.txt"):
        lines = (ROOT / "requirements" / name).read_text().splitlines()
        pins = [line for line in lines if "==" in line and not line.startswith("#")]
        assert pins
        assert all(line.endswith("\\") for line in pins), name
        assert not any(line.startswith(("torch==", "--")) for line in lines)


@pytest.mark.parametrize("name", ["engine-cuda.txt", "engine-cuda-0.5.16.txt"])
def test_the_list_for_cuda_has_hashes_and_passes_over_no_machine(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    pins = [line for line in text.splitlines() if "==" in line and not line.startswith("#")]
    assert all(line.endswith("\\") for line in pins)
    for name in ("torch==", "sglang==", "sglang-kernel=="):
        assert any(line.startswith(name) for line in pins)
    assert "platform_machine" not in text, "elsewhere pip would install nothing, and say so softly"


def test_a_gpu_that_is_there_later_changes_no_file_of_the_checkout(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip once wrote the real kernels through the stand-in's link, over a tracked file."""
    link_packages(engine_python(checkout), checkout, cpu=True)
    wheel = checkout / "sgl_kernel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("sgl_kernel/__init__.py", "REAL = True\n")
        info = "sgl_kernel-1.0.dist-info"
        made.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: sgl-kernel\nVersion: 1.0\n")
        made.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        made.writestr(f"{info}/RECORD", "")
    (checkout / "requirements/engine-cuda.in").write_text(f"{wheel}\n")
    stand_in = (ROOT / "engine_adapter/cpu_compat/sgl_kernel/__init__.py").read_bytes()
    monkeypatch.setattr(engine_env, "has_cuda", lambda: True)
    python = set_up_engine(checkout)
    assert (ROOT / "engine_adapter/cpu_compat/sgl_kernel/__init__.py").read_bytes() == stand_in
    site = site_packages(python)
    assert (site / "sgl_kernel/__init__.py").read_text() == "REAL = True\n"
    assert not (site / START_UP_HOOK).exists()
