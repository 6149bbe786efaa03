from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from coserve.setup.conformance import (
    client_environment,
    client_locks,
    conformance_python,
    conformance_tools,
    set_up_conformance,
)
from tests.conformance.clients import CLIENTS

ROOT = Path(__file__).parents[4]
LOCKS = (
    "requirements/conformance.txt",
    "requirements/openai-sdist.txt",
    "tests/conformance/node/package-lock.json",
)
OWN = ("requirements/conformance/one.txt", "requirements/conformance/two/package-lock.json")


def test_nothing_is_done_where_the_locks_are_as_they_were(tmp_path: Path) -> None:
    for lock in (*LOCKS, *OWN):
        (tmp_path / lock).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / lock).write_text(lock)
    python = conformance_python(tmp_path)
    python.parent.mkdir(parents=True)
    python.touch()
    folders = {conformance_tools(tmp_path): "".join(LOCKS)}
    for name, lock in zip(("one", "two"), OWN, strict=True):
        folders[client_environment(tmp_path, name)] = lock
    for folder, locks in folders.items():
        folder.mkdir(parents=True)
        (folder / "coserve-stamp").write_text(hashlib.sha256(locks.encode()).hexdigest())
        (folder / "kept").touch()
    set_up_conformance(tmp_path)
    assert all((folder / "kept").exists() for folder in folders)


def test_each_client_has_a_lock_and_each_lock_a_client() -> None:
    assert {client.name for client in CLIENTS} == client_locks(ROOT).keys()
    assert all(client.scenario.is_file() for client in CLIENTS)


@pytest.mark.parametrize("listed", [*(ROOT / "requirements/conformance").glob("*.in")])
def test_every_python_package_is_pinned_by_hash(listed: Path) -> None:
    lock = listed.with_suffix(".txt").read_text()
    for name in re.findall(r"^([A-Za-z][\w.-]*)", listed.read_text(), re.MULTILINE):
        assert re.search(rf"^{re.escape(name)}(\[\S+\])?==\S+ .*\\$", lock, re.MULTILINE), name
    assert lock.count("==") <= lock.count("--hash=sha256:")


@pytest.mark.parametrize(
    "lock", [ROOT / LOCKS[2], *(ROOT / "requirements/conformance").glob("*/package-lock.json")]
)
def test_every_node_package_is_pinned_by_hash_and_names_no_registry(lock: Path) -> None:
    packages = json.loads(lock.read_text())["packages"]
    wanted = json.loads(lock.with_name("package.json").read_text())["dependencies"]
    assert packages[""]["dependencies"] == wanted
    for name, package in packages.items():
        if name:
            assert package["integrity"].startswith("sha512-"), name
            assert "resolved" not in package, name


def test_the_clients_tests_are_those_of_the_installed_client() -> None:
    listed = (ROOT / LOCKS[1]).read_text()
    (pinned,) = re.findall(r"^openai==(\S+) --hash=sha256:[0-9a-f]{64}$", listed, re.MULTILINE)
    for lock in ("requirements/conformance.txt", "requirements/dev.txt"):
        assert f"\nopenai=={pinned} " in (ROOT / lock).read_text(), lock
