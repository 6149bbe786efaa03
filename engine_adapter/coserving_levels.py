"""How far an engine of ours co-serves: what limits it, and the level that is left.

    3  steps sized by latency; offline requests are taken out of a running step; KV goes to the host
    2  a step of offline requests stops between two layers; who gives way may compute again
    1  steps sized by latency, no stop inside
    0  SGLang's own scheduler; rows of batches enter as chat leaves room

Each form of a model, of its KV pool or of SGLang's features that something is not proven for is one
row of `LIMITS`. An engine has the highest level that no row of its own takes away, and does
everything else that is proven: a limit on copies stops no stops.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

FULL_LEVEL: Final = 3


class Ability(StrEnum):
    """Something that co-serving does, and that a form may stand against."""

    STEPS = "steps"
    """Our plan composes each step. Without it there is nothing of the rest."""
    STOPS = "stops"
    """A step of offline requests alone is stopped between two layers and undone."""
    DROPS = "drops"
    """Offline requests are taken out of a step that goes on with the online ones."""
    COPIES = "copies"
    """KV is copied to the host, and back."""


NEEDS: Final = {Ability.STEPS: 1, Ability.STOPS: 2, Ability.DROPS: 3, Ability.COPIES: 3}
"""The lowest level that has an ability."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One form that co-serving does not do everything with.

    Attributes:
        form: What it is, as tables name it.
        lacks: What is not done with it.
        why: A sentence; `{}` stands for what was found.
    """

    form: str
    lacks: frozenset[Ability]
    why: str

    @property
    def level(self) -> int:
        """The highest level beside it."""
        return min(NEEDS[ability] for ability in self.lacks) - 1


ALL: Final = frozenset(Ability)
NO_COPIES: Final = frozenset({Ability.COPIES})
NO_STOPS: Final = frozenset({Ability.STOPS, Ability.DROPS})
STEPS_ALONE: Final = NO_STOPS | NO_COPIES
NO_DROPS: Final = frozenset({Ability.DROPS})

OTHER_CACHE: Final = "{} is set, and plans count the pages of SGLang's plain prefix cache alone."
OTHER_CHOICE: Final = "{} is set, and with it SGLang decides what a step computes."

LIMITS: Final[dict[str, Limit]] = {
    # --- how SGLang was told to run
    "policy": Limit("`COSERVE_POLICY=off`", ALL, "The engine was started with COSERVE_POLICY=off."),
    "speculative": Limit(
        "speculative decoding",
        ALL,
        "With speculative decoding a step yields several tokens of a request; plans count one.",
    ),
    "lora": Limit(
        "LoRA adapters",
        ALL,
        "With LoRA a step holds requests of few adapters, which plans do not count.",
    ),
    "cache": Limit(
        "hierarchical and external caches, another prefix cache or none",
        ALL,
        OTHER_CACHE,
    ),
    "admission": Limit(
        "SGLang's priority scheduling, prefill interval, overlapped batches and sessions",
        ALL,
        OTHER_CHOICE,
    ),
    "diffusion": Limit(
        "diffusion language models",
        ALL,
        "A block of tokens is computed over several passes, which plans do not count.",
    ),
    "experts": Limit(
        "experts spread with `--moe-a2a-backend`",
        ALL,
        "Ranks exchange tokens inside each layer, and every rank must have as many as it was told.",
    ),
    "align": Limit(
        "`--enable-deterministic-inference` with an attention backend other than fa3",
        ALL,
        "This attention backend wants prompts cut at multiples of {} tokens, and co-serving cuts "
        "them anywhere; start the engine with --attention-backend fa3 for level 3.",
    ),
    # --- the model
    "embeddings": Limit(
        "models that make no text", ALL, "It makes no text: a request is over in one step."
    ),
    "ngram": Limit(
        "n-gram embeddings",
        ALL,
        "Its n-gram embeddings read tokens of the step before, which a request that gave way has "
        "not run in.",
    ),
    "state": Limit(
        "state-space layers",
        ALL,
        "Its state-space layers change a request's state in place: a stopped step cannot be "
        "undone, and a shorter prompt has no state to go on from.",
    ),
    "window": Limit(
        "sliding windows with a KV pool of their own",
        ALL,
        "Its sliding-window layers have a KV pool of their own; start the engine with "
        "--disable-hybrid-swa-memory for a higher level, which keeps all of their KV.",
    ),
    "layers": Limit(
        "decoder layers that take other arguments",
        NO_DROPS,
        "{}: requests cannot be taken out between its layers.",
    ),
    "no layers": Limit(
        "decoder layers that are not found",
        NO_STOPS,
        "Its decoder layers are not where coserve looks for them: no step stops inside.",
    ),
    # --- its KV
    "tree": Limit("another prefix tree", ALL, "coserve does not know the prefix tree {}."),
    "pool": Limit("another KV pool", ALL, "coserve does not know the KV pool {}."),
    "latent": Limit(
        "latent KV with an index or in another layout",
        STEPS_ALONE,
        "Its latent KV is kept in {}: neither stops nor copies have been tried with it.",
    ),
    "scales": Limit(
        "KV with scales of its own (fp4, mxfp8)",
        STEPS_ALONE,
        "Its KV has scales of its own: neither stops nor copies have been tried with them.",
    ),
    "shapes": Limit(
        "keys and values of different shapes",
        NO_COPIES,
        "Its keys and values have different shapes, which are not copied: who gives way computes "
        "again.",
    ),
    "page": Limit(
        "pages of other than 1, 2, 4, 8 or 16 tokens",
        NO_COPIES,
        "Its KV pages have {} tokens: copies need --page-size 1, 2, 4, 8 or 16.",
    ),
}
"""What co-serving is limited by, by a short name."""


@dataclass(frozen=True, slots=True)
class Found:
    """A limit that an engine has.

    Attributes:
        limit: Which.
        what: What its sentence names.
    """

    limit: Limit
    what: str = ""

    @property
    def why(self) -> str:
        """The sentence."""
        return self.limit.why.format(self.what)


def found(name: str, what: object = "") -> Found:
    """A limit by its name in `LIMITS`."""
    return Found(LIMITS[name], str(what))


@dataclass(frozen=True, slots=True)
class Coserving:
    """What one engine does.

    Attributes:
        limits: What it is limited by, the most important first.
    """

    limits: tuple[Found, ...] = field(default=())

    @classmethod
    def of(cls, limits: Iterable[Found]) -> Coserving:
        """Of an engine with these limits."""
        return cls(tuple(limits))

    def can(self, ability: Ability) -> bool:
        """Whether it does this."""
        return not any(ability in one.limit.lacks for one in self.limits)

    @property
    def level(self) -> int:
        """The highest that nothing stands against."""
        return min((one.limit.level for one in self.limits), default=FULL_LEVEL)

    @property
    def reasons(self) -> dict[str, str]:
        """A sentence for each level that is missing; levels are text, as in JSON."""
        missing = range(self.level + 1, FULL_LEVEL + 1)
        return {
            str(level): next(one.why for one in self.limits if one.limit.level < level)
            for level in missing
        }

    def to_plain(self) -> dict[str, Any]:
        """Its entries of the engine's report."""
        return {"coserving_level": self.level, "coserving_reasons": self.reasons}
