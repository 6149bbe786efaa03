"""Clients with an environment of their own, each at its defaults: one table.

The environment of NAME is made from `requirements/conformance` (coserve/setup/conformance.py), and
its scenario is `suites/NAME_scenario.py`. A client of Node is driven from Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

SUITES: Final = Path(__file__).parent / "suites"


@dataclass(frozen=True)
class Client:
    """One row of the table.

    Attributes:
        name: Of its environment and its part.
        does: What its scenario shows; docs/conformance.md says the same.
        real: The scenario also runs with a real model, which does not say what it is told to.
    """

    name: str
    does: str
    real: bool = False

    @property
    def scenario(self) -> Path:
        """The tests."""
        return SUITES / f"{self.name.replace('-', '_')}_scenario.py"


CLIENTS: Final = (
    Client("agno", "an agent calls a tool and answers in a form, by chat and by responses"),
    Client("autobatcher", "a job with a call of a tool, by background responses", real=True),
    Client("autogen", "an assistant calls a tool and answers in a form, whole and streamed"),
    Client("claude-code-router", "what Claude Code sends, with thinking, tools and streams"),
    Client("codex", "`codex exec` does a job with the shell, resumes it, and answers in a form"),
    Client("haystack", "an agent calls a tool, and a form, with a seed where no engine takes one"),
    Client("langchain", "an agent calls a tool and answers in a form, by both of its strategies"),
    Client("litellm", "its proxy passes chat, tools, responses, embeddings, files and batches on"),
    Client("lm-eval", "a task with a temperature, where no engine takes a seed"),
    Client("open-webui", "its server: models, chat, titles, tags, responses, files and a batch"),
    Client("outlines", "answers held to a type, an expression, a choice and a grammar"),
)
