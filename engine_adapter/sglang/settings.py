"""Settings of the runtime inside the engine process, read from the environment.

Every refusal is one sentence that says what to do, and ends the engine. The engine's environment
does not have the service's dependencies.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from engine_adapter.refusal import EXIT_REFUSED, sentence
from engine_adapter.scheduling.isolation import DEFAULT_SHARE, MAX_SHARE
from engine_adapter.scheduling.policies.settings import DEFAULT_LEVEL, FIRST_TOKEN_SHARE, Level
from engine_adapter.scheduling.targets import Slo

# --- End this process with one sentence, and have the engine's server end with it too.
#
# Most refusals happen in a scheduler process: it has seen the model and the memory. SGLang's server
# notices that the process died, prints a traceback and ends with its own status; the sentence would
# drown. So the scheduler leaves it in a file, and the server, whatever ends it, repeats it last.

# Set by the server for the processes it starts; no setting, so it does not begin with COSERVE_.
_FILE = "_COSERVE_LAST_WORD"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def refuse(reason: str) -> NoReturn:
    """Say why the engine cannot start, and end the process at once.

    SGLang logs and goes on when a plugin raises, and signals its parent when a scheduler does.
    """
    line = sentence(reason) + "\n"
    sys.stderr.write(line)
    sys.stderr.flush()
    path = os.environ.get(_FILE)
    if path and path != str(_file_of_this_process()):
        _leave(Path(path), line)
    os._exit(EXIT_REFUSED)


def _leave(path: Path, line: str) -> None:
    """Write the file unless another rank has: the first word counts, and no link is followed."""
    with suppress(OSError), os.fdopen(os.open(path, _NEW, 0o600), "w") as file:
        file.write(line)


def _file_of_this_process() -> Path:
    return Path(tempfile.gettempdir()) / f"coserve-last-word-{os.getpid()}"


def repeat_at_the_end() -> None:
    """In the engine's first process: if a child of it refuses to start, say so last."""
    if _FILE in os.environ:
        return
    path = _file_of_this_process()
    path.unlink(missing_ok=True)  # of an older process with this number
    os.environ[_FILE] = str(path)
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            line = path.read_text()
            path.unlink()
        except OSError:
            before(kind, error, trace)
            return
        sys.stderr.write(line)
        sys.stderr.flush()
        os._exit(EXIT_REFUSED)  # the children have been ended by SGLang

    sys.excepthook = hook


# --- What the environment says.

OFF = "off"
DEFAULT_POLICY = "conserve_v2"


class SettingError(ValueError):
    """A setting the engine cannot start with."""


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """What the environment says.

    Attributes:
        policy: Scheduling policy (``COSERVE_POLICY``); ``off`` leaves scheduling to SGLang.
        ttft_s: TTFT target of online requests (``COSERVE_TTFT_MS``); None derives it from the
            profile.
        tbt_s: TBT target (``COSERVE_TBT_MS``); None derives it from the profile.
        tpot_s: Target of the pace (``COSERVE_TPOT_MS``); None sets none.
        ttft_share: Share of the steps that shall end within what first tokens leave them
            (``COSERVE_TTFT_PERCENTILE``).
        tbt_share: The same for gaps (``COSERVE_TBT_PERCENTILE``).
        tpot_share: The same for the pace (``COSERVE_TPOT_PERCENTILE``).
        first_token_share: Share of the TTFT target for which first tokens are planned
            (``COSERVE_FIRST_TOKEN_SHARE``).
        level: How much of chat's pace offline work may take (``COSERVE_LEVEL``).
        reserved_slot_share: Share of request slots offline requests may never hold
            (``COSERVE_RESERVED_SLOT_SHARE``).
        host_kv_tokens: Size of the host checkpoint pool in tokens (``COSERVE_HOST_KV_TOKENS``);
            None takes twice the device pool, bounded by a quarter of the free memory.
        safepoint_interval_s: Distance of safepoints (``COSERVE_SAFEPOINT_MS``); 0 leaves it to the
            policy.
        profile_dir: Where profiles are stored (``COSERVE_PROFILE_DIR``).
        safepoints: Arm safepoints (``COSERVE_SAFEPOINTS``, 0 or 1; ablations).
        checkpoints: Checkpoint KV (``COSERVE_CHECKPOINTS``, 0 or 1; ablations).
        isolation_pauses: Leave offline requests out for a second now and then, to measure what
            online requests get without them (``COSERVE_ISOLATION_PAUSES``, 0 or 1).
        isolation_share: Share of the time that they take at most (``COSERVE_ISOLATION_SHARE``).
    """

    policy: str = DEFAULT_POLICY
    ttft_s: float | None = None
    tbt_s: float | None = None
    tpot_s: float | None = None
    ttft_share: float = 0.98
    tbt_share: float = 0.98
    tpot_share: float = 0.98
    first_token_share: float = FIRST_TOKEN_SHARE
    level: Level = DEFAULT_LEVEL
    reserved_slot_share: float = 0.25
    host_kv_tokens: int | None = None
    safepoint_interval_s: float = 0.0
    profile_dir: Path = Path(".coserve/profiles")
    safepoints: bool = True
    checkpoints: bool = True
    isolation_pauses: bool = True
    isolation_share: float = DEFAULT_SHARE

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


