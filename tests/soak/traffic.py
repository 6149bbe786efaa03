"""What disturbs a soak: streams that come in waves, some of them cut, and pauses of the batch."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field

import httpx
import openai
from openai import AsyncOpenAI

from tests.soak.lines import chat_prompt

NUM_PROMPTS = 7
ANSWER_TOKENS = 24
CUT_SHARE = 0.3
WAVE_S = 20.0
"""Online requests come for so long, and then none: steps beside them and steps without."""

RATE_PER_S = 0.5
BURST_SHARE = 0.1
BURST = 5
PAUSES_S = (15.0, 40.0)


@dataclass
class Traffic:
    """Online streams and pauses.

    Attributes:
        answers: What each prompt was answered with; one answer each, if all is well.
        counts: Streams read to their end, streams cut, pauses.
        errors: What went wrong, in the client's words.
    """

    client: AsyncOpenAI
    model: str
    batch_id: str
    rng: random.Random
    answers: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    counts: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    async def run(self, over: asyncio.Event) -> None:
        """Until `over` is set; every stream that was begun is ended."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pause(over))
            while not over.is_set():
                wave_ends_s = asyncio.get_running_loop().time() + WAVE_S
                while not over.is_set() and asyncio.get_running_loop().time() < wave_ends_s:
                    await _sleep(over, self.rng.expovariate(RATE_PER_S))
                    for _ in range(BURST if self.rng.random() < BURST_SHARE else 1):
                        group.create_task(self._chat(self.rng.randrange(NUM_PROMPTS)))
                await _sleep(over, WAVE_S)

    async def _chat(self, number: int) -> None:
        left = self.rng.randrange(1, 12) if self.rng.random() < CUT_SHARE else None
        text = ""
        try:
            stream = await self.client.chat.completions.create(
                model=self.model,
                messages=[{"role": "user", "content": chat_prompt(number)}],
                temperature=0,
                max_tokens=ANSWER_TOKENS,
                stream=True,
            )
            async with stream:
                async for chunk in stream:
                    text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
                    left = None if left is None else left - 1
                    if left == 0:
                        self.counts["cut"] += 1
                        return
        except (openai.OpenAIError, httpx.HTTPError) as error:
            self.errors.append(f"{type(error).__name__}: {error}"[:300])
            return
        self.counts["read"] += 1
        self.answers[number].add(text)

    async def _pause(self, over: asyncio.Event) -> None:
        while True:
            await _sleep(over, self.rng.uniform(*PAUSES_S))
            if over.is_set():
                return
            await self._steer("pause")
            self.counts["pauses"] += 1
            await asyncio.sleep(self.rng.uniform(0.0, 2.0))
            await self._steer("resume")

    async def _steer(self, act: str) -> None:
        # A batch that has just ended is 409: nothing to pause any more.
        with suppress(openai.ConflictError):
            await self.client.post(f"/batches/{self.batch_id}/{act}", cast_to=object)


async def _sleep(over: asyncio.Event, delay_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(delay_s):
            await over.wait()
