"""How rank 0 tells the others, inside a running step, whether it goes on.

A word is ``step id << 16 | layer << 1 | stop``; ids and layers only grow. Rank 0 says one at each
safepoint, and every other rank asks at the same ones in the same order.

- ``SharedStops``: all ranks on one node. Two places in shared memory, written by rank 0 alone::

      progress              the word said last
      stopped[step id % 64] the word with which a step stopped

  A rank that is late reads the word of its own step: rank 0 may be in a later one, and may have
  stopped that too. It cannot be 64 steps ahead, since every step's plan is agreed upon.

- ``SentStops``: ranks on several nodes. Eight bytes over a connection to each rank. A word counts
  at the step's next safepoint, so that it travels while layers are computed; all ranks stop one
  safepoint later than rank 0 has seen the reason, and none waits for the network.
"""

from __future__ import annotations

import contextlib
import hmac
import mmap
import os
import secrets
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

PROGRESS, STOPPED, STOPPED_CODES = 0, 8, 64
STOPS_BYTES = STOPPED + 8 * STOPPED_CODES
GIVE_UP_S = 120.0
_WORD = struct.Struct("=q")
_TIMEVAL = struct.Struct("@ll")
_SECRET_BYTES = 32


class StopBroadcast(Protocol):
    """Words between the ranks of one group."""

    def say(self, word: int) -> bool:
        """Rank 0: it is at this safepoint, and has seen that it must stop or not.

        Returns:
            Whether the step stops here.
        """
        ...

    def stops_at(self, safepoint: int) -> bool:
        """Another rank: whether the step stops at a safepoint; the same answer as rank 0's.

        Args:
            safepoint: Its word without the stop.

        Raises:
            TimeoutError: Rank 0 has said nothing for two minutes.
        """
        ...


class SharedStops:
    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    @classmethod
    def at(cls, path: Path) -> SharedStops:
        """Aligned words that every rank maps; eight aligned bytes are read and written whole."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        with contextlib.closing(os.fdopen(descriptor, "r+b")) as file:
            os.ftruncate(file.fileno(), STOPS_BYTES)
            return cls(mmap.mmap(file.fileno(), STOPS_BYTES))

    def say(self, word: int) -> bool:
        stop = bool(word & 1)
        if stop:
            _WORD.pack_into(self._memory, _stopped(word), word)
        _WORD.pack_into(self._memory, PROGRESS, word)
        return stop

    def stops_at(self, safepoint: int) -> bool:
        deadline_s = time.monotonic() + GIVE_UP_S
        while True:
            # Steps and layers only grow: rank 0 is here or beyond.
            if self._read(PROGRESS) >= safepoint:
                return self._read(_stopped(safepoint)) == safepoint | 1
            if time.monotonic() > deadline_s:
                raise TimeoutError(_silent(safepoint))
            time.sleep(0)

    def _read(self, offset: int) -> int:
        word: int = _WORD.unpack_from(self._memory, offset)[0]
        return word


class SentStops:
    """See the module. Rank 0 has a link to each other rank, the others have one to rank 0.

    Invariant: of each safepoint its word is said at it and heard at the next one of any step, so
    at most one word waits in a link that both ends have used as often.
    """

    def __init__(self, links: Sequence[socket.socket]) -> None:
        self._links = links
        self._before = -1  # the word said, or the safepoint asked for, last
        for link in links:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # The kernel's own time-out: Python's costs a second system call for every word.
            link.setblocking(True)
            limit = _TIMEVAL.pack(*divmod(round(GIVE_UP_S * 1e6), 1_000_000))
            for side in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                link.setsockopt(socket.SOL_SOCKET, side, limit)

    def say(self, word: int) -> bool:
        before, self._before = self._before, word
        said = _WORD.pack(word)
        for link in self._links:
            link.sendall(said)
        return _stops(before, word)

    def stops_at(self, safepoint: int) -> bool:
        """See `StopBroadcast`.

        Raises:
            ConnectionError: Rank 0 has gone.
            RuntimeError: It was at another safepoint.
        """
        before, self._before = self._before, safepoint
        word = -1
        while word < before:  # rank 0 was there, and this rank did not ask
            word = self._heard(before)
        if word | 1 != before | 1:
            raise RuntimeError(f"rank 0 was at {_place(word)}, this rank at {_place(before)}")
        return _stops(word, safepoint)

    def _heard(self, safepoint: int) -> int:
        (link,) = self._links
        try:
            said = link.recv(_WORD.size, socket.MSG_WAITALL)
        except BlockingIOError:
            raise TimeoutError(_silent(safepoint)) from None
        if len(said) < _WORD.size:
            raise ConnectionError(f"rank 0 ended before {_place(safepoint)}")
        word: int = _WORD.unpack(said)[0]
        return word


class Listener:
    """Where rank 0 waits for the links of the others.

    Attributes:
        invitation: What the others must know to link: address, port and a secret.
    """

    def __init__(self, host: str) -> None:
        """Listen at a free port of an address of this node."""
        family, _, _, _, place = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.bind(place)
        self._socket.listen()
        self._socket.settimeout(GIVE_UP_S)
        self._secret = secrets.token_bytes(_SECRET_BYTES)
        address, port = self._socket.getsockname()[:2]
        self.invitation: tuple[str, int, bytes] = (address, port, self._secret)

    def links(self, number: int) -> SentStops:
        """So many links; a caller that was not invited is sent away.

        Raises:
            TimeoutError: They did not come.
        """
        found: list[socket.socket] = []
        while len(found) < number:
            link, _ = self._socket.accept()
            link.settimeout(GIVE_UP_S)
            with contextlib.suppress(OSError):
                said = link.recv(_SECRET_BYTES, socket.MSG_WAITALL)
                if hmac.compare_digest(said, self._secret):
                    found.append(link)
                    continue
            link.close()
        self._socket.close()
        return SentStops(found)


def link_to(invitation: tuple[str, int, bytes]) -> SentStops:
    """Another rank's link to rank 0."""
    host, port, secret = invitation
    link = socket.create_connection((host, port), timeout=GIVE_UP_S)
    link.sendall(secret)
    return SentStops([link])


def encode(step_id: int, layer: int, *, stop: bool = False) -> int:
    """The word of a safepoint."""
    return step_id << 16 | layer << 1 | stop


def _stops(before: int, safepoint: int) -> bool:
    """Whether a word counts at a safepoint after it: it says stop, and is of the same step."""
    return before >= 0 and bool(before & 1) and before >> 16 == safepoint >> 16


def _stopped(word: int) -> int:
    """Where the stop of a step is kept, as an offset in bytes."""
    return STOPPED + 8 * ((word >> 16) % STOPPED_CODES)


def _place(word: int) -> str:
    return f"layer {(word & 0xFFFF) >> 1} of step {word >> 16}"


def _silent(safepoint: int) -> str:
    return f"rank 0 did not reach {_place(safepoint)}"
