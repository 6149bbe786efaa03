"""Chat beside a batch in two real shells: `make run` in one terminal, this in another.

    .venv/bin/python -m tests.recording      (1 minute; writes docs/images/chat-beside-a-batch.svg)

The upper shell asks something, submits a batch and follows it; the lower one chats meanwhile.
Nothing is cut or sped up. Look at what it wrote.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import struct
import subprocess
import tempfile
import termios
import time
from pathlib import Path
from typing import Final

import pyte

from coserve.commands.service_client import ServiceClient
from tests.picture import rows
from tests.recording.film import Frame, Line, distinct, lines_of, svg

ROOT: Final = Path(__file__).parents[2]
FILM: Final = ROOT / "docs" / "images" / "chat-beside-a-batch.svg"
COLUMNS, LINES = 124, 8
SAMPLE_S: Final = 0.2
STEPS: Final = (
    # Shell, what is typed, and the longest that the next step waits.
    (1, "coserve chat 'Name three birds.' --max-tokens 24", 12.0),
    (0, "coserve batch submit books.jsonl --wait", 15.0),
    (1, "coserve chat 'Name three rivers.' --max-tokens 24", 12.0),
    (1, "coserve chat 'Name three trees.' --max-tokens 24", 12.0),
)
TITLE: Final = "Two terminals: a batch runs in the upper one, chat is answered in the lower one"


class Shell:
    """A shell in a terminal of its own."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self.screen)
        main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env=env,
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
        )
        os.close(side)
        self.descriptor = main

    def read(self) -> None:
        """Take in what it wrote."""
        while select.select([self.descriptor], [], [], 0)[0]:
            self._stream.feed(os.read(self.descriptor, 65536))

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    @property
    def waits(self) -> bool:
        """Whether it shows a prompt and nothing behind it."""
        row = self.screen.display[self.screen.cursor.y].rstrip()
        return row == "$"


def record(folder: Path, env: dict[str, str]) -> list[Frame]:
    """Do the steps and return what both shells showed."""
    shells = [Shell(folder, env), Shell(folder, env)]
    began_s = time.monotonic()
    frames: list[Frame] = []
    divider: Line = (("─" * COLUMNS, "#59636e", False),)

    def watch(seconds: float, shell: Shell | None = None) -> None:
        """Sample for so long, or until a shell waits again."""
        until_s = time.monotonic() + seconds
        while True:
            for one in shells:
                one.read()
            lines = (*lines_of(shells[0].screen), divider, *lines_of(shells[1].screen))
            frames.append(Frame(time.monotonic() - began_s, lines))
            if time.monotonic() >= until_s or (shell is not None and shell.waits):
                return
            time.sleep(SAMPLE_S)

    try:
        watch(1.0)
        for number, text, longest_s in STEPS:
            shell = shells[number]
            for sign in text:
                shell.type(sign)
                time.sleep(0.04)
                watch(0.0)
            shell.type("\n")
            watch(0.6)
            watch(longest_s, shell if number else None)
            watch(1.0)
    finally:
        for shell in shells:
            os.close(shell.descriptor)  # hangs up on what it runs
            shell.process.kill()  # one that somebody types to does not hear of an end
            shell.process.wait()
    first_s = frames[0].at_s
    return distinct([Frame(one.at_s - first_s, one.lines) for one in frames])


def film_of(url: str, key: str, model: str) -> str:
    """Record against the stack at a URL, cancel the batch, and return the film."""
    env = {
        "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
        "HOME": os.environ["HOME"],
        "PS1": "$ ",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "COSERVE_BASE_URL": f"{url}/v1",
        "COSERVE_API_KEY": key,
    }
    with tempfile.TemporaryDirectory() as name, ServiceClient(f"{url}/v1", key) as client:
        folder = Path(name)
        (folder / "books.jsonl").write_bytes(rows(model))
        frames = record(folder, env)
        client.cancel(next(client.newest())["id"])
    return svg(frames, COLUMNS, TITLE)


def main() -> None:
    """Write the film of the stack that runs here."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--key", default=None, help="default: .coserve/admin-key")
    parser.add_argument("--model", default="SmolLM2-135M-Instruct")
    chosen = parser.parse_args()
    key = chosen.key or (ROOT / ".coserve" / "admin-key").read_text().strip()
    FILM.write_text(film_of(chosen.url, key, chosen.model))
    print(f"wrote {FILM.relative_to(ROOT)}: {FILM.stat().st_size / 1e3:.0f} KB")


if __name__ == "__main__":
    main()
