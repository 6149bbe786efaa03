"""Where the things lie that several benchmarks use.

Imports the standard library alone: scripts that run in the engine's environment use it too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "bench" / "results"
DATA: Final = ROOT / "bench" / "data"

WORKLOADS: Final = ROOT.parent / "shared" / "workloads"
"""Traces, lengths and batches of others, beside the checkout; benchmarks do without what lacks."""

ENGINE_PYTHON: Final = ROOT / ".venv-engine" / "bin" / "python"
MODEL_DIR: Final = ROOT / ".coserve" / "models" / "SmolLM2-135M-Instruct"
"""The default model."""
