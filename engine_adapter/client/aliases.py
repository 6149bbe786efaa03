"""Further names of models: each stands for a model, and for another one while that is away."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from api.numbers import ModelSizes
from api.shared_rules import SERVED_TIERS

Aliases = Mapping[str, Sequence[str]]


def parse_aliases(text: str) -> dict[str, tuple[str, ...]]:
    """`name=model|fallback@tier, ...` as models by name, the preferred one first.

    Raises:
        ValueError: It has another form, an alias stands for an alias, or there is no such tier.
    """
    return {name: models for name, (models, _) in _parsed(text).items()}


def parse_tiers(text: str) -> dict[str, str]:
    """The default service tiers of the aliases that have one.

    Raises:
        ValueError: As `parse_aliases`.
    """
    return {name: tier for name, (_, tier) in _parsed(text).items() if tier}


def _parsed(text: str) -> dict[str, tuple[tuple[str, ...], str]]:
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, rest = part.partition("=")
        models, at, tier = (piece.strip() for piece in rest.partition("@"))
        wanted = tuple(model.strip() for model in models.split("|"))
        if not name.strip() or not all(wanted):
            raise ValueError(f"{part!r} is not of the form name=model or name=model|fallback@tier")
        if at and tier not in SERVED_TIERS:
            raise ValueError(f"the tier of {part!r} is none of {', '.join(SERVED_TIERS)}")
        if name.strip() in found:
            raise ValueError(f"the alias {name.strip()!r} is there twice")
        found[name.strip()] = wanted, tier
    for name, (wanted, _) in found.items():
        for model in wanted:
            if model in found:
                raise ValueError(f"the alias {name!r} stands for {model!r}, which is an alias")
    return found


def stands_for(name: str, aliases: Aliases, known: Collection[str]) -> str:
    """The model that a name stands for: an alias' first one that is known, else its first."""
    wanted = aliases.get(name)
    if not wanted:
        return name
    return next((model for model in wanted if model in known), wanted[0])


def sizes_of_aliases(aliases: Aliases, sizes: Mapping[str, ModelSizes]) -> dict[str, ModelSizes]:
    """The sizes of what each alias stands for, where they are known."""
    models = {alias: stands_for(alias, aliases, sizes) for alias in aliases}
    return {alias: sizes[model] for alias, model in models.items() if model in sizes}
