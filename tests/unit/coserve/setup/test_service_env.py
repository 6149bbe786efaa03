"""The service's environment is made once, and again when something that decides it changes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from coserve.setup.progress import SetupFailed
from coserve.setup.service_env import set_up_service

# An installer that only remembers what it was asked for, and makes what `uv venv` makes.
FAKE_UV = f"""#!/bin/sh
if [ "$1" = --version ]; then echo "uv 9.9.9"; exit 0; fi
echo "$@" >> "$FAKE_UV_LOG"
case "$1" in
venv) mkdir -p .venv/bin; ln -sf "{sys.executable}" .venv/bin/python ;;
pip) exit "${{FAKE_UV_PIP_STATUS:-0}}" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "uv").write_text(FAKE_UV)
    (tools / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_UV_LOG", str(tmp_path / "asked"))
    made = tmp_path / "checkout"
    (made / "requirements").mkdir(parents=True)
    (made / "requirements/service.txt").write_text("fastapi==1\n")
    (made / "requirements/dev.txt").write_text("fastapi==1\npytest==1\n")
    (made / "pyproject.toml").write_text("[project]\n")
    monkeypatch.chdir(made)
    return made


def asked(checkout: Path) -> list[str]:
    """What the installer did since the last look: `venv`, `sync FILE`, `install`."""
    log = checkout.parent / "asked"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    done = []
    for words in (line.split() for line in lines):
        if words[0] == "venv":
            done.append("venv")
        elif words[1] == "sync":
            assert "--require-hashes" in words
            done.append(f"sync {Path(words[-1]).name}")
        else:
            assert "--no-deps" in words
            done.append("install")
    return done


def test_everything_is_done_once(checkout: Path) -> None:
    python = set_up_service(checkout, dev=False)
    assert python.exists()
    assert asked(checkout) == ["venv", "sync service.txt", "install"]
    set_up_service(checkout, dev=False)
    assert asked(checkout) == []


def test_the_tests_tools_are_added_and_stay(checkout: Path) -> None:
    set_up_service(checkout, dev=False)
    asked(checkout)
    set_up_service(checkout, dev=True)
    assert asked(checkout) == ["sync dev.txt", "install"]
    set_up_service(checkout, dev=False)
    assert asked(checkout) == []


def test_a_new_lock_is_followed(checkout: Path) -> None:
    set_up_service(checkout, dev=True)
    asked(checkout)
    (checkout / "requirements/dev.txt").write_text("fastapi==2\npytest==1\n")
    set_up_service(checkout, dev=False)  # does not take the tests' tools away
    assert asked(checkout) == ["sync dev.txt", "install"]


def test_a_new_package_definition_is_followed_without_a_sync(checkout: Path) -> None:
    set_up_service(checkout, dev=False)
    asked(checkout)
    (checkout / "pyproject.toml").write_text("[project]\nname='x'\n")
    set_up_service(checkout, dev=False)
    assert asked(checkout) == ["install"]


def test_an_environment_whose_python_is_gone_is_made_again(checkout: Path) -> None:
    python = set_up_service(checkout, dev=False)
    asked(checkout)
    python.unlink()
    set_up_service(checkout, dev=False)
    assert asked(checkout) == ["venv", "sync service.txt", "install"]


def test_a_failure_is_one_sentence_and_is_tried_again(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_UV_PIP_STATUS", "1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(SetupFailed, match="could not be installed"):
        set_up_service(checkout, dev=False)
    asked(checkout)
    monkeypatch.delenv("FAKE_UV_PIP_STATUS")
    set_up_service(checkout, dev=False)
    assert asked(checkout) == ["sync service.txt", "install"]
