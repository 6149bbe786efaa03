"""The built wheel, as strangers get it: root and a user, pip, pipx and uvx; later no network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.coserve_bench.engine_run import running_engine
from bench.coserve_bench.systems import find_system
from coserve.setup.engine_env import engine_python
from coserve.setup.engine_link import START_UP_HOOK, site_packages, write_metadata
from coserve.setup.installer import get_uv
from engine_adapter.engine_process import EngineSettings
from release.build import build
from release.trial import (
    ENTRY_POINTS,
    PYTHON,
    Stranger,
    install,
    new_user,
    plugin_alone,
    stranger,
)
from tests.fixtures.stack import DEFAULT_MODEL, ROOT

pytestmark = [pytest.mark.release, pytest.mark.timeout(1200)]
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make users and take networks")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture
def who() -> Iterator[Stranger]:
    with stranger() as one:
        yield one


def first_and_second_minutes(who: Stranger, wheel: Path) -> None:
    install(who, wheel)
    answer, rows = who.first_minutes().splitlines()[:2]
    assert "Paris" in answer
    assert rows == "3"
    data = who.home / ".local/share/coserve"
    assert (data / "state/admin-key").stat().st_mode & 0o777 == 0o600
    assert sorted(one.name for one in (who.home / "anywhere").iterdir()) == [
        "three.jsonl",
        "three.output.jsonl",
        "up.log",
    ]
    if os.geteuid() == 0:
        assert who.first_minutes(network=False).splitlines()[:2] == [answer, rows]


def test_it_starts_anywhere_and_needs_no_network_later(who: Stranger, wheel: Path) -> None:
    first_and_second_minutes(who, wheel)


@AS_ROOT
def test_a_user_of_the_host_needs_nothing_of_roots(wheel: Path) -> None:
    with new_user() as name, stranger(name) as who:
        first_and_second_minutes(who, wheel)


def test_pages_come_with_it(who: Stranger, wheel: Path) -> None:
    install(who, wheel)
    assert "<title>coserve" in who.pages()


def test_pipx_runs_it(who: Stranger, wheel: Path) -> None:
    tools = who.home / "tools"
    who.run(who.python, "-m", "venv", tools)
    who.run(tools / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "pipx")
    who.run(tools / "bin/pipx", "install", wheel)
    assert who.run(who.home / ".local/bin/coserve", "--version").startswith("coserve ")
    assert "coserve is not running" in who.run(
        "sh", "-c", "~/.local/bin/coserve status || test $? = 3"
    )


def test_uvx_runs_it(who: Stranger, wheel: Path) -> None:
    uv = get_uv(ROOT)
    asked = ("tool", "run", "--python", PYTHON, "--from", wheel, "coserve", "--version")
    assert who.run(uv, *asked).splitlines()[-1].startswith("coserve ")


async def test_the_engines_part_alone_joins_an_sglang(
    who: Stranger, wheel: Path, tmp_path: Path
) -> None:
    python = plugin_alone(who, wheel, site_packages(engine_python(ROOT)))
    assert "engine_adapter.sglang.plugin:register" in who.run(python, "-c", ENTRY_POINTS)
    site = site_packages(python)
    # What a host without CUDA needs besides: SGLang's own images have it.
    (site / "sgl_kernel").symlink_to(site / "engine_adapter/cpu_compat/sgl_kernel")
    (site / START_UP_HOOK).write_text("import engine_adapter.cpu_compat.startup\n")
    cpu = "[sglang.srt.plugins]\ncoserve_cpu = engine_adapter.cpu_compat.plugin:register\n"
    write_metadata(site, "0", cpu)
    settings = EngineSettings(python=python, model_dir=DEFAULT_MODEL, port=0)
    environment = {"COSERVE_PROFILE_DIR": str(tmp_path)}
    system = find_system("conserve-v2")
    async with running_engine(settings, system, environment, tmp_path / "engine.log") as engine:
        assert (await engine.counters())["policy"] == "conserve_v2"