def read_settings(environ: Mapping[str, str] | None = None) -> RuntimeSettings:
    """Read the settings.

    Raises:
        SettingError: On the first value that cannot be used.
    """
    env = os.environ if environ is None else environ
    share = _number(env, "COSERVE_RESERVED_SLOT_SHARE", 0.25)
    if not 0.0 <= share < 1.0:
        raise SettingError(
            f"COSERVE_RESERVED_SLOT_SHARE is {share}; give a share of at least 0 and below 1"
        )
    first_token_share = _number(env, "COSERVE_FIRST_TOKEN_SHARE", FIRST_TOKEN_SHARE)
    if not 0.0 <= first_token_share <= 1.0:
        raise SettingError(
            f"COSERVE_FIRST_TOKEN_SHARE is {first_token_share}; give a share between 0 and 1"
        )
    tokens = env.get("COSERVE_HOST_KV_TOKENS")
    if tokens is not None and not tokens.isdigit():
        raise SettingError(
            f"COSERVE_HOST_KV_TOKENS is {tokens!r}; give a whole number of tokens, 0 for no pool"
        )
    return RuntimeSettings(
        policy=env.get("COSERVE_POLICY") or DEFAULT_POLICY,
        ttft_s=_milliseconds(env, "COSERVE_TTFT_MS"),
        tbt_s=_milliseconds(env, "COSERVE_TBT_MS"),
        tpot_s=_milliseconds(env, "COSERVE_TPOT_MS"),
        ttft_share=_percentile(env, "COSERVE_TTFT_PERCENTILE"),
        tbt_share=_percentile(env, "COSERVE_TBT_PERCENTILE"),
        tpot_share=_percentile(env, "COSERVE_TPOT_PERCENTILE"),
        first_token_share=first_token_share,
        level=_level(env),
        reserved_slot_share=share,
        host_kv_tokens=None if tokens is None else int(tokens),
        safepoint_interval_s=(_milliseconds(env, "COSERVE_SAFEPOINT_MS") or 0.0),
        profile_dir=Path(env.get("COSERVE_PROFILE_DIR") or _state_dir(env) / "profiles"),
        safepoints=_switch(env, "COSERVE_SAFEPOINTS"),
        checkpoints=_switch(env, "COSERVE_CHECKPOINTS"),
        isolation_pauses=_switch(env, "COSERVE_ISOLATION_PAUSES"),
        isolation_share=_isolation_share(env),
    )


@contextmanager
def ending_in_one_sentence() -> Iterator[None]:
    """Turn a refused setting into one line on standard error and the end of the process.

    SGLang would log a traceback and signal its parent; the reason would drown.
    """
    try:
        yield
    except ValueError as error:  # SettingError, ProfileError, and what the parts refuse
        refuse(str(error))


def _state_dir(env: Mapping[str, str]) -> Path:
    return Path(env.get("COSERVE_HOME") or ".coserve")


def _number(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SettingError(f"{name} is {text!r}; give a number")
    return value


def _percentile(env: Mapping[str, str], name: str) -> float:
    percentile = _number(env, name, 98.0)
    if not 50.0 <= percentile < 100.0:
        raise SettingError(f"{name} is {percentile}; give at least 50, and less than 100")
    return percentile / 100.0


def _level(env: Mapping[str, str]) -> Level:
    name = env.get("COSERVE_LEVEL") or DEFAULT_LEVEL
    if name not in tuple(Level):
        raise SettingError(f"COSERVE_LEVEL is {name!r}; give one of {', '.join(Level)}")
    return Level(name)


def _isolation_share(env: Mapping[str, str]) -> float:
    share = _number(env, "COSERVE_ISOLATION_SHARE", DEFAULT_SHARE)
    if not 0.0 < share <= MAX_SHARE:
        raise SettingError(
            f"COSERVE_ISOLATION_SHARE is {share}; give a share above 0, and at most {MAX_SHARE}"
        )
    return share


def _milliseconds(env: Mapping[str, str], name: str) -> float | None:
    if not env.get(name):
        return None
    value = _number(env, name, 0.0)
    if value <= 0.0:
        raise SettingError(f"{name} is {value}; give a positive number of milliseconds")
    return value / 1000.0


def _switch(env: Mapping[str, str], name: str) -> bool:
    text = env.get(name) or "1"
    if text not in ("0", "1"):
        raise SettingError(f"{name} is {text!r}; give 0 or 1")
    return text == "1"


# --- Memory the host pool may take: of the machine, and of the container we are in.

CGROUP = Path("/sys/fs/cgroup")


def most_bytes(budget: int, *, pinned: bool) -> int:
    """The largest block that takes no more than the budget.

    torch's allocator of pinned memory rounds a block up to a power of two.
    """
    return 1 << (budget.bit_length() - 1) if pinned and budget > 0 else budget


def free_bytes(cgroup: Path = CGROUP) -> int:
    """What can be allocated without swapping and without the container being killed.

    Args:
        cgroup: Folder of this container's control group (version 2), or of none.
    """
    import psutil  # of the engine's environment

    available = int(psutil.virtual_memory().available)
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        if limit == "max":
            return available
        used = int((cgroup / "memory.current").read_text())
        fields = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        # File pages that nobody has used for a while are given back first.
        return max(0, min(available, int(limit) - used + int(fields.get("inactive_file", 0))))
    except (OSError, ValueError):
        return available
