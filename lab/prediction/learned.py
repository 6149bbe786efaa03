"""Gradient-boosted trees of scikit-learn over what is known of a request at its arrival.

Trained beside the engine's work, again and again, on the newest answers. Asking the trees one by
one would take milliseconds of a scheduler's thread. What goes in is coarse instead (lengths in
quarters of an octave), each training ends with a table of what the trees say to every prompt
length of the kinds of requests seen, and a prediction is a look-up. What is not in the table is
answered by the history.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import exp, log, log2
from typing import Any

from engine_adapter.scheduling.answer_lengths import Asked, History

REMEMBERED = 4096
PER_OCTAVE = 4
LONGEST_PROMPT = 20 * PER_OCTAVE
MOST_KINDS = 256

Kind = tuple[int, int, int]
Features = tuple[int, Kind]
Job = Callable[[], None]


def in_background(job: Job) -> None:
    """Run a training on a thread that ends with the process."""
    threading.Thread(target=job, name="length-training", daemon=True).start()


def at_once(job: Job) -> None:
    """Run a training before anything else: the same run gives the same numbers."""
    job()


class Learned:
    """Expects a quantile of the answer's length given its features.

    Args:
        quantile: Share of answers that shall be no longer than expected.
        train_every: Answers between two trainings.
        start: Runs a training; :func:`in_background` or :func:`at_once`.

    Raises:
        ImportError: If scikit-learn is not installed.
    """

    name = "learned"

    def __init__(
        self,
        quantile: float = 0.6,
        train_every: int = 512,
        start: Callable[[Job], None] = in_background,
    ) -> None:
        # Only where it is used: the import takes a second and 100 MB.
        from sklearn.ensemble import HistGradientBoostingRegressor

        self._make: Callable[[], Any] = lambda: HistGradientBoostingRegressor(
            loss="quantile",
            quantile=quantile,
            max_iter=60,
            max_leaf_nodes=15,
            min_samples_leaf=10,
            early_stopping=False,
            random_state=0,
        )
        self._history = History(quantile)
        self._seen: deque[tuple[Features, int]] = deque(maxlen=REMEMBERED)
        self._train_every = train_every
        self._untrained = 0
        self._start = start
        self._is_training = False
        self._said: dict[Features, float] = {}
        self.trainings = 0

    def expect(self, asked: Asked) -> int:
        """What the trees said to requests of this kind; the history where they were not asked."""
        said = self._said.get(self._features(asked))
        return self._history.expect(asked) if said is None else asked.bounded(said)

    def learn(self, asked: Asked, output_tokens: int) -> None:
        """Remember the answer; after enough of them, begin a training."""
        self._seen.append((self._features(asked), output_tokens))
        self._history.learn(asked, output_tokens)
        self._untrained += 1
        if self._untrained >= self._train_every and not self._is_training:
            self._untrained, self._is_training = 0, True
            samples = list(self._seen)
            self._start(lambda: self._train(samples))

    def _train(self, samples: Sequence[tuple[Features, int]]) -> None:
        try:
            trees = self._make()
            trees.fit(_table(features for features, _ in samples), [log(n) for _, n in samples])
            newest = dict.fromkeys(kind for (_, kind), _ in reversed(samples))
            kinds = list(newest)[:MOST_KINDS]
            asked = [(prompt, kind) for kind in kinds for prompt in range(LONGEST_PROMPT)]
            said = trees.predict(_table(asked))
            self._said = {key: exp(value) for key, value in zip(asked, said, strict=True)}
            self.trainings += 1
        finally:
            self._is_training = False

    def _features(self, asked: Asked) -> Features:
        typical = self._history.expect(asked)
        kind = (
            _octaves(asked.max_output_tokens),
            _octaves(typical),
            round(4.0 * asked.temperature),
        )
        return _octaves(asked.prompt_tokens), kind


def _table(features: Iterable[Features]) -> list[tuple[int, ...]]:
    return [(prompt, *kind) for prompt, kind in features]


def _octaves(tokens: int) -> int:
    return round(PER_OCTAVE * log2(max(1, tokens)))
