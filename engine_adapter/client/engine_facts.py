"""What an engine says about itself: the one parser of `/server_info`, `/v1/models`, `/model_info`.

An address may lead to anything that answers HTTP, so any JSON is taken. The answer is facts, or
`NotAnEngine` with the reason. What an answer must have for us to know what it is fails whole; a
figure that only informs is left out where it has another shape than `_REPORT` says. Whoever reads
facts therefore finds each figure with its type, or none.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from api.numbers import ModelSizes
from engine_adapter.coserving_levels import FULL_LEVEL

MAX_NAME_CHARS: Final = 512
MAX_COUNT: Final = 2**31 - 1
"""The database keeps counts in four bytes."""
MAX_DEPTH: Final = 8

OURS, VLLM, SGLANG, OTHER = "coserve", "vllm", "sglang", "openai"
"""Kinds of servers: SGLang with our plugin, and those that are not ours."""

NOT_OURS: Final = "{} runs without coserve's scheduler: its steps are its own."


class NotAnEngine(ValueError):
    """What answers is no engine; its text says why."""


@dataclass(frozen=True)
class LiveRids:
    """Request ids an engine knows at one instant."""

    waiting: frozenset[str] = frozenset()
    running: frozenset[str] = frozenset()
    queue: int | None = None
    """Requests of everybody that wait, where an engine that is not ours counts them."""

    def __contains__(self, rid: str) -> bool:
        return rid in self.waiting or rid in self.running

    def __len__(self) -> int:
        return len(self.waiting) + len(self.running)


@dataclass(frozen=True)
class EngineFacts:
    """What an engine says about itself.

    Attributes:
        model: The served model's id.
        context_tokens: Prompt and answer together may not be longer.
        kv_tokens: Tokens the KV pool holds.
        max_running: Requests that may run at once.
        version: The engine software's version.
        flex_room: Flex requests it could still take; none where it does not say.
        embeds: It makes embeddings, and no text; else text and no embeddings.
        tool_call_parser: What it finds tool calls with, by SGLang's name; empty without one.
        seeds: The seed of a request decides what is drawn.
        reads_images: Its model reads images beside text.
        vocab_size: Token ids are below it; 0 where it does not say.
        hidden_size: Numbers of a vector that the model can make; 0 where it does not say.
        server: What kind of server it is: `OURS`, `VLLM`, `SGLANG` or `OTHER`.
        priority_sign: 1 where requests of higher priority go first, -1 where those of lower do, 0
            where it takes no priority.
        targets_s: Of TTFT and TBT, for an engine of level 0, which reports none.
        queue: Requests that wait there, and that run, where an engine that is not ours counts them.
        more_models: Further models that an engine that is not ours serves, such as aliases and
            adapters, and the context of each.
        raw: Everything else it reported, for the dashboard.
    """

    model: str
    context_tokens: int
    kv_tokens: int = 0
    max_running: int = 0
    version: str = ""
    flex_room: int | None = None
    embeds: bool = False
    tool_call_parser: str = ""
    seeds: bool = True
    reads_images: bool = False
    vocab_size: int = 0
    hidden_size: int = 0
    server: str = OURS
    priority_sign: int = 1
    targets_s: tuple[float, float] | None = None
    queue: tuple[int, int] | None = None
    more_models: Mapping[str, int] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def models(self) -> Mapping[str, int]:
        """Every model that it serves, its own first, and the context of each."""
        return {self.model: self.context_tokens, **self.more_models} if self.model else {}

    def serves(self, model: str) -> bool:
        """Whether requests may name this model there."""
        return model != "" and (model == self.model or model in self.more_models)

    def sizes_of(self, model: str) -> ModelSizes:
        """What bounds the numbers of a request to one of its models."""
        context_tokens = self.more_models.get(model, self.context_tokens)
        return ModelSizes(self.vocab_size, context_tokens, self.hidden_size)

    @property
    def sizes(self) -> ModelSizes:
        """The same of its own model."""
        return self.sizes_of(self.model)

    @property
    def runtime(self) -> Mapping[str, Any]:
        """What our scheduler inside the engine reports; empty without it."""
        reported = self.raw.get("coserve")
        return reported if isinstance(reported, Mapping) else {}

    def reported(self, path: str) -> Any:
        """What the runtime reports at a path, keys joined by dots; none where nothing is."""
        found: Any = self.runtime
        for key in path.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        return found

    @property
    def plugin_is_live(self) -> bool:
        """Whether our scheduler runs there."""
        return self.runtime.get("plugin") == "live"

    @property
    def unsigned(self) -> str:
        """The release of SGLang there, if nobody has tried that one with our plugin; else empty."""
        return self.version if self.runtime.get("signed") is False else ""

    @property
    def foreign(self) -> bool:
        """Whether it is an engine that is not ours, and is used as such."""
        return self.server != OURS

    @property
    def usable(self) -> bool:
        """Whether it may serve: one of ours that lost its plugin would put batches before chat."""
        return self.plugin_is_live or self.foreign

    @property
    def level(self) -> int:
        """How chat and batches share it, 3 at most (docs/other-engines.md)."""
        if self.foreign:
            return 0
        said = self.reported("coserving_level")
        return min(said, FULL_LEVEL) if isinstance(said, int) else FULL_LEVEL

    @property
    def level_reasons(self) -> dict[int, str]:
        """Why it has no higher level: a sentence for each that is missing."""
        missing = range(self.level + 1, FULL_LEVEL + 1)
        if self.foreign:
            return dict.fromkeys(missing, NOT_OURS.format(self.server_label))
        said = self.reported("coserving_reasons")
        told = said if isinstance(said, Mapping) else {}
        return {level: told[str(level)] for level in missing if str(level) in told}

    @property
    def server_label(self) -> str:
        """Its kind for people, with its version where it says one."""
        label = {OURS: "SGLang", VLLM: "vLLM", SGLANG: "SGLang"}.get(self.server, "This server")
        return f"{label} {self.version}" if self.version and self.server != OTHER else label


def read_facts(info: Any, models: Any = None, model_info: Any = None) -> EngineFacts:
    """Facts out of an engine's server info, its list of models and what it says of the model.

    Raises:
        NotAnEngine: One of the answers has another shape than an engine's.
    """
    info = _object(info, "/server_info")
    models = _object({} if models is None else models, "/v1/models")
    model_info = _object({} if model_info is None else model_info, "/model_info")
    state = next(iter(_states(info)), {})
    card = next(iter(_objects(models, "data", "/v1/models")), {})
    runtime = _runtime(state)
    sizes = runtime.get("model", {})
    return EngineFacts(
        model=_name(card.get("id")) or _name(info.get("served_model_name")),
        context_tokens=_count(card.get("max_model_len")) or _count(info.get("context_length")),
        kv_tokens=_count(info.get("max_total_num_tokens")),
        max_running=_count(state.get("effective_max_running_requests_per_dp"))
        or _count(info.get("max_running_requests")),
        version=_release(info, runtime),
        flex_room=runtime.get("flex_room"),
        embeds=model_info.get("is_generation") is False,
        seeds=_takes_seeds(info),
        reads_images=model_info.get("has_image_understanding") is True,
        tool_call_parser=_name(info.get("tool_call_parser")),
        vocab_size=sizes.get("vocab_size", 0),
        hidden_size=sizes.get("hidden_size", 0),
        raw={
            "coserve": runtime,
            "device": _name(info.get("device")),
            "tp_size": _count(info.get("tp_size")),
        },
    )


def read_live(info: Any) -> LiveRids:
    """Live ids out of an engine's server info: over all its schedulers.

    Raises:
        NotAnEngine: The answer has another shape than an engine's.
    """
    waiting: set[str] = set()
    running: set[str] = set()
    for state in _states(_object(info, "/server_info")):
        live = _fitting(_runtime_of(state).get("live"), _LIVE)
        if isinstance(live, Mapping):
            waiting.update(live.get("waiting") or ())
            running.update(live.get("running") or ())
    return LiveRids(waiting=frozenset(waiting), running=frozenset(running))


def remembered_facts(model: str, context_tokens: int, stored: Any) -> EngineFacts:
    """Facts out of what was stored of an engine; a figure of another shape counts as not known."""
    known = stored if isinstance(stored, Mapping) else {}
    return EngineFacts(
        model,
        context_tokens,
        embeds=known.get("embeds") is True,
        vocab_size=_count(known.get("vocab_size")),
        hidden_size=_count(known.get("hidden_size")),
        more_models=_contexts(known.get("more_models")),
    )


def _contexts(stored: Any) -> dict[str, int]:
    known = stored if isinstance(stored, Mapping) else {}
    return {name: _count(tokens) for name, tokens in known.items() if _name(name)}


def _states(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _objects(info, "internal_states", "/server_info")


def _object(answer: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(answer, Mapping):
        raise NotAnEngine(f"It answers {path} with {_kind(answer)}; an object was expected.")
    return answer


def _objects(answer: Mapping[str, Any], name: str, path: str) -> list[Mapping[str, Any]]:
    found = answer.get(name)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise NotAnEngine(f"In its answer to {path}, {name!r} is no list of objects.")
    return found


def _kind(answer: Any) -> str:
    kinds = {list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return kinds.get(type(answer), "a number")


def _name(found: Any) -> str:
    """A short text that can be stored and shown, or none."""
    good = isinstance(found, str) and len(found) <= MAX_NAME_CHARS and found.isprintable()
    return found if good else ""


def _count(found: Any) -> int:
    return found if _is_count(found) else 0


def _takes_seeds(info: Mapping[str, Any]) -> bool:
    """With torch's own sampling our plugin honours seeds; other backends do where SGLang does."""
    backend = info.get("sampling_backend") or "pytorch"
    return backend == "pytorch" or info.get("enable_deterministic_inference") is True


