"""Settings of the runtime inside an engine's process. Each is declared once, as a field below.

What `coserve` knows by name, what an engine is given of its caller's environment, what it reads and
the table in `docs/settings.md` follow from the fields:

    python -m engine_adapter.runtime_settings      # prints the table

Standard library only: an engine's environment does not have the service's dependencies.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from engine_adapter.scheduling.isolation import DEFAULT_SHARE, MAX_SHARE
from engine_adapter.scheduling.policies.settings import (
    DEFAULT_LEVEL,
    DEFAULT_POLICY,
    TTFT_PLANNING_SHARE,
    Level,
)
from engine_adapter.scheduling.targets import Slo
from service.renamed_settings import RENAMED, old_names

OFF: Final = "off"


class SettingError(ValueError):
    """A setting the engine cannot start with."""


# --- How a value is read: from the variable's name and text to what the field holds.

Reader = Callable[[str, str], Any]


def _text(name: str, text: str) -> str:
    del name
    return text


def _folder(name: str, text: str) -> Path:
    del name
    return Path(text)


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SettingError(f"{name} is {text!r}; give a number")
    return value


def _milliseconds(name: str, text: str) -> float:
    value = _number(name, text)
    if value <= 0.0:
        raise SettingError(f"{name} is {value}; give a positive number of milliseconds")
    return value / 1000.0


def _percentile(name: str, text: str) -> float:
    percentile = _number(name, text)
    if not 50.0 <= percentile < 100.0:
        raise SettingError(f"{name} is {percentile}; give at least 50, and less than 100")
    return percentile / 100.0


def _share(says: str, accepts: Callable[[float], bool]) -> Reader:
    def read(name: str, text: str) -> float:
        share = _number(name, text)
        if not accepts(share):
            raise SettingError(f"{name} is {share}; give a share {says}")
        return share

    return read


def _tokens(name: str, text: str) -> int:
    if not text.isdecimal():
        raise SettingError(f"{name} is {text!r}; give a whole number of tokens, 0 for no pool")
    return int(text)


def _switch(name: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise SettingError(f"{name} is {text!r}; give 0 or 1")
    return text == "1"


def _level(name: str, text: str) -> Level:
    if text not in tuple(Level):
        raise SettingError(f"{name} is {text!r}; give one of {', '.join(Level)}")
    return Level(text)


# --- The settings.


@dataclass(frozen=True, slots=True)
class Declared:
    """What a setting is besides its default.

    Attributes:
        name: In the environment. Empty counts as not set.
        read: From text to value; raises `SettingError`.
        about: What it means: a cell of the table in `docs/settings.md`.
        shown: The default as that table shows it; empty: the default itself.
    """

    name: str
    read: Reader
    about: str
    shown: str = ""


def _setting(name: str, read: Reader, about: str, shown: str = "") -> dict[str, Declared]:
    return {"setting": Declared(name, read, about, shown)}


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """What the environment says: times in seconds, shares up to 1, None where nothing is set."""

    policy: str = field(
        default=DEFAULT_POLICY,
        metadata=_setting(
            "COSERVE_POLICY",
            _text,
            "the scheduling [policy](policies.md); `off` leaves scheduling to SGLang",
        ),
    )
    ttft_s: float | None = field(
        default=None,
        metadata=_setting(
            "COSERVE_TTFT_MS",
            _milliseconds,
            "target for the first token of online requests",
            "from the profile; 1,000 at [other engines](other-engines.md)",
        ),
    )
    tbt_s: float | None = field(
        default=None,
        metadata=_setting(
            "COSERVE_TBT_MS",
            _milliseconds,
            "target for each gap between tokens of online requests",
            "from the profile; 100 at other engines",
        ),
    )
    tpot_s: float | None = field(
        default=None,
        metadata=_setting(
            "COSERVE_TPOT_MS",
            _milliseconds,
            "target for their pace: the mean gap of a request "
            "([what it costs](scheduler.md#targets))",
            "none",
        ),
    )
    ttft_share: float = field(
        default=0.98,
        metadata=_setting(
            "COSERVE_TTFT_PERCENTILE",
            _percentile,
            "percentage of steps that must end within the TTFT target",
            "98",
        ),
    )
    tbt_share: float = field(
        default=0.98,
        metadata=_setting(
            "COSERVE_TBT_PERCENTILE", _percentile, "the same for the TBT target", "98"
        ),
    )
    tpot_share: float = field(
        default=0.98,
        metadata=_setting(
            "COSERVE_TPOT_PERCENTILE", _percentile, "the same for the TPOT target", "98"
        ),
    )
    ttft_planning_share: float = field(
        default=TTFT_PLANNING_SHARE,
        metadata=_setting(
            "COSERVE_TTFT_PLANNING_SHARE",
            _share("between 0 and 1", lambda share: 0.0 <= share <= 1.0),
            "share of the TTFT target for which first tokens are planned: 1 is just in time, less "
            "is [earlier, with less offline work]"
            "(benchmark-coserve-details.md#first-tokens-planned-early)",
        ),
    )
    level: Level = field(
        default=DEFAULT_LEVEL,
        metadata=_setting(
            "COSERVE_LEVEL",
            _level,
            "how much of chat's pace batches may take: "
            "[`invisible`, `balanced` or `max`](scheduler.md#levels)",
        ),
    )
    reserved_slot_share: float = field(
        default=0.25,
        metadata=_setting(
            "COSERVE_RESERVED_SLOT_SHARE",
            _share("of at least 0 and below 1", lambda share: 0.0 <= share < 1.0),
            "share of request slots that offline requests never hold",
        ),
    )
    host_kv_tokens: int | None = field(
        default=None,
        metadata=_setting(
            "COSERVE_HOST_KV_TOKENS",
            _tokens,
            "host memory for checkpoints, in tokens; 0 for none",
            "twice the device's pool, at most a quarter of the free memory",
        ),
    )
    safepoint_interval_s: float = field(
        default=0.0,
        metadata=_setting(
            "COSERVE_SAFEPOINT_MS",
            _milliseconds,
            "time between safepoints, and the time that a stop must save: 10 unless this is set "
            "(`conserve_v1`: a tenth of the TTFT target)",
            "4",
        ),
    )
    profile_dir: Path = field(
        default=Path(".coserve/profiles"),
        metadata=_setting(
            "COSERVE_PROFILE_DIR",
            _folder,
            "directory of the measured step times",
            "`profiles` in the state directory",
        ),
    )
    safepoints: bool = field(
        default=True,
        metadata=_setting(
            "COSERVE_SAFEPOINTS", _switch, "0 turns safepoints off, for comparisons", "1"
        ),
    )
    checkpoints: bool = field(
        default=True,
        metadata=_setting(
            "COSERVE_CHECKPOINTS", _switch, "0 turns checkpoints off, for comparisons", "1"
        ),
    )
    unsigned: bool = field(
        default=False,
        metadata=_setting(
            "COSERVE_SGLANG_UNSIGNED",
            _switch,
            "1 starts a release of SGLang that "
            "[nobody has tried with coserve](engine.md#two-releases-of-sglang)",
            "0",
        ),
    )
    isolation_pauses: bool = field(
        default=True,
        metadata=_setting(
            "COSERVE_ISOLATION_PAUSES",
            _switch,
            "0: offline work is never paused for comparison "
            "([0.2 % of the time at most](runtime.md#proof-of-isolation))",
            "1",
        ),
    )
    isolation_share: float = field(
        default=DEFAULT_SHARE,
        metadata=_setting(
            "COSERVE_ISOLATION_SHARE",
            _share(f"above 0, and at most {MAX_SHARE}", lambda share: 0.0 < share <= MAX_SHARE),
            f"maximum share of the time for these pauses; up to {MAX_SHARE}",
        ),
    )

    def slo(self, derived: Slo) -> Slo:
        """The targets that are set, and the derived ones where none is."""
        return Slo(
            self.ttft_s or derived.ttft_s,
            self.tbt_s or derived.tbt_s,
            self.tpot_s or derived.tpot_s,
            self.ttft_share,
            self.tbt_share,
            self.tpot_share,
        )

    @property
    def is_on(self) -> bool:
        """Whether co-serving schedules; otherwise SGLang does."""
        return self.policy != OFF


DECLARED: Final[Mapping[str, Declared]] = {
    each.name: each.metadata["setting"] for each in fields(RuntimeSettings)
}
"""By the field's name."""

