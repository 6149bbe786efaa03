"""The scenarios on another family of models. Runs in the engine's venv.

``python coserving_families.py FAMILY SCENARIO...``; prints what `coserving_scenarios.py` does, and
what the engine says of its level.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sglang.srt.models.deepseek_common.attention_backend_handler import AttentionBackendRegistry
from sglang.srt.models.deepseek_common.attention_forward_methods import AttnForwardMethod

from tests.engine.coserving_scenarios import SCENARIOS
from tests.engine.scenario_steps import report
from tests.engine.scheduler_rig import Rig
from tests.engine.tiny_models import tiny_model


def level(rig: Rig) -> dict[str, Any]:
    """What the engine says of itself."""
    told: dict[str, Any] = rig.scheduler.coserving.to_plain()
    return told


def main() -> None:
    family, names = sys.argv[1], sys.argv[2:]
    if family.startswith("deepseek"):
        # SGLang's attention on a CPU reads the cache, which holds the latent: as decoding does.
        AttentionBackendRegistry.register("torch_native", lambda *_: AttnForwardMethod.MLA)
    model = tiny_model(family, Path(tempfile.mkdtemp(prefix="coserve-family-")) / "model")
    report(
        [level, *(one for one in SCENARIOS if one.__name__ in names)],
        Rig(model=model, page_size=16),
    )


if __name__ == "__main__":
    main()