def _release(info: Mapping[str, Any], runtime: Mapping[str, Any]) -> str:
    """The release of SGLang, and whether it is one that somebody has tried with our plugin."""
    release = _name(info.get("version"))
    return f"{release} (unsigned)" if release and runtime.get("signed") is False else release


def _runtime_of(state: Mapping[str, Any]) -> Mapping[str, Any]:
    found = state.get("coserve")
    return found if isinstance(found, Mapping) else {}


def _runtime(state: Mapping[str, Any]) -> dict[str, Any]:
    found = _fitting(_runtime_of(state), _REPORT)
    return found if isinstance(found, dict) else {}


# The shape of a report. A leaf is a test of one value.

Leaf = Callable[[Any], bool]


@dataclass(frozen=True)
class _Each:
    """An object of any keys, or a list: entries of another shape are left out."""

    shape: Any


@dataclass(frozen=True)
class _Row:
    """A list of exactly these; none at all where one of them does not fit."""

    shapes: tuple[Any, ...]


def _is_number(found: Any) -> bool:
    # Compared, since math.isfinite fails on an int that no float can hold.
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return is_number and -math.inf < found < math.inf and abs(found) <= sys.float_info.max


def _is_float(found: Any) -> bool:
    return isinstance(found, float) and math.isfinite(found)


