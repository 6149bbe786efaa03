"""lm-eval scores a task of its own with a temperature, on an engine whose sampler takes no seed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import lm_eval
import pytest
from lm_eval.tasks import TaskManager

TASK: Final[dict[str, Any]] = {
    "task": "capitals",
    "dataset_path": "json",
    "test_split": "test",
    "output_type": "generate_until",
    "doc_to_text": "{{question}}",
    "doc_to_target": "{{answer}}",
    "generation_kwargs": {"until": ["\n\n"], "temperature": 0.7, "do_sample": True},
    "metric_list": [{"metric": "exact_match"}],
}
PATHS: Final = {
    "local-chat-completions": "chat/completions",
    "local-completions": "completions",
}


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("at_once", [1, 4])
def test_a_task(kind: str, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", os.environ["CONFORMANCE_KEY"])
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    questions = tmp_path / "test.jsonl"
    questions.write_text(
        "".join(
            json.dumps({"question": f"Which is {i}? fake:text=city{i}", "answer": f"city{i}"})
            + "\n"
            for i in range(6)
        )
    )
    task = {**TASK, "dataset_kwargs": {"data_files": {"test": str(questions)}}}
    done = lm_eval.simple_evaluate(
        model=kind,
        model_args={
            "model": os.environ["CONFORMANCE_GPU"],
            "base_url": f"{os.environ['CONFORMANCE_URL']}/v1/{PATHS[kind]}",
            "num_concurrent": at_once,
            "tokenizer_backend": None,
            "tokenized_requests": False,
        },
        tasks=[task],
        task_manager=TaskManager(include_defaults=False),
        apply_chat_template=kind == "local-chat-completions",
    )
    assert done is not None
    assert done["results"]["capitals"]["exact_match,none"] == 1.0
