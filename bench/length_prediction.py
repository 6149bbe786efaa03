"""How good length predictors are, and what a prediction costs.

    python -m bench.length_prediction [--lengths FILE ...]

Two groups of requests arrive in turn, chat with a wide spread and a batch whose answers grow with
their prompts; files of real lengths (`input_tokens,output_tokens`) replace them. Each answer is
predicted before it is learned from. Counted over the second half:

- accuracy: within 15 % of the truth (EcoServe, section 2.3);
- over and under: tokens predicted too many and too few, as a share of all tokens;
- calibration: share of answers no longer than predicted; asked for is the quantile, 60 %.

Quoted in docs/length-prediction.md.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.report import option_parser, report
from engine_adapter.scheduling.answer_lengths import Asked
from lab.prediction.registry import NAMES, simulated_predictor
from lab.workload.lengths import read_lengths

NUM_REQUESTS = 6000
PREDICTORS = (*NAMES, "noisy_oracle:0.75")
Sample = tuple[str, int, int]


def drawn(seed: int) -> Iterator[Sample]:
    """Chat beside a batch of summaries, for ever."""
    chance = random.Random(seed)
    while True:
        yield (
            "chat",
            int(chance.lognormvariate(5.0, 1.0)) + 1,
            int(chance.lognormvariate(5.2, 0.9)) + 1,
        )
        prompt = int(chance.uniform(500, 4000))
        yield "summaries", prompt, int(prompt / 12 * chance.lognormvariate(0.0, 0.25)) + 1


def from_files(paths: Sequence[Path], seed: int) -> Iterator[Sample]:
    """Pairs of each file in turn, for ever."""
    chance = random.Random(seed)
    pairs = {path.stem: read_lengths(path) for path in paths}
    while True:
        for name, found in pairs.items():
            yield name, *chance.choice(found)


def measure(name: str, samples: Iterator[Sample]) -> dict[str, float]:
    """Predict, then learn, one request after the other."""
    truths: dict[str, int] = {}
    predictor = simulated_predictor(name, truths.__getitem__)
    near = over = under = total = below = 0
    taken: list[float] = []
    for number in range(NUM_REQUESTS):
        group, prompt, answer = next(samples)
        asked = Asked(f"{number}", prompt, 4096, group)
        truths[asked.rid] = answer
        begun = time.perf_counter()
        said = predictor.expect(asked)
        taken.append(time.perf_counter() - begun)
        predictor.learn(asked, answer)
        if number < NUM_REQUESTS // 2:
            continue
        near += answer / 1.15 <= said <= answer * 1.15
        over += max(0, said - answer)
        under += max(0, answer - said)
        below += answer <= said
        total += answer
    half = NUM_REQUESTS - NUM_REQUESTS // 2
    taken.sort()
    return {
        "accuracy": near / half,
        "over": over / total,
        "under": under / total,
        "calibration": below / half,
        "ask_p50_us": taken[len(taken) // 2] * 1e6,
        "ask_p99_us": taken[int(0.99 * len(taken))] * 1e6,
    }


def main() -> int:
    """Print a row a predictor and keep the figures."""
    parser = option_parser(__doc__)
    parser.add_argument("--lengths", type=Path, nargs="*", default=[])
    paths = parser.parse_args().lengths
    measured = {}
    print(
        f"{'predictor':20}{'accuracy':>9}{'over':>7}{'under':>7}{'calibr.':>9}{'us':>7}"
        f"{'p99 us':>8}"
    )
    for name in PREDICTORS:
        samples = from_files(paths, 1) if paths else drawn(1)
        row = measure(name, samples)
        measured[name] = {key: round(value, 3) for key, value in row.items()}
        shares = [row[key] for key in ("accuracy", "over", "under", "calibration")]
        print(
            f"{name:20}{shares[0]:9.1%}{shares[1]:7.0%}{shares[2]:7.0%}{shares[3]:9.1%}"
            f"{row['ask_p50_us']:7.1f}{row['ask_p99_us']:8.1f}"
        )
    return report("length_prediction", measured)


if __name__ == "__main__":
    sys.exit(main())
