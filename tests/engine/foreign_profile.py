"""A scheduler whose stored profile is another device's.

``python foreign_profile.py FOLDER``: the first run leaves such a profile and the model there and
prints this device; the second starts on both. Runs in the engine's venv.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

os.environ["COSERVE_PROFILE_DIR"] = sys.argv[1]
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine_adapter.scheduling.latency import Coefficients
from engine_adapter.scheduling.profile import Profile, save_profile
from tests.engine.scheduler_rig import NUM_LAYERS, Rig, tiny_llama

GUESS = Coefficients(1e-4, 0.0, 1e-7, 0.0, 1e-4, 1e-3)

folder = Path(sys.argv[1])
model = folder / "model"
is_first = not model.exists()
rig = Rig(model=tiny_llama(model) if is_first else model)
if is_first:
    key = rig.scheduler.profiler._key
    other = Profile(replace(key, device="NVIDIA H100"), GUESS, GUESS, GUESS, num_layers=NUM_LAYERS)
    save_profile(other, folder).rename(folder / key.file_name())
    print("RESULTS " + json.dumps(asdict(key)))
