"""A figure of a paper beside ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from bench.reproduce.world import Figures

Cell = Mapping[str, Figures]
"""Figures of one seed, by the name of the system."""
NEAR = 0.30


@dataclass(frozen=True)
class Figure:
    """One number of a paper.

    Attributes:
        what: In words.
        where: Section, figure or table.
        paper: Its number; a bound where ``bound`` says so.
        ours: From the systems of one seed.
        bound: ``"<="`` or ``">="`` if the paper claims a bound, not a number.
    """

    what: str
    where: str
    paper: float
    ours: Callable[[Cell], float]
    bound: str = ""

    def holds(self, mean: float) -> bool:
        """Whether ours is within 30 % of the paper's, or inside its bound."""
        if self.bound == "<=":
            return mean <= self.paper
        if self.bound == ">=":
            return mean >= self.paper
        return abs(mean / self.paper - 1.0) <= NEAR if self.paper else abs(mean) < NEAR


@dataclass(frozen=True)
class Order:
    """Systems in the order a paper puts them, the best first.

    Attributes:
        what: What they are ordered by.
        where: Figure.
        systems: The best first.
        key: Larger is better, or smaller with ``least``.
        least: Smaller is better.
    """

    what: str
    where: str
    systems: tuple[str, ...]
    key: str
    least: bool = True

    def values(self, cells: list[Cell]) -> list[float]:
        """Means over seeds, in the paper's order."""
        return [sum(c[name][self.key] for c in cells) / len(cells) for name in self.systems]

    def holds(self, cells: list[Cell]) -> bool:
        """Whether each is at least as good as the next, within a hundredth."""
        values = self.values(cells)
        pairs = list(pairwise(values))
        if self.least:
            return all(a <= 1.01 * b for a, b in pairs)
        return all(1.01 * a >= b for a, b in pairs)


@dataclass(frozen=True)
class Experiment:
    """One set-up of a paper: what is run for each seed, and what is read off it.

    Attributes:
        paper: Short name.
        name: Of the experiment.
        setup: In words, ours beside the paper's.
        run: Figures by system for a seed.
        figures: The paper's numbers.
        orders: The paper's orders.
        why: What the experiments of the second table say about ratios that are off.
    """

    paper: str
    name: str
    setup: str
    run: Callable[[int], Cell]
    figures: tuple[Figure, ...] = ()
    orders: tuple[Order, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Change:
    """One thing set otherwise, and the same systems run again."""

    what: str
    run: Callable[[int], Cell]


@dataclass(frozen=True)
class Explanation:
    """Why figures of an experiment are not near, by experiment.

    Attributes:
        of: The experiment.
        figures: Numbers of its figures, from 1.
        changes: One set-up each.
        why: What they show.
    """

    of: Experiment
    figures: tuple[int, ...]
    changes: tuple[Change, ...]
    why: str

    @property
    def paper(self) -> str:
        """The experiment's."""
        return self.of.paper

    @property
    def name(self) -> str:
        """The experiment's, and what this is."""
        return f"{self.of.name}, explained"

    def run(self, seed: int) -> Cell:
        """Figures by change and system."""
        made: dict[str, Figures] = {}
        for number, change in enumerate(self.changes):
            for system, figures in change.run(seed).items():
                made[f"{number}/{system}"] = dict(figures)
        return made

    def cells(self, cells: list[Cell], number: int) -> list[Cell]:
        """What one change found, seed by seed."""
        head = f"{number}/"
        return [
            {
                key.removeprefix(head): figures
                for key, figures in cell.items()
                if key.startswith(head)
            }
            for cell in cells
        ]


def ratio(above: str, key: str, below: str) -> Callable[[Cell], float]:
    """One system's figure over another's."""
    return lambda cell: cell[above][key] / cell[below][key] if cell[below][key] else float("inf")


def value(system: str, key: str) -> Callable[[Cell], float]:
    """One system's figure."""
    return lambda cell: cell[system][key]


def less(system: str, key: str, than: str) -> Callable[[Cell], float]:
    """By what share a figure is smaller than another system's, in percent."""
    return lambda cell: 100.0 * (1.0 - cell[system][key] / cell[than][key])