def _is_count(found: Any) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= MAX_COUNT


def _is_total(found: Any) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 2**63


def _is_layer(found: Any) -> bool:
    return found is None or _is_count(found)


def _is_text(found: Any) -> bool:
    return isinstance(found, str) and len(found) <= 8 * MAX_NAME_CHARS


def _is_flag(found: Any) -> bool:
    return isinstance(found, bool)


_IDS: Final = _Each(_is_text)
_LIVE: Final = {"waiting": _IDS, "running": _IDS, "classes": _Each(_is_text)}
_LATENCY: Final = {"num": _is_total, "p50_s": _is_number, "p90_s": _is_number,
                   "share_in_time": _is_number}  # fmt: skip
_WHOLE: Final = ("num", "p90_s", "share_in_time")
_TIMES: Final = {"beside": _Each(_is_number), "apart": _Each(_is_number)}
_REPORT: Final[dict[str, Any]] = {
    **dict.fromkeys(
        ("aborts", "arrivals_misjudged", "arrivals_seen", "checkpointed_pages", "drops",
         "evictable_pages", "failed_requests", "flex_tokens", "free_pages", "host_free_pages",
         "host_total_pages",
         "offline_tokens", "online_tokens", "page_tokens", "parks", "policy_errors",
         "reaped_requests",
         "recomputed_online_tokens", "recomputed_tokens", "rejected_plans", "restored_tokens",
         "retracts", "steps", "undone_requests"),
        _is_total,
    ),
    **dict.fromkeys(
        ("checkpoint_cpu_s", "harvested_share", "plan_cpu_s", "predicted_s", "restore_cpu_s",
         "safepoint_cpu_s", "slowdown", "step_cpu_s", "step_s", "tbt_share"),
        _is_number,
    ),
    "attained": {"ttft": _LATENCY, "tbt": _LATENCY},
    "by_batch": _Each(_Each(_is_count)),
    "coserving_level": _is_count,
    "coserving_reasons": _Each(_is_text),
    "flex_room": _is_count,
    "isolation": {
        "ttft": _TIMES,
        "tbt": _TIMES,
        "pauses": {"on": _is_flag, "num": _is_total, "paused_s": _is_number, "over_s": _is_number,
                   "every_s": _is_number},
    },
    "last_policy_error": _is_text,
    "level": _is_text,
    "live": _LIVE,
    "model": {"vocab_size": _is_count, "hidden_size": _is_count},
    "parked_requests": _is_count,
    "plugin": _is_text,
    "signed": _is_flag,
    "policy": _is_text,
    "profile": {"state": _is_text},
    "recent_steps": _Each(
        _Row((_is_number, _is_count, _is_count, _is_count, _is_number, _is_number, _is_layer))
    ),
    "slo": {"ttft_s": _is_number, "tbt_s": _is_number},
    "step_times": {"errors": _Each(_Each(_is_number))},
    "stops_by_layer": _Each({"num": _is_total, "sum_s": _is_number}),
    "token_costs": {"prompt_s": _is_float, "answer_s": _is_float},
}  # fmt: skip
"""What the service reads of a report. A key that is not here is shown, and no more."""

