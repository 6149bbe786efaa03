"""How near a batch's quote is to what it comes to.

    python -m bench.quotes

Answers: the recorded lengths of ShareGPT, ServeGen and arXiv summaries, cut into batches of 40 rows
in their order; each is quoted by those before it, at most as many as the service looks at. Prompts:
the batch files that lie beside the checkout, as the check of a file estimates them, beside what the
tokenizer and chat template of the default model say. An error is a share of what was so.

Quoted in docs/benchmark-batch.md.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

import orjson

from batch.intake.check import FileCheck
from batch.intake.quote import Contents
from bench.paths import ENGINE_PYTHON, MODEL_DIR, WORKLOADS
from bench.report import at_most, option_parser, report
from store.repositories.progress import HISTORY_BATCHES

ROWS: Final = 40
MAX_ERROR: Final = 0.25

_COUNT: Final = """
import sys, json
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
def count(body):
    if "prompt" in body:
        return len(tokenizer(body["prompt"]).input_ids)
    messages = body["messages"]
    return len(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True,
                                             return_dict=True)["input_ids"])
print(sum(count(json.loads(line)["body"]) for line in sys.stdin))
"""


def main() -> int:
    """Of lengths and of files that lie beside the checkout; a kind that lacks is left out."""
    option_parser(__doc__).parse_args()
    errors: dict[str, list[float]] = {}
    for path in sorted((WORKLOADS / "lengths").glob("*.csv")):
        errors[f"answers_{path.stem}"] = list(answer_errors(path))
    for path in sorted((WORKLOADS / "batch").rglob("*.jsonl")):
        if not path.stem.endswith("answers"):
            errors[f"prompts_{path.stem}"] = [prompt_error(path)]
    measured: dict[str, Any] = {
        f"{name}_error": round(median(found), 3) for name, found in errors.items()
    }
    measured["median_error"] = median(measured.values())
    return report("quotes", measured, {"median_error": at_most(MAX_ERROR)})


def answer_errors(path: Path) -> Iterator[float]:
    """The error of each batch but the first."""
    with path.open() as file:
        lengths = [int(row["output_tokens"]) for row in csv.DictReader(file)]
    batches = [lengths[begin : begin + ROWS] for begin in range(0, len(lengths) - ROWS + 1, ROWS)]
    for place, batch in enumerate(batches[1:], 1):
        past = [one for each in batches[max(0, place - HISTORY_BATCHES) : place] for one in each]
        contents = Contents(ROWS, ROWS, 0, 0, 0, [(None, ROWS)])
        expected = contents.answer_tokens(sum(past) / len(past))
        yield abs(expected - sum(batch)) / sum(batch)


def prompt_error(path: Path) -> float:
    """The error of a file's estimated prompt tokens."""
    data = path.read_bytes()
    check = FileCheck(orjson.loads(data.split(b"\n", 1)[0])["url"])
    check.feed(data)
    estimated = check.finish().rows.num_tokens
    counted = subprocess.run(
        [ENGINE_PYTHON, "-c", _COUNT, MODEL_DIR], input=data, capture_output=True, check=True
    )
    num_tokens = int(counted.stdout)
    return abs(estimated - num_tokens) / num_tokens


if __name__ == "__main__":
    sys.exit(main())
