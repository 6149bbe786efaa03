"""The systems under test, by the names they have in every table and file.

The first three are stock SGLang with the co-serving plugin unloaded, so that a slow plugin cannot
flatter the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from engine_adapter.scheduling.policies.registry import LEVELLED
from engine_adapter.scheduling.policies.settings import Level

# SGLang's CPU engine needs our start-up fixes; no scheduler
STOCK_PLUGINS_CPU = "coserve_cpu,coserve_emulated"
STOCK_PLUGINS_NONE = "none"
SHARES = {"conserve-v2-early": 0.3, "conserve-v2-just-in-time": 1.0}
"""Of the TTFT target, for what first tokens are planned."""


@dataclass(frozen=True, slots=True)
class System:
    """One way to run the engine.

    Attributes:
        name: As printed.
        stock: The co-serving plugin stays unloaded.
        args: Arguments added to the engine's command.
        env: Environment added to the engine's.
        offline: Offline requests are sent at all.
        priority: Requests carry a priority.
        chunk_tokens: Overrides the common chunk size.
    """

    name: str
    stock: bool
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    offline: bool = True
    priority: bool = True
    chunk_tokens: int | None = None


_PRIORITY = ("--enable-priority-scheduling", "--default-priority-value", "0")


def _coserve(name: str, policy: str, **switches: str) -> System:
    return System(name, stock=False, env={"COSERVE_POLICY": policy, **switches})


SYSTEMS = {
    system.name: system
    for system in (
        System("online-only", stock=True, offline=False, priority=False),
        System("non-preemptive", stock=True, args=(*_PRIORITY, "--disable-priority-preemption")),
        System(
            "sglang-priority",
            stock=True,
            args=(
                *_PRIORITY,
                "--priority-scheduling-preemption-threshold",
                "0",
                "--retraction-policy",
                "priority",
            ),
        ),
        _coserve("conserve-v1", "conserve_v1"),
        _coserve("conserve-v2", "conserve_v2"),
        *(
            _coserve(name, "conserve_v2", COSERVE_TTFT_PLANNING_SHARE=str(share))
            for name, share in SHARES.items()
        ),
        _coserve(
            "conserve-v2-scheduler",
            "conserve_v2",
            COSERVE_SAFEPOINTS="0",
            COSERVE_CHECKPOINTS="0",
        ),
        _coserve("conserve-v2-safepoints", "conserve_v2", COSERVE_CHECKPOINTS="0"),
        _coserve("sarathi-p", "sarathi_p"),
        _coserve("coserve-online-only", "online_only"),
    )
}
REFERENCE = "online-only"
DEFAULT_SYSTEMS = (
    "online-only",
    "non-preemptive",
    "sglang-priority",
    "conserve-v1",
    "conserve-v2",
)
ABLATIONS = ("conserve-v2-scheduler", "conserve-v2-safepoints", "conserve-v2")


def priority_candidates() -> list[System]:
    """Settings of ``sglang-priority`` among which the best is chosen before the comparison."""
    return [
        find_system(f"sglang-priority@{chunk}{mixed}")
        for chunk in (128, 256, 512)
        for mixed in ("", "+mixed")
    ]


def at_levels(names: Sequence[str], levels: Sequence[str]) -> tuple[str, ...]:
    """These systems, those that have levels once for each of them."""
    found: list[str] = []
    for name in names:
        system = SYSTEMS.get(name)
        has_levels = system is not None and system.env.get("COSERVE_POLICY") == LEVELLED
        found += [f"{name}:{level}" for level in levels] if has_levels and levels else [name]
    return tuple(found)


def find_system(name: str) -> System:
    """The system of that name: stock ones also as ``NAME@CHUNK[+mixed]``, ours as ``NAME:LEVEL``.

    Raises:
        ValueError: If there is none; the message lists those there are.
    """
    known, _, level = name.partition(":")
    if ":" in name:
        ours = find_system(known)
        if level not in tuple(Level) or ours.env.get("COSERVE_POLICY") != LEVELLED:
            raise ValueError(f"{name!r}: only {LEVELLED} has levels: {', '.join(Level)}")
        return replace(ours, name=name, env={**ours.env, "COSERVE_LEVEL": level})
    base, _, setting = name.partition("@")
    chunk, _, mixed = setting.partition("+")
    system = SYSTEMS.get(base)
    if system is None or (setting and not (system.stock and chunk.isdecimal())):
        raise ValueError(f"unknown system {name!r}; choose among {', '.join(SYSTEMS)}")
    if not setting:
        return system
    if mixed not in ("", "mixed"):
        raise ValueError(f"{name!r}: after the chunk comes +mixed, or nothing")
    args = (*system.args, *(("--enable-mixed-chunk",) if mixed else ()))
    return replace(system, name=name, args=args, chunk_tokens=int(chunk))
