"""What servers that are not ours say about themselves.

    /v1/models             its models, their contexts (`max_model_len`), whose server it is
                           (`owned_by`)
    /version               its version
    /metrics               requests that wait and that run
    /v1/chat/completions   405 for GET: it answers with text; 404, and /v1/embeddings is there: not

What is not said stays unknown: the size of the vocabulary, how many requests run at once, how much
its cache holds. Prompts are counted by the server alone.

One of ours that has lost its plugin answers like a stock SGLang. So a stock SGLang counts as not
ours only where the operator says so (`COSERVE_FOREIGN_ENGINES`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from api.errors import EngineUnavailable
from engine_adapter.client.base import CHAT_PATH, EMBEDDINGS_PATH
from engine_adapter.client.control import ControlRequests, read
from engine_adapter.client.decoding import NO_ENGINE
from engine_adapter.client.dialects import DIALECTS
from engine_adapter.client.engine_facts import (
    MAX_COUNT,
    MAX_NAME_CHARS,
    OTHER,
    SGLANG,
    VLLM,
    EngineFacts,
    NotAnEngine,
    read_facts,
)

_OWNERS: Final = {"vllm": VLLM, "sglang": SGLANG}
MAX_MODELS: Final = 256
"""Of one server; what it lists beyond them is left out."""


@dataclass(frozen=True)
class ForeignTerms:
    """What an operator says of engines that are not ours.

    Attributes:
        urls: Addresses of stock SGLang servers that are meant to run without our plugin.
        ttft_s: Target of the first token, for every engine that reports none.
        tbt_s: Target of a gap between two tokens.
        keys: API keys by address, of the servers that want one.
    """

    urls: frozenset[str] = frozenset()
    ttft_s: float = 1.0
    tbt_s: float = 0.1
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ForeignAnswers:
    """What a server without our plugin answered; none where it has no such route.

    Attributes:
        models: `/v1/models`.
        info: `/server_info`.
        model_info: `/model_info`.
        version: `/version`.
        metrics: The text of `/metrics`.
        chats: It has `/v1/chat/completions`.
        embeds: It has `/v1/embeddings`.
    """

    models: Any
    info: Any = None
    model_info: Any = None
    version: Any = None
    metrics: str = ""
    chats: bool = True
    embeds: bool = False


def kind_of(info: Any, models: Any) -> str:
    """What kind of server it is, by whom its first model is owned, or how it tells of itself."""
    owner = _first_card(models).get("owned_by")
    if owner in _OWNERS:
        return _OWNERS[owner]
    is_sglang = isinstance(info, Mapping) and "internal_states" in info
    return SGLANG if is_sglang else OTHER


def read_foreign(answers: ForeignAnswers, terms: ForeignTerms) -> EngineFacts:
    """Facts of a server that is not ours.

    Raises:
        NotAnEngine: It lists no model: it is no such server.
    """
    kind = kind_of(answers.info, answers.models)
    card = _first_card(answers.models)
    if not isinstance(card.get("id"), str) or not card["id"]:
        raise NotAnEngine("Its answer to /v1/models lists no model.")
    info = answers.info if kind == SGLANG and isinstance(answers.info, Mapping) else {}
    facts = read_facts(info, answers.models, answers.model_info)
    version = answers.version.get("version") if isinstance(answers.version, Mapping) else None
    return replace(
        facts,
        server=kind,
        version=facts.version or _short(version),
        embeds=facts.embeds or (answers.embeds and not answers.chats),
        reads_images=True,
        seeds=True,
        tool_call_parser="",
        priority_sign=_priority_sign(kind, info),
        targets_s=(terms.ttft_s, terms.tbt_s),
        queue=queue_of(answers.metrics, DIALECTS[kind].metrics),
        more_models=_more_models(answers.models, facts),
        raw={"coserve": {}, "device": ""},
    )


async def foreign_facts(
    control: ControlRequests, info: Any, models: Any, terms: ForeignTerms
) -> EngineFacts:
    """Facts of a server that is not ours, which has already told what it lists.

    Raises:
        EngineUnavailable: It does not answer, or is no such server.
    """
    chats = await control.has(CHAT_PATH)
    answers = ForeignAnswers(
        models,
        info,
        model_info=await control.told("/model_info"),
        version=await control.told("/version"),
        metrics=await control.text("/metrics"),
        chats=chats,
        embeds=not chats and await control.has(EMBEDDINGS_PATH),
    )
    try:
        return await read(len(answers.metrics), partial(read_foreign, answers, terms))
    except NotAnEngine as error:
        raise EngineUnavailable(f"{NO_ENGINE} {error}") from error


def queue_of(text: str, names: tuple[str, str] | None) -> tuple[int, int] | None:
    """Requests that wait and that run, out of metrics; summed over a server's engines."""
    found: dict[str, float] = {}
    for line in text.splitlines() if names else ():
        name, _, rest = line.partition("{") if "{" in line else line.partition(" ")
        if names and name in names:
            found[name] = found.get(name, 0.0) + _figure(rest)
    if names is None or found.keys() != set(names):
        return None
    waiting, running = (min(MAX_COUNT, max(0, int(found[name]))) for name in names)
    return waiting, running


def _figure(rest: str) -> float:
    try:
        figure = float(rest.rpartition("}")[2].split()[0])
    except (ValueError, IndexError):
        return 0.0
    return figure if math.isfinite(figure) else 0.0


def _priority_sign(kind: str, info: Mapping[str, Any]) -> int:
    """The sign: vLLM takes a priority and heeds it where it is told to; SGLang may refuse one."""
    if kind == VLLM:
        return -1
    if kind == SGLANG and info.get("enable_priority_scheduling") is True:
        return -1 if info.get("schedule_low_priority_values_first") is True else 1
    return 0


def _more_models(models: Any, facts: EngineFacts) -> dict[str, int]:
    """Those beside the first; one without a context of its own, an adapter, has its base's."""
    cards = [one for one in models["data"] if isinstance(one, Mapping)]
    contexts = {
        one["id"]: one.get("max_model_len")
        for one in cards
        if _short(one.get("id"), MAX_NAME_CHARS)
    }
    contexts.pop(facts.model, None)
    return {
        name: _context(told) or facts.context_tokens
        for name, told in list(contexts.items())[: MAX_MODELS - 1]
    }


def _context(told: Any) -> int:
    fits = isinstance(told, int) and not isinstance(told, bool) and 0 < told <= MAX_COUNT
    return told if fits else 0


def _first_card(models: Any) -> Mapping[str, Any]:
    cards = models.get("data") if isinstance(models, Mapping) else None
    first = cards[0] if isinstance(cards, list) and cards else None
    return first if isinstance(first, Mapping) else {}


def _short(text: Any, longest: int = 64) -> str:
    good = isinstance(text, str) and len(text) <= longest and text.isprintable()
    return text if good else ""
