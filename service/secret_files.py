"""Secrets from files: `DATABASE_URL_FILE=/run/secrets/db` instead of `DATABASE_URL=…`.

An environment is shown by process lists, crash reports and `docker inspect`; a mounted file is
not. The plain name wins where both are set, since a supervisor that has read the file gives its
children the value.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

SECRETS = frozenset(
    {
        "DATABASE_URL",
        "DATABASE_REPLICA_URL",
        "BROKER_URL",
        "COSERVE_SECRET",
        "COSERVE_METRICS_TOKEN",
        "COSERVE_ENGINE_TOKEN",
        "COSERVE_ENGINE_KEYS",
    }
)
SUFFIX = "_FILE"
SECRET_FILE_NAMES = frozenset(name + SUFFIX for name in SECRETS)


def env_name(settings: type[BaseSettings], name: str, field: FieldInfo) -> str:
    """The environment's name of a field."""
    alias = field.validation_alias
    prefix = str(settings.model_config.get("env_prefix") or "")
    return alias if isinstance(alias, str) else f"{prefix}{name}".upper()


class ServiceSettings(BaseSettings):
    """Settings whose secrets may lie in files; an invalid value is not repeated in its error."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        env_prefix="COSERVE_", extra="ignore", frozen=True, hide_input_in_errors=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """First what the caller says, then the environment, then the files it names."""
        return init_settings, env_settings, SecretFiles(settings_cls)


class SecretFiles(PydanticBaseSettingsSource):
    """Reads the files that the environment names."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """The secret of one field; None where its file is not named.

        Raises:
            SettingsError: The file cannot be read.
        """
        name = env_name(self.settings_cls, field_name, field)
        path = os.environ.get(name + SUFFIX) if name in SECRETS else None
        key = field.validation_alias if isinstance(field.validation_alias, str) else field_name
        if not path:
            return None, key, False
        try:
            return Path(path).read_text().rstrip("\r\n"), key, False
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(
                f"{name + SUFFIX}: the file cannot be read ({type(error).__name__})."
            ) from None

    def __call__(self) -> dict[str, Any]:
        """The secrets of all fields."""
        found: dict[str, Any] = {}
        for field_name, field in self.settings_cls.model_fields.items():
            value, key, _ = self.get_field_value(field, field_name)
            if value is not None:
                found[key] = value
        return found
