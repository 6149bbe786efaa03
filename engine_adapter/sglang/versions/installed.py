"""The family of the SGLang that is installed here: ``from …versions.installed import seam``."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING

from engine_adapter.sglang.versions import FAMILIES, family_of

if TYPE_CHECKING:
    from engine_adapter.sglang.versions import v0_5_16, v0_5_22
    from engine_adapter.sglang.versions.protocol import Seam

    _all_alike: tuple[Seam, ...] = (v0_5_16, v0_5_22)

_family = FAMILIES[family_of(version("sglang"))]
seam: Seam = importlib.import_module(f"{__package__}.{_family}")
