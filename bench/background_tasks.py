"""Titles and tags beside chat, as Open WebUI asks for them: what they cost the next first token.

    COSERVE_MODEL_ALIASES=tasks=SmolLM2-135M-Instruct@flex make run
    python -m bench.background_tasks        (4 minutes; --save writes bench/results)

Chats come at random instants. Each is followed by three calls over the whole conversation (title,
tags, follow-up questions), as Open WebUI makes them: to the chat's own name of the model, or to an
alias whose default tier is flex. Phases with neither, the first and the second alternate. The key
is made for the run: flex waits for room, as docs/open-webui.md advises.

Quoted in docs/open-webui.md.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time
from typing import Any, Final

import httpx

from bench.paths import RESULTS, ROOT
from bench.report import option_parser, write_cells

OUT: Final = RESULTS / "background_tasks.json"
ALIAS: Final = "tasks"
CHAT_TOKENS, TASK_TOKENS = 24, 32
FLEX_WAIT_S = 60
TASKS: Final = (
    "Generate a concise, 3-5 word title with an emoji summarizing the chat history.",
    "Generate 1-3 broad tags categorizing the main themes of the chat history.",
    "Suggest 3-5 relevant follow-up questions that the user might naturally ask next.",
)
"""After the prompts of Open WebUI for titles, tags and follow-ups; the history follows."""


class Load:
    """One phase.

    Attributes:
        first_tokens_s: Of its chats.
    """

    def __init__(self, client: httpx.AsyncClient, model: str, tasks: str | None) -> None:
        self.first_tokens_s: list[float] = []
        self._client = client
        self._model = model
        self._tasks = tasks

    async def run(self, seconds: float, rate: float, seed: int) -> None:
        """Send chats for so long, and wait for all that they brought."""
        draw = random.Random(seed)
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            while time.monotonic() < until:
                group.create_task(self._chat(draw.randrange(10**9)))
                await asyncio.sleep(draw.expovariate(rate))

    async def _chat(self, number: int) -> None:
        asked = {"role": "user", "content": f"{number}: name three birds and say where they live."}
        body = {
            "model": self._model,
            "messages": [asked],
            "stream": True,
            "max_tokens": CHAT_TOKENS,
        }
        began, said = time.monotonic(), ""
        async with self._client.stream("POST", "/v1/chat/completions", json=body) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                text = _text(line)
                if text and not said:
                    self.first_tokens_s.append(time.monotonic() - began)
                said += text
        if self._tasks is not None:
            async with asyncio.TaskGroup() as group:
                for task in TASKS:
                    group.create_task(self._task(task, f"{asked['content']}\n{said}"))

    async def _task(self, task: str, history: str) -> None:
        messages = [{"role": "user", "content": f"### Task:\n{task}\n### Chat History:\n{history}"}]
        body = {"model": self._tasks, "messages": messages, "max_tokens": TASK_TOKENS}
        answer = await self._client.post("/v1/chat/completions", json=body)
        answer.raise_for_status()


def _text(line: str) -> str:
    if not line.startswith("data: {"):
        return ""
    choices = json.loads(line[6:])["choices"]
    return (choices[0]["delta"].get("content") or "") if choices else ""


async def measure(url: str, key: str, model: str, seconds: float, rate: float) -> dict[str, Any]:
    """First tokens of chat in each kind of phase, in milliseconds."""
    kinds: dict[str, str | None] = {
        "no tasks": None,
        "tasks with the chat's model": model,
        "tasks with the flex alias": ALIAS,
    }
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120) as client:
        for repeat in range(3):
            for kind, tasks in kinds.items():
                load = Load(client, model, tasks)
                await load.run(seconds / 9, rate, repeat)
                found[kind] += load.first_tokens_s
    return {kind: _figures(seconds) for kind, seconds in found.items()}


async def waiting_key(url: str, admin_key: str) -> str:
    """A key of a new project, whose flex requests wait for room."""
    headers = {"authorization": f"Bearer {admin_key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers) as client:
        projects = "/v1/organization/projects"
        made = await client.post(projects, json={"name": "background tasks"})
        keys = f"{projects}/{made.raise_for_status().json()['id']}/api_keys"
        body = {"name": "background tasks", "coserve": {"flex_wait_seconds": FLEX_WAIT_S}}
        key = await client.post(keys, json=body)
    value: str = key.raise_for_status().json()["value"]
    return value


def _figures(seconds: list[float]) -> dict[str, float]:
    tenths = statistics.quantiles(seconds, n=10)
    return {
        "n": len(seconds),
        "p50_ms": round(1000 * statistics.median(seconds)),
        "p90_ms": round(1000 * tenths[8]),
    }


def main() -> int:
    parser = option_parser(__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--model", default="SmolLM2-135M-Instruct")
    parser.add_argument("--seconds", type=float, default=225.0, help="of all phases together")
    parser.add_argument("--rate", type=float, default=0.7, help="chats a second")
    parser.add_argument("--save", action="store_true")
    chosen = parser.parse_args()
    admin_key = (ROOT / ".coserve" / "admin-key").read_text().strip()
    key = asyncio.run(waiting_key(chosen.url, admin_key))
    found = asyncio.run(measure(chosen.url, key, chosen.model, chosen.seconds, chosen.rate))
    told = {"seconds": chosen.seconds, "rate": chosen.rate, "first_token": found}
    print(json.dumps(told, indent=1))
    if chosen.save:
        write_cells(OUT, told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
