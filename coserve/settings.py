"""Settings of the local stack, and the list of every setting there is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings

from engine_adapter.client.engine_address import addresses
from service.data_folder import default_home
from service.secret_files import SECRET_FILE_NAMES, ServiceSettings, env_name

PREFIX = "COSERVE_"

# Read by the set-up stage (which has no packages yet), by the engine's process (which has other
# packages), by clients and by the tests: no settings class of the service declares these.
OTHER_NAMES = frozenset(
    {
        "COSERVE_API_KEY",
        "COSERVE_BASE_URL",
        "COSERVE_CHECKPOINTS",
        "COSERVE_EMULATED",
        "COSERVE_EMULATED_CLOCK",
        "COSERVE_EMULATED_REPORT",
        "COSERVE_ENGINE_DRAIN_S",
        "COSERVE_ENGINE_PORT",
        "COSERVE_ENGINE_URL",
        "COSERVE_FIRST_TOKEN_SHARE",
        "COSERVE_LEVEL",
        "COSERVE_HOST_KV_TOKENS",
        "COSERVE_ISOLATION_PAUSES",
        "COSERVE_ISOLATION_SHARE",
        "COSERVE_POLICY",
        "COSERVE_PROFILE_DIR",
        "COSERVE_PUBLISH",
        "COSERVE_REGISTER_URLS",
        "COSERVE_REQUIRE_BROWSER",
        "COSERVE_RESERVED_SLOT_SHARE",
        "COSERVE_SAFEPOINTS",
        "COSERVE_SAFEPOINT_MS",
        "COSERVE_STOP_GRACE_PERIOD",
        "COSERVE_TBT_MS",
        "COSERVE_TBT_PERCENTILE",
        "COSERVE_TORCH_INDEX",
        "COSERVE_TPOT_MS",
        "COSERVE_TPOT_PERCENTILE",
        "COSERVE_TTFT_MS",
        "COSERVE_TTFT_PERCENTILE",
    }
)


class LocalSettings(ServiceSettings):
    """What `coserve up` needs to know. A given server is used instead of an embedded one."""

    home: Path = default_home()
    """State directory: data, files, logs, keys, the default model."""

    host: str = "127.0.0.1"
    """Address the gateway listens on."""

    port: int = Field(default=8080, ge=1, le=65535)
    """Port the gateway listens on."""

    model: str = ""
    """A Hugging Face model folder; empty: the default model."""

    device: Literal["", "cpu", "cuda"] = ""
    """What the engine computes on; empty: CUDA where there is an NVIDIA driver."""

    engine_args: str = ""
    """More arguments for the engine's command line, split like a shell does."""

    secret: SecretStr | None = None
    """Signs dashboard sessions; empty: one is made and kept in the state directory."""

    database_url: str | None = Field(default=None, validation_alias="DATABASE_URL", repr=False)
    broker_url: str | None = Field(default=None, validation_alias="BROKER_URL", repr=False)
    engine_urls: str | None = Field(default=None, validation_alias="ENGINE_URLS")

    @field_validator("engine_urls")
    @classmethod
    def _are_engines(cls, urls: str | None) -> str | None:
        addresses(urls or "")
        return urls

    @property
    def home_path(self) -> Path:
        """The state directory, wherever a process is started from."""
        return self.home.absolute()

    @property
    def root_url(self) -> str:
        """Where a browser on this machine finds the gateway."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(self.host, self.host)
        return f"http://{host}:{self.port}"


def names_of(settings: type[BaseSettings]) -> frozenset[str]:
    """The environment names one settings class reads."""
    return frozenset(
        env_name(settings, name, field) for name, field in settings.model_fields.items()
    )


def known_names() -> frozenset[str]:
    """Every environment name anything of ours reads."""
    from batch.settings import BatchSettings
    from gateway.settings import GatewaySettings

    classes: tuple[type[BaseSettings], ...] = (LocalSettings, GatewaySettings, BatchSettings)
    return OTHER_NAMES.union(SECRET_FILE_NAMES, *(names_of(each) for each in classes))


def unknown_names(environ: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """One sentence for each COSERVE_ name nothing reads: a misspelt setting must not be silent."""
    known = sorted(known)
    sentences = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        hint = f" Did you mean {near[0]}?" if near else " docs/settings.md lists them all."
        sentences.append(f"{name} is not a setting.{hint}")
    return sentences
