"""What the other tenant sees: the gaps of one open stream, and the lives of one-line batches."""

from __future__ import annotations

import http.client
import re
import time
from collections import Counter
from typing import Final

import orjson

from bench.installation import client_of
from bench.isolation.attacks import chat
from engine_adapter.client.base import CHAT_PATH
from tests.chaos.installation import Installation

TOKEN_MS: Final = 5
POLL_INTERVAL_S, LINE_LIMIT_S = 0.1, 60.0
_INSTANT = re.compile(rb'"content":"(\d+) ?"')


def stalls_ms(url: str, key: str, lasts_s: float) -> list[float]:
    """What each gap of a stream has beyond the gap in which the engine made its tokens.

    A stream of no two tokens is one gap of the whole time, and so is what is left of it once it was
    refused or cut.
    """
    until_ns = time.monotonic_ns() + int(lasts_s * 1e9)
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    order = chat(f"fake:tokens=1000000 fake:token_ms={TOKEN_MS} fake:clock=1", stream=True)
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    connection.request("POST", CHAT_PATH, orjson.dumps(order), headers)
    reply = connection.getresponse()
    found: list[float] = []
    last: tuple[int, int] | None = None
    left = b""
    while (now_ns := time.monotonic_ns()) < until_ns:
        raw = reply.read1(65536) if reply.status == 200 else b""
        if not raw:
            found.append((until_ns - now_ns) / 1e6)
            break
        now_ns = time.monotonic_ns()
        whole, _, left = (left + raw).rpartition(b"\n")
        for made_ns in map(int, _INSTANT.findall(whole)):
            if last is not None:
                found.append(max(0.0, (now_ns - last[0] - (made_ns - last[1])) / 1e6))
            last = now_ns, made_ns
    connection.close()
    time.sleep(max(0.0, (until_ns - time.monotonic_ns()) / 1e9))  # the attack goes on
    return found or [lasts_s * 1000]


def lines_s(
    installation: Installation, key: str, file_id: str, lasts_s: float
) -> tuple[list[float], Counter[str]]:
    """How long each one-line batch took from its creation, and the errors that were met.

    A request that fails is repeated, as clients do; its batch goes on ageing.
    """
    took: list[float] = []
    errors: Counter[str] = Counter()
    until_s = time.monotonic() + lasts_s
    wanted = {"input_file_id": file_id, "endpoint": CHAT_PATH, "completion_window": "24h"}
    with client_of(installation, key) as client:
        while time.monotonic() < until_s or not took:
            began_s, path = time.monotonic(), ""
            while time.monotonic() < began_s + LINE_LIMIT_S:
                reply = client.get(path) if path else client.post("/v1/batches", json=wanted)
                told = reply.json()
                if not reply.is_success:
                    errors[f"{reply.status_code} {told['error']['code']}"] += 1
                elif told["status"] == "completed":
                    break
                else:
                    path = f"/v1/batches/{told['id']}"
                time.sleep(POLL_INTERVAL_S)
            took.append(time.monotonic() - began_s)
    return took, errors
