from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from coserve.setup.conformance import conformance_python, conformance_tools, set_up_conformance

ROOT = Path(__file__).parents[4]
LOCKS = (
    "requirements/conformance.txt",
    "requirements/openai-sdist.txt",
    "tests/conformance/node/package-lock.json",
    "requirements/autobatcher.txt",
)


def test_nothing_is_done_where_the_locks_are_as_they_were(tmp_path: Path) -> None:
    for lock in LOCKS:
        (tmp_path / lock).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / lock).write_text(lock)
    python = conformance_python(tmp_path)
    python.parent.mkdir(parents=True)
    python.touch()
    tools = conformance_tools(tmp_path)
    tools.mkdir(parents=True)
    stamp = hashlib.sha256("".join(LOCKS).encode()).hexdigest()
    (tools / "coserve-stamp").write_text(stamp)
    (tools / "kept").touch()
    set_up_conformance(tmp_path)
    assert (tools / "kept").exists()


def test_every_node_package_is_pinned_by_hash_and_names_no_registry() -> None:
    lock = (ROOT / LOCKS[2]).read_text()
    packages = json.loads(lock)["packages"]
    wanted = json.loads((ROOT / "tests/conformance/node/package.json").read_text())["dependencies"]
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
