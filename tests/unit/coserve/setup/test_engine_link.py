"""Our packages are linked into an engine environment without an installer."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu.bundle import OUR_PACKAGES
from coserve.setup.engine_link import LINKS, START_UP_HOOK, is_for_cpu, link_packages

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
        "import sys, sgl_kernel, engine_adapter, api, service, lab, coserve_kernels\n"
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


def imported_by(file: Path) -> set[Path]:
    """Files of ours that a file imports, at its top or inside a function."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for place in (ROOT / name.replace(".", "/") for name in names):
            found.update(
                p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()
            )
    return found


def test_all_that_a_plugin_imports_is_linked_copied_and_bundled() -> None:
    waiting = {
        file
        for folder in ("sglang", "cpu_compat")
        for file in (ROOT / "engine_adapter" / folder).rglob("*.py")
    }
    seen: set[Path] = set()
    while waiting:
        file = waiting.pop()
        seen.add(file)
        waiting |= imported_by(file) - seen
    needed = {file.relative_to(ROOT).parts[0] for file in seen}
    assert needed >= {"engine_adapter", "api"}
    assert needed - LINKS.keys() == set()
    copied = (ROOT / "docker/engine.Dockerfile").read_text()
    assert [name for name in needed if f"COPY {name} {name}\n" not in copied] == []
    assert needed - set(OUR_PACKAGES) == set()


def test_an_environment_knows_what_it_was_made_for(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    link_packages(python, ROOT, cpu=False)
    assert not is_for_cpu(python)
    link_packages(python, ROOT, cpu=True)
    assert is_for_cpu(python)