_MISSING: Final = object()


def _fitting(found: Any, shape: Any) -> Any:
    """A value without what does not have its shape; `_MISSING` where it has not itself."""
    if isinstance(shape, _Each):
        return _each(found, shape.shape)
    if isinstance(shape, _Row):
        fits = isinstance(found, list) and len(found) == len(shape.shapes)
        return found if fits and all(map(_fits, found, shape.shapes)) else _MISSING
    if not isinstance(shape, Mapping):
        return found if shape(found) else _MISSING
    if not isinstance(found, Mapping):
        return _MISSING
    kept = {
        key: _fitting(value, shape[key]) if key in shape else _shown(value, MAX_DEPTH)
        for key, value in found.items()
    }
    if shape is _LATENCY and any(kept.get(key, _MISSING) is _MISSING for key in _WHOLE):
        return _MISSING
    return {key: value for key, value in kept.items() if value is not _MISSING}


def _fits(found: Any, leaf: Leaf) -> bool:
    return leaf(found)


def _each(found: Any, shape: Any) -> Any:
    if isinstance(found, Mapping):
        entries = {key: _fitting(value, shape) for key, value in found.items()}
        return {key: value for key, value in entries.items() if value is not _MISSING}
    if isinstance(found, list):
        return [one for one in (_fitting(value, shape) for value in found) if one is not _MISSING]
    return _MISSING


def _shown(found: Any, depth: int) -> Any:
    """A value that is only shown: no deeper than a page can show it."""
    if isinstance(found, Mapping | list) and not depth:
        return _MISSING
    if isinstance(found, Mapping):
        shown = {key: _shown(value, depth - 1) for key, value in found.items()}
        return {key: value for key, value in shown.items() if value is not _MISSING}
    if isinstance(found, list):
        return [one for one in (_shown(value, depth - 1) for value in found) if one is not _MISSING]
    return found
