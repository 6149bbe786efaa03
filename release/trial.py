"""The wheel as a stranger gets it: installed into an empty environment, started in an empty folder.

    environment ──► first start, chat, batch, pages, stop ──► the same again, without a network

Everything is done with the commands of `docs/running.md`, in a new home folder, as this user or as
another one (for which root is needed).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from coserve.local.ports import free_port

START_LIMIT_S: Final = 540.0
PYTHON: Final = Path(sys.executable).resolve()
"""The interpreter behind our environment, whose folder other users may not reach."""
HOSTS_PYTHON: Final = Path("/usr/bin/python3")

ENTRY_POINTS: Final = (
    "from importlib.metadata import entry_points as e;"
    "print(*(one.value for one in e(group='sglang.srt.plugins')))"
)
FIRST_MINUTES: Final = """\
set -eu
cd "$HOME/anywhere"
coserve up >up.log 2>&1 &
up=$!
trap 'kill $up 2>/dev/null || true; wait $up || true' EXIT
until grep -q 'Ctrl-C stops' up.log; do
  kill -0 $up 2>/dev/null || { tail -n 20 up.log; exit 1; }
  sleep 0.5
done
coserve chat 'What is the capital of France? Answer in one sentence.' --temperature 0 2>/dev/null
for country in France Italy Japan; do
  printf '{"custom_id": "%s", "method": "POST", "url": "/v1/chat/completions",' "$country"
  printf ' "body": {"model": "SmolLM2-135M-Instruct", "max_tokens": 16,'
  printf ' "messages": [{"role": "user", "content": "Hi"}]}}\\n'
done >three.jsonl
coserve batch submit three.jsonl --wait >/dev/null
wc -l <three.output.jsonl
coserve stop
trap - EXIT
wait $up
"""
"""A start, an answer, the answers of three rows, a stop; prints the answer and a count."""


class TrialFailed(Exception):
    """A command of a stranger failed; the message quotes its end."""


@dataclass(frozen=True)
class Stranger:
    """Somebody with an empty home folder.

    Attributes:
        home: Their home, with a short path, since sockets lie below it.
        user: Who they are; empty: who runs this.
        path: Folders of programs that come first.
    """

    home: Path
    user: str = ""
    path: list[Path] = field(default_factory=list)

    @property
    def python(self) -> Path:
        """Our interpreter; the host's own if this user may not run ours, since it is root's."""
        try:
            self.run(PYTHON, "--version")
        except TrialFailed:
            return HOSTS_PYTHON
        return PYTHON

    @property
    def environment(self) -> dict[str, str]:
        """What they have: how packages are found here, and nothing of coserve's."""
        kept = ("PIP_", "UV_", "SSL_", "REQUESTS_", "COSERVE_TORCH_INDEX", "LANG")
        env = {name: value for name, value in os.environ.items() if name.startswith(kept)}
        path = ":".join([*map(str, self.path), "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"])
        return env | {"HOME": str(self.home), "PATH": path, "COSERVE_PORT": str(free_port())}

    def run(
        self,
        *argv: str | Path,
        network: bool = True,
        env: Mapping[str, str] | None = None,
        limit_s: float = START_LIMIT_S,
    ) -> str:
        """What a command prints.

        Args:
            argv: The command.
            network: Without one there is a loopback alone; for that root is needed.
            env: Added to their environment.
            limit_s: How long it may take.

        Raises:
            TrialFailed: It fails, or takes too long.
        """
        whole = [str(part) for part in argv]
        if self.user:
            # Some releases of runuser set HOME to the home that the user was made with.
            whole = ["runuser", "-u", self.user, "--", "env", f"HOME={self.home}", *whole]
        if not network:
            inside = 'ip link set lo up; exec "$@"'
            whole = ["unshare", "--net", "--", "sh", "-c", inside, "sh", *whole]
        with subprocess.Popen(
            whole,
            cwd=self.home,
            env=self.environment | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                said, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired as late:
                raise TrialFailed(f"{argv[0]} takes more than {limit_s:.0f} s") from late
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # what it left behind, whatever ended it
        if process.returncode:
            shown = " ".join(map(str, argv))[:200]
            raise TrialFailed("\n".join([f"{shown}:", *said.strip().splitlines()[-25:]]))
        return said

    def first_minutes(self, *, network: bool = True) -> str:
        """Start everything in a folder, chat, run a batch, stop; the answer, and how many rows."""
        (self.home / "anywhere").mkdir(exist_ok=True)
        if self.user:
            shutil.chown(self.home / "anywhere", self.user)
        return self.run("bash", "-c", FIRST_MINUTES, network=network)

    def pages(self) -> str:
        """The first page that `coserve docs` serves."""
        read = (
            "coserve docs >docs.log & page=$!; trap 'kill $page' EXIT;"
            "until grep -q http docs.log; do kill -0 $page; sleep 0.1; done;"
            "python3 -c 'import sys, urllib.request as u;"
            ' print(u.urlopen(sys.argv[1]).read().decode())\' $(cut -d" " -f1 docs.log)'
        )
        return self.run("bash", "-euc", read, limit_s=60)


@contextmanager
def stranger(user: str = "") -> Iterator[Stranger]:
    """Somebody whose home is made now and removed at the end."""
    home = Path(tempfile.mkdtemp(prefix="csw-"))
    try:
        if user:
            shutil.chown(home, user)
        yield Stranger(home, user)
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def new_user(name: str = "coserve-trial") -> Iterator[str]:
    """A user of this host while the block runs; needs root."""
    subprocess.run(["useradd", "--system", "--no-create-home", name], check=True)
    try:
        yield name
    finally:
        subprocess.run(["userdel", name], check=False, capture_output=True)


def install(who: Stranger, wheel: Path) -> None:
    """`pip install` into an environment of their own, which comes first on their path."""
    venv = who.home / "venv"
    own = shutil.copy(wheel, who.home)  # where it was built may be closed to them
    who.run(who.python, "-m", "venv", venv)
    who.run(venv / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", own)
    who.path.insert(0, venv / "bin")


def plugin_alone(who: Stranger, wheel: Path, packages: Path) -> Path:
    """The wheel without what it needs, beside an SGLang that is there.

    Args:
        who: In whose home.
        wheel: The wheel.
        packages: The folder of an environment's packages with SGLang, and ours linked into it,
            which are left out.

    Returns:
        The interpreter of the new environment.
    """
    venv = who.home / "sglang"
    who.run(who.python, "-m", "venv", venv)
    site = next((venv / "lib").glob("python3*")) / "site-packages"
    for one in packages.iterdir():
        ours = one.is_symlink() or one.name.startswith(("coserve", "__editable__"))
        if not ours and not (site / one.name).exists():
            (site / one.name).symlink_to(one)
    pip = ("install", "--quiet", "--disable-pip-version-check", "--no-deps")
    who.run(venv / "bin" / "pip", *pip, wheel)
    return venv / "bin" / "python"
