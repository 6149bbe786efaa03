"""Request traces: when requests arrive and how long they are.

A trace file is CSV with the header ``arrival_s,input_tokens,output_tokens``, sorted by arrival;
one row is one request.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

HEADER = ("arrival_s", "input_tokens", "output_tokens")


class TraceError(ValueError):
    """A trace file cannot be used; the message names file and line."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace.

    Attributes:
        arrival_s: Seconds after the start of the trace.
        input_tokens: Length of the prompt.
        output_tokens: Length of the answer.
    """

    arrival_s: float
    input_tokens: int
    output_tokens: int


def read_trace(path: Path) -> list[TraceRequest]:
    """Read a trace.

    Raises:
        TraceError: If the header, a number or the order of arrivals is wrong, or no row is there.
    """
    requests: list[TraceRequest] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            if tuple(next(reader, ())) != HEADER:
                raise TraceError(f"{path}: the first line must be {','.join(HEADER)}")
            for line, cells in enumerate(reader, start=2):
                requests.append(_parse(path, line, cells, requests))
    except (csv.Error, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: not a CSV file: {error}") from error
    if not requests:
        raise TraceError(f"{path}: no requests")
    return requests


def _parse(
    path: Path, line: int, cells: Sequence[str], before: Sequence[TraceRequest]
) -> TraceRequest:
    try:
        arrival, inputs, outputs = cells
    except ValueError:
        raise TraceError(f"{path}:{line}: {len(cells)} cells where 3 belong") from None
    try:
        request = TraceRequest(float(arrival), int(inputs), int(outputs))
    except ValueError as error:
        raise TraceError(f"{path}:{line}: {error}") from error
    if request.input_tokens < 1 or request.output_tokens < 1:
        raise TraceError(f"{path}:{line}: lengths must be at least 1")
    if not 0.0 <= request.arrival_s < math.inf:
        raise TraceError(f"{path}:{line}: an arrival of {arrival} s; it must be at least 0")
    if before and request.arrival_s < before[-1].arrival_s:
        raise TraceError(f"{path}:{line}: arrivals must not go back in time")
    return request


def check_context(path: Path, requests: Sequence[TraceRequest], max_tokens: int) -> None:
    """Refuse a trace of which the engine could not hold every request.

    Raises:
        TraceError: Naming the first line that is too long.
    """
    for line, request in enumerate(requests, start=2):
        total = request.input_tokens + request.output_tokens
        if total > max_tokens:
            raise TraceError(
                f"{path}:{line}: {request.input_tokens} + {request.output_tokens} tokens are more "
                f"than the {max_tokens} of the engine's context; --clip shortens them"
            )


@dataclass(frozen=True, slots=True)
class Clipped:
    """A trace cut to what an engine accepts, and how much was cut.

    Attributes:
        requests: The requests that remain.
        num_inputs_clipped: Requests whose prompt was shortened.
        num_outputs_clipped: Requests whose answer was shortened.
    """

    requests: list[TraceRequest]
    num_inputs_clipped: int
    num_outputs_clipped: int


def clip_lengths(
    requests: Iterable[TraceRequest], max_input_tokens: int, max_output_tokens: int
) -> Clipped:
    """Shorten what is longer than the engine's context allows."""
    clipped: list[TraceRequest] = []
    inputs = outputs = 0
    for request in requests:
        inputs += request.input_tokens > max_input_tokens
        outputs += request.output_tokens > max_output_tokens
        clipped.append(
            replace(
                request,
                input_tokens=min(request.input_tokens, max_input_tokens),
                output_tokens=min(request.output_tokens, max_output_tokens),
            )
        )
    return Clipped(clipped, inputs, outputs)


def window(
    requests: Iterable[TraceRequest], start_s: float, duration_s: float
) -> list[TraceRequest]:
    """The requests of ``[start_s, start_s + duration_s)``, arrivals counted from its start."""
    return [
        replace(request, arrival_s=request.arrival_s - start_s)
        for request in requests
        if start_s <= request.arrival_s < start_s + duration_s
    ]


def stretch(requests: Iterable[TraceRequest], factor: float) -> list[TraceRequest]:
    """Multiply every arrival by ``factor``: above 1 thins the load out.

    Raises:
        ValueError: If the factor is not positive.
    """
    if not factor > 0.0:
        raise ValueError(f"a trace cannot be stretched by {factor!r}")
    return [replace(request, arrival_s=request.arrival_s * factor) for request in requests]
