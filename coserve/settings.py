"""Settings of the local stack, every setting there is, and what is wrong with those given."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings

from engine_adapter.client.engine_address import addresses
from engine_adapter.runtime_settings import NAMES
from service.data_folder import default_home
from service.renamed_settings import old_names
from service.secret_files import SECRET_FILE_NAMES, ServiceSettings, env_name

PREFIX = "COSERVE_"

# Read by the set-up stage (which has no packages yet), by an engine's container, by the emulated
# device, by clients and by the tests: nothing declares these.
OTHER_NAMES = frozenset(
    {
        "COSERVE_API_KEY",
        "COSERVE_BASE_URL",
        "COSERVE_EMULATED",
        "COSERVE_EMULATED_CLOCK",
        "COSERVE_EMULATED_REPORT",
        "COSERVE_ENGINE_DRAIN_S",
        "COSERVE_ENGINE_PORT",
        "COSERVE_ENGINE_URL",
        "COSERVE_PUBLISH",
        "COSERVE_REGISTER_URLS",
        "COSERVE_REQUIRE_BROWSER",
        "COSERVE_SGLANG",
        "COSERVE_STOP_GRACE_PERIOD",
        "COSERVE_TORCH_INDEX",
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
    return OTHER_NAMES.union(NAMES, SECRET_FILE_NAMES, *(names_of(each) for each in classes))


def unknown_names(environ: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """One sentence for each COSERVE_ name nothing reads: a misspelt setting must not be silent."""
    known = sorted(known)
    renamed = old_names(environ)
    sentences = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known:
            continue
        if name in renamed:
            sentences.append(renamed[name])
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        hint = f" Did you mean {near[0]}?" if near else " docs/settings.md lists them all."
        sentences.append(f"{name} is not a setting.{hint}")
    return sentences


# --- What is wrong with the settings, one sentence each.


_WORDS = {
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "finite_number": "must be a number",
    "bool_parsing": "must be true or false",
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "literal_error": "must be one of: {expected}",
}
"""By pydantic's name of the error. A value is never repeated: it may be a secret."""


def wrong_values(classes: Iterable[type[ServiceSettings]]) -> list[str]:
    """A sentence for each value in the environment that one of the classes refuses.

    Raises:
        SettingsError: A secret's file cannot be read.
    """
    said: dict[str, None] = {}
    for each in classes:
        try:
            each()
        except ValidationError as error:
            said |= dict.fromkeys(sentence(one) for one in error.errors())
    return list(said)


def sentence(error: Mapping[str, Any]) -> str:
    """One of pydantic's errors as a sentence that begins with the setting's name."""
    name = ".".join(str(part) for part in error["loc"])
    if name == name.lower():
        name = f"COSERVE_{name.upper()}"
    context = dict(error.get("ctx") or {})
    if "expected" in context:
        choices = str(context["expected"]).replace(" or ", ", ").replace("'", "")
        context["expected"] = ", ".join(one for one in choices.split(", ") if one)
    words = _WORDS.get(error["type"])
    why = words.format(**context) if words else str(error["msg"]).removeprefix("Value error, ")
    return f"{name}{': ' if words is None else ' '}{why}".rstrip(".") + "."
