"""Stored latency models: one JSON file per model, device, parallelism and SGLang version."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine_adapter.scheduling.fit import Fit, FitError
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.plan import StepKind

FORMAT = 8


class ProfileError(ValueError):
    """A stored profile cannot be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class ProfileKey:
    """What a profile is valid for.

    Attributes:
        model: Model name or path as served.
        device: Device in words, for example ``"AMD EPYC, 1 threads"`` or ``"NVIDIA H100"``.
        parallelism: For example ``"tp1"``.
        sglang_version: Version of the engine it was measured with.
        dtype: Weight type.
        executor: What else decides how long a step takes: the model's shape, attention kernels,
            chunk size, captured graphs.
    """

    model: str
    device: str
    parallelism: str
    sglang_version: str
    dtype: str = "auto"
    executor: str = ""

    def file_name(self) -> str:
        """A readable file name, made unique by a short hash of the exact key."""
        text = "--".join(
            (Path(self.model).name, self.device, self.parallelism, self.dtype, self.sglang_version)
        )
        # A profile of another format is not found, and so measured again.
        exact = json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True)
        digest = hashlib.sha256(exact.encode()).hexdigest()
        return f"{re.sub(r'[^A-Za-z0-9._-]+', '_', text)[:100]}-{digest[:8]}.json"


@dataclass(frozen=True, slots=True)
class Profile:
    """A fitted model with its provenance.

    Attributes:
        key: What it is valid for.
        decode: Coefficients of decode-only steps.
        prefill: Coefficients of prefill-only steps.
        mixed: Coefficients of mixed steps.
        decode_row_steps: Request counts of captured decode graphs.
        prefill_token_steps: Token counts of captured prefill graphs.
        eager_prefill: Coefficients of prefill-only steps outside those; None where there are none.
        eager_mixed: The same of mixed steps.
        held_out: Errors on loads the fit had not seen, per step kind.
        num_layers: Decoder layers, for turning safepoint intervals into layers.
        measured_at: ISO instant of the measurement, as given by the profiler.
    """

    key: ProfileKey
    decode: Coefficients
    prefill: Coefficients
    mixed: Coefficients
    decode_row_steps: tuple[int, ...] = ()
    prefill_token_steps: tuple[int, ...] = ()
    eager_prefill: Coefficients | None = None
    eager_mixed: Coefficients | None = None
    held_out: Mapping[str, FitError] = field(default_factory=dict)
    num_layers: int = 1
    measured_at: str = ""

    def model(self) -> PolynomialModel:
        """The model policies predict with."""
        return PolynomialModel(
            self.decode,
            self.prefill,
            self.mixed,
            self.decode_row_steps,
            self.prefill_token_steps,
            self.eager_prefill,
            self.eager_mixed,
        )

    @classmethod
    def from_fit(
        cls,
        key: ProfileKey,
        fit: Fit,
        *,
        num_layers: int = 1,
        measured_at: str = "",
    ) -> Profile:
        """Wrap a finished fit."""
        return cls(
            key=key,
            decode=fit.model.decode,
            prefill=fit.model.prefill,
            mixed=fit.model.mixed,
            decode_row_steps=fit.model.decode_row_steps,
            prefill_token_steps=fit.model.prefill_token_steps,
            eager_prefill=fit.model.eager_prefill,
            eager_mixed=fit.model.eager_mixed,
            held_out={str(kind): error for kind, error in fit.held_out.items()},
            num_layers=num_layers,
            measured_at=measured_at,
        )


def save_profile(profile: Profile, folder: Path) -> Path:
    """Write the profile under its key's file name; a reader never sees half a file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / profile.key.file_name()
    part = path.with_suffix(f".{os.getpid()}.part")  # two engines may have the same key
    part.write_text(json.dumps({"format": FORMAT, **asdict(profile)}, indent=1) + "\n")
    part.replace(path)
    return path


def find_profile(key: ProfileKey, folder: Path) -> Profile | None:
    """The profile stored for exactly this key, or None."""
    path = folder / key.file_name()
    return load_profile(path, key) if path.exists() else None


def load_profile(path: Path, key: ProfileKey | None = None) -> Profile:
    """Read a profile.

    Args:
        path: The file.
        key: What it must be valid for; None accepts any.

    Raises:
        ProfileError: If the file is damaged, of another format, or for something else.
    """
    try:
        profile = _from_plain(json.loads(path.read_text()))
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProfileError(
            f"profile {path} cannot be read ({error}); delete it and run 'coserve profile'"
        ) from error
    if key is not None and profile.key != key:
        wrong = ", ".join(
            f"{name} {have!r} instead of {asdict(key)[name]!r}"
            for name, have in asdict(profile.key).items()
            if have != asdict(key)[name]
        )
        raise ProfileError(
            f"profile {path} was measured for {wrong}; run 'coserve profile' for this engine"
        )
    return profile


def _from_plain(plain: dict[str, Any]) -> Profile:
    if plain["format"] != FORMAT:
        raise ValueError(f"format {plain['format']}, expected {FORMAT}")
    steps = plain["decode_row_steps"], plain.get("prefill_token_steps", ())
    for number in (plain["num_layers"], *steps[0], *steps[1]):
        if type(number) is not int or number < 1:
            raise ValueError(f"{number!r} where a count belongs")
    eager = {kind: plain.get(kind) for kind in ("eager_prefill", "eager_mixed")}
    for kind in ("decode", "prefill", "mixed", *(kind for kind, fit in eager.items() if fit)):
        if not any(plain[kind].values()):
            raise ValueError(f"every {kind} step would take no time")
    return Profile(
        key=ProfileKey(**plain["key"]),
        decode=Coefficients(**plain["decode"]),
        prefill=Coefficients(**plain["prefill"]),
        mixed=Coefficients(**plain["mixed"]),
        decode_row_steps=tuple(steps[0]),
        prefill_token_steps=tuple(steps[1]),
        **{kind: Coefficients(**fit) if fit else None for kind, fit in eager.items()},
        held_out={str(StepKind(k)): FitError(**v) for k, v in plain["held_out"].items()},
        num_layers=plain["num_layers"],
        measured_at=plain["measured_at"],
    )
