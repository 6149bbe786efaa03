"""`coserve chat`: one prompt, its answer as it comes, and how fast it came."""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from typing import Annotated, Any

import typer

from coserve.commands.listing import AsJson
from coserve.commands.service import ApiKey, BaseUrl, connected
from coserve.commands.terminal import print_json


def chat(  # noqa: PLR0913
    prompt: Annotated[str, typer.Argument(help="What to say; - reads it from standard input.")],
    model: Annotated[str | None, typer.Option(help="By default the first that is served.")] = None,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Of the answer.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0.0, max=2.0)] = None,
    json: AsJson = False,
    base_url: BaseUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Ask one thing and print the answer while it comes; its latencies go to standard error."""
    said = sys.stdin.read() if prompt == "-" else prompt
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": said})
    body: dict[str, Any] = {
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if max_tokens is not None:
        body["max_completion_tokens"] = max_tokens
    if temperature is not None:
        body["temperature"] = temperature
    with connected(base_url, api_key) as client:
        body["model"] = client.model_to_ask(model)
        answer: dict[str, Any] = {"model": body["model"], "finish_reason": None, "usage": None}
        text: list[str] = []
        started = time.monotonic()
        came: list[float] = []
        for chunk in client.chat(body):
            answer["usage"] = chunk.get("usage") or answer["usage"]
            for choice in chunk["choices"]:
                answer["finish_reason"] = choice["finish_reason"] or answer["finish_reason"]
                piece = choice["delta"].get("content") or ""
                if piece:
                    came.append(time.monotonic())
                    text.append(piece)
                    if not json:
                        typer.echo(piece, nl=False)
    answer["content"] = "".join(text)
    answer |= latencies(started, came)
    if json:
        print_json(answer)
        return
    typer.echo()
    if came:
        words = f"first token after {1000 * answer['ttft_s']:.0f} ms"
        if len(came) > 1:
            mean_ms, max_ms = 1000 * answer["tbt_mean_s"], 1000 * answer["tbt_max_s"]
            words += f", then a gap of {mean_ms:.0f} ms on average, {max_ms:.0f} ms at most"
        typer.echo(words, err=True)


def latencies(started: float, came: list[float]) -> dict[str, float | None]:
    """TTFT and TBT as the terminal saw them."""
    gaps = [after - before for before, after in pairwise(came)]
    return {
        "ttft_s": came[0] - started if came else None,
        "tbt_mean_s": sum(gaps) / len(gaps) if gaps else None,
        "tbt_max_s": max(gaps, default=None),
    }
