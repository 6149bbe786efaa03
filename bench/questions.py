"""How well, and how soon, small models answer 50 questions: which is the default, and why.

    python -m bench.questions [FOLDER ...] [--word-problems 10]
    python -m bench.questions --write questions_1_thread
    python -m bench.questions --threads 2 --write questions_2_threads

40 multiple-choice questions (MMLU) and 10 plain ones of our own, which alone are asked where the
shared sets are missing; with `--word-problems` some of GSM8K too, which take half a minute each.
Each model is asked one question at a time, at temperature 0 and once more with what its own
`generation_config.json` says; one without a chat template goes on after `Answer:`. Simple rules
judge: the first letter from A to D that stands alone, the number after `####` or else the last, or
a word that the answer contains. FOLDER is a Hugging Face folder; without one the default model is
asked.

Quoted in docs/engine.md.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from bench.coserve_bench.engine_run import running_engine
from bench.coserve_bench.systems import find_system
from bench.paths import ENGINE_PYTHON, MODEL_DIR, WORKLOADS
from bench.report import option_parser, report, scratch_folder
from engine_adapter.client.base import CHAT_PATH, COMPLETIONS_PATH
from engine_adapter.engine_process import EngineSettings
from engine_adapter.model_family import chat_template

CHOICES: Final = 40
WAYS: Final[dict[str, dict[str, Any]]] = {"temperature_0": {"temperature": 0}, "its_own": {}}
PLAIN_TOKENS: Final = 32
LIMIT_S: Final = 120.0

# A question, and words of which the answer must hold one.
PLAIN: Final = (
    ("What is the capital of France?", ("paris",)),
    ("What is two plus two?", ("4", "four")),
    ("Which planet do we live on?", ("earth",)),
    ("What colour is the sky on a clear day?", ("blue",)),
    ("How many days has a week?", ("7", "seven")),
    ("Who wrote Romeo and Juliet?", ("shakespeare",)),
    ("What do bees make?", ("honey",)),
    ("Is fire hot or cold?", ("hot",)),
    ("What is the opposite of up?", ("down",)),
    ("In which country is Tokyo?", ("japan",)),
)


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes:
        kind: The set it is of; it says how an answer is judged.
        body: What is asked, as a chat, without model and temperature.
        right: What a right answer is, or may contain.
    """

    kind: str
    body: dict[str, Any]
    right: tuple[str, ...]


def judged(question: Question, answer: str) -> bool:
    """Whether an answer is right."""
    if question.kind == "mmlu":
        letter = re.search(r"\b([A-D])\b", answer)
        return letter is not None and letter[1] in question.right
    if question.kind == "gsm8k":
        plain = answer.replace(",", "")
        marked = re.search(r"####\D*?(-?\d+(?:\.\d+)?)", plain)
        numbers = [marked[1]] if marked else re.findall(r"-?\d+(?:\.\d+)?", plain)[-1:]
        return any(float(number) == float(question.right[0]) for number in numbers)
    words = re.findall(r"\w+", answer.casefold())
    return any(right in words for right in question.right)


def questions(workloads: Path, word_problems: int = 0) -> Iterator[Question]:
    """All of them; those of the shared sets only where they lie."""
    shared = (("mmlu", "mmlu_700", CHOICES), ("gsm8k", "gsm8k_test_800", word_problems))
    for kind, name, count in shared:
        asked = workloads / "batch" / f"{name}.jsonl"
        if not asked.is_file():
            continue
        lines = [orjson.loads(line) for line in asked.read_bytes().splitlines()]
        answers = asked.with_suffix(".answers.jsonl").read_bytes().splitlines()
        right = {one["custom_id"]: one["answer"] for one in map(orjson.loads, answers)}
        for line in lines[:count]:
            kept = {key: line["body"][key] for key in ("messages", "max_tokens")}
            yield Question(kind, kept, (str(right[line["custom_id"]]),))
    for text, words in PLAIN:
        messages = [{"role": "user", "content": text}]
        yield Question("plain", {"messages": messages, "max_tokens": PLAIN_TOKENS}, words)


async def answer(client: aiohttp.ClientSession, url: str, body: dict[str, Any], chats: bool) -> str:
    """What the model says to one question."""
    if not chats:
        text = "\n\n".join(message["content"] for message in body.pop("messages"))
        body |= {"prompt": f"{text.removesuffix('Answer:')}\nAnswer:", "stop": ["\n\n"]}
    async with client.post(url + (CHAT_PATH if chats else COMPLETIONS_PATH), json=body) as reply:
        reply.raise_for_status()
        (choice,) = (await reply.json())["choices"]
    return (choice["message"]["content"] if chats else choice["text"]) or ""


async def asked(url: str, folder: Path, all_questions: list[Question]) -> dict[str, Any]:
    """Figures of one model, by way of sampling."""
    model, chats = folder.name, bool(chat_template(folder))
    figures: dict[str, Any] = {}
    timeout = aiohttp.ClientTimeout(total=LIMIT_S)
    async with aiohttp.ClientSession(timeout=timeout) as client:
        for way, fields in WAYS.items():
            right = dict.fromkeys((one.kind for one in all_questions), 0)
            took_s: dict[str, list[float]] = {kind: [] for kind in right}
            for one in all_questions:
                began_s = time.monotonic()
                said = await answer(client, url, {"model": model, **one.body, **fields}, chats)
                took_s[one.kind].append(time.monotonic() - began_s)
                right[one.kind] += judged(one, said)
            figures[way] = {
                "right": sum(right.values()),
                "right_by_set": right,
                "p50_s_by_set": {k: round(statistics.median(v), 2) for k, v in took_s.items()},
                "mean_s": round(statistics.mean(s for v in took_s.values() for s in v), 2),
            }
            print(f"  {model}, {way}: {figures[way]}", flush=True)
    return figures


async def measured(folder: Path, threads: int, all_questions: list[Question]) -> dict[str, Any]:
    """Start an engine with a model and ask it."""
    settings = EngineSettings(
        python=ENGINE_PYTHON,
        model_dir=folder,
        port=0,
        kv_tokens=16_384,
        max_running=4,
        num_threads=threads,
    )
    with scratch_folder() as work:
        env = {"COSERVE_PROFILE_DIR": str(work / "profiles")}
        stock = find_system("online-only")
        async with running_engine(settings, stock, env, work / "engine.log") as engine:
            return await asked(engine.url, folder, all_questions)


def main() -> int:
    """Ask every model and write down what came of it."""
    parser = option_parser(__doc__)
    parser.add_argument("folders", nargs="*", type=Path, default=[MODEL_DIR])
    parser.add_argument("--workloads", type=Path, default=WORKLOADS)
    parser.add_argument("--word-problems", type=int, default=0, metavar="NUMBER")
    parser.add_argument("--threads", type=int, default=1, help="of the engine, for products")
    parser.add_argument("--write", default="questions", metavar="NAME", help="in bench/results")
    options = parser.parse_args()
    all_questions = list(questions(options.workloads, options.word_problems))
    figures: dict[str, Any] = {"questions": len(all_questions), "threads": options.threads}
    for folder in options.folders:
        figures[folder.name] = asyncio.run(
            measured(folder.resolve(), options.threads, all_questions)
        )
    return report(options.write, figures)


if __name__ == "__main__":
    sys.exit(main())