NAMES: Final = frozenset(each.name for each in DECLARED.values())
"""In the environment."""

PASSED_ON: Final = NAMES | {old for old, new in RENAMED.items() if new in NAMES} | {"COSERVE_HOME"}
"""What an engine is given of its caller's environment: old names too, so that it refuses them."""


def read_settings(environ: Mapping[str, str] | None = None) -> RuntimeSettings:
    """Read the settings.

    Raises:
        SettingError: On an old name, and on the first value that cannot be used.
    """
    env = os.environ if environ is None else environ
    for old, sentence in old_names(env).items():
        if RENAMED[old] in NAMES:
            raise SettingError(sentence.rstrip("."))
    values: dict[str, Any] = {}
    for attribute, each in DECLARED.items():
        text = env.get(each.name)
        if text:
            values[attribute] = each.read(each.name, text)
    if home := env.get("COSERVE_HOME"):
        values.setdefault("profile_dir", Path(home) / "profiles")
    return RuntimeSettings(**values)


def table() -> Iterator[str]:
    """The table of `docs/settings.md`."""
    yield "| name | default | what |"
    yield "| --- | --- | --- |"
    for each in fields(RuntimeSettings):
        declared = DECLARED[each.name]
        yield f"| `{declared.name}` | {declared.shown or each.default} | {declared.about} |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(table()) + "\n")
