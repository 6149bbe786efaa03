"""Numbers that follow from a latency model: default targets, token costs, safepoint layers."""

from __future__ import annotations

from engine_adapter.scheduling.latency import LatencyModel, StepLoad
from engine_adapter.scheduling.targets import Slo


def default_slo(
    model: LatencyModel,
    *,
    prompt_tokens: int = 512,
    decode_requests: int = 4,
    context_tokens: int = 1024,
    least_chunk_tokens: int = 16,
    slack: float = 1.5,
) -> Slo:
    """Targets an otherwise idle engine keeps with room to spare.

    TTFT: ``slack`` times the prefill of a typical prompt behind one decode step. TBT: ``slack``
    times a decode step of a few requests of ordinary length, or the same step with the fewest
    prompt tokens that are worth computing, if that is longer: captured graphs decode much faster
    than anything can be computed beside them, and under a target that no mixed step keeps nobody's
    prompt could be computed beside a request that decodes.
    """
    prefill, decode = StepLoad(), StepLoad()
    prefill.add_chunk(prompt_tokens, 0)
    for _ in range(decode_requests):
        decode.add_decode(context_tokens)
    mixed = decode.copy()
    mixed.add_chunk(least_chunk_tokens, 0)
    decode_s = model.predict(decode)
    return Slo(
        ttft_s=slack * (model.predict(prefill) + decode_s),
        tbt_s=slack * max(decode_s, model.predict(mixed)),
    )


def token_costs(
    model: LatencyModel, *, decode_requests: int, chunk_tokens: int = 256, context_tokens: int = 256
) -> tuple[float, float]:
    """What a token of a prompt and one of an answer take, in seconds, where nothing else runs.

    Args:
        model: Predicts steps.
        decode_requests: Requests that decode together.
        chunk_tokens: Prompt tokens of one step.
        context_tokens: KV of each request.
    """
    chunk, decode = StepLoad(), StepLoad()
    chunk.add_chunk(chunk_tokens, 0)
    for _ in range(decode_requests):
        decode.add_decode(context_tokens)
    return model.predict(chunk) / chunk_tokens, model.predict(decode) / decode_requests


def safepoint_layers(interval_s: float, predicted_s: float, num_layers: int) -> int:
    """Layers between two safepoints so that they lie at most ``interval_s`` apart.

    Layers of one step take about the same time, so an interval of ``n`` layers takes
    ``n / num_layers`` of the step. At least one layer, at most all of them; one where nothing is
    predicted.
    """
    if predicted_s <= 0.0:
        return 1
    return max(1, min(num_layers, int(num_layers * interval_s / predicted_s)))


GROUPS_IN_FLIGHT = 2
"""Layer groups launched and not finished where a device computes beside the host."""


def safepoint_groups(
    interval_s: float, predicted_s: float, num_layers: int, most_groups: int
) -> tuple[int, int]:
    """Layers between two safepoints, and groups of them that may be launched and not finished.

    A word that comes when a group has just been launched finds the device with all groups in
    flight still to compute, so they share the interval. Where two layers take longer than that,
    the host launches no group ahead.

    Args:
        interval_s: Most time from the word to a free device.
        predicted_s: Duration of the step.
        num_layers: Layers of the step.
        most_groups: Groups in flight where there is time for them; 1 where the host computes.
    """
    layers = num_layers * interval_s / predicted_s if predicted_s > 0.0 else num_layers
    groups = max(1, min(most_groups, int(layers)))
    return safepoint_layers(interval_s / groups, predicted_s, num_layers), groups


def stopped_before_layer(
    word_s: float, duration_s: float, num_layers: int, every: int, groups: int
) -> int:
    """The layer that a pass ends before; the device is free when it has computed those in front.

    Groups of layers are launched as long as no more than so many are launched and not finished, so
    a word finds the group that runs and those behind it::

        device     | group 0 | group 1 |
        host        0   1     2  word

    Args:
        word_s: From the begin of the pass to the stop word.
        duration_s: Of the whole pass.
        num_layers: Layers of the pass, each as long as the others.
        every: Layers of a group.
        groups: Groups that may be launched and not finished.

    Returns:
        A layer in ``[1, num_layers]``; with ``num_layers`` the pass runs to its end.
    """
    finished = int(word_s * num_layers / (every * duration_s))
    return min(num_layers, (finished + groups) * every)
