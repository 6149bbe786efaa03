"""Settings of the batch service, read from the environment once per process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from batch.webhooks.names import checked_servers
from batch.webhooks.targets import TargetPolicy
from engine_adapter.client.aliases import parse_aliases, parse_tiers
from engine_adapter.client.engine_address import addresses
from engine_adapter.client.engine_keys import parse_keys
from engine_adapter.client.foreign_facts import ForeignTerms
from service.broker import Broker
from service.data_folder import default_home
from service.secret_files import ServiceSettings

LEASE_STALE_S = 6.0
"""A dispatcher that has not beaten its heart for this long has lost its engine to another one."""

HEARTBEAT_S = 1.0
"""How often it beats: several times within `LEASE_STALE_S`."""


class CommonSettings(ServiceSettings):
    """What both doors need to know, and must read alike. Names in the environment: settings.md."""

    model_config = SettingsConfigDict(populate_by_name=True)

    database_url: str = Field(
        default="postgresql+psycopg://app@127.0.0.1/app",
        validation_alias="DATABASE_URL",
        repr=False,
    )
    database_pool: int = Field(default=5, ge=1, le=200)
    """Connections a gateway keeps to Postgres (COSERVE_DATABASE_POOL)."""

    database_overflow: int = Field(default=5, ge=0, le=200)
    """How many more a process may have at once (COSERVE_DATABASE_OVERFLOW)."""

    database_prepares: bool = True
    """Statements are prepared on the server; off behind a pooler in transaction mode
    (COSERVE_DATABASE_PREPARES=0)."""

    log_format: Literal["text", "json"] = "text"
    """Of the log of every process of ours (COSERVE_LOG_FORMAT)."""

    broker_url: str = Field(
        default="redis://127.0.0.1:6379/0", validation_alias="BROKER_URL", repr=False
    )
    broker_ca: str = ""
    """File of the authority that signed the broker's certificate (COSERVE_BROKER_CA); empty: one
    that the host trusts."""

    engine_urls: Annotated[str, NoDecode] = Field(
        default="http://127.0.0.1:30000", validation_alias="ENGINE_URLS"
    )
    """Comma separated."""

    foreign_engines: Annotated[str, NoDecode] = ""
    """Addresses of stock SGLang servers, comma separated, that are meant to run without our plugin
    (COSERVE_FOREIGN_ENGINES). Other servers than SGLang are told apart by themselves."""

    engine_keys: Annotated[str, NoDecode] = Field(default="", repr=False)
    """API keys of engines that want one, as address=key, comma separated (COSERVE_ENGINE_KEYS)."""

    ttft_ms: float = Field(default=1000.0, gt=0, allow_inf_nan=False)
    """Target of chat's first tokens at engines that are not ours (COSERVE_TTFT_MS)."""

    tbt_ms: float = Field(default=100.0, gt=0, allow_inf_nan=False)
    """Target of the gaps between chat's tokens there (COSERVE_TBT_MS)."""

    home: Path = default_home()
    files_url: str | None = None
    """`file:///...` or `s3://...`; none: `files` below `home`."""

    batch_enqueued_tokens: int | None = Field(default=None, ge=0)
    """Prompt tokens a project without a limit of its own may have waiting per model
    (COSERVE_BATCH_ENQUEUED_TOKENS); none: no limit. Workers hold new batches to it, the gateway
    retried ones."""

    webhook_networks: str = ""
    """Networks that webhooks may reach beside the public internet, comma separated
    (COSERVE_WEBHOOK_NETWORKS)."""

    webhook_nameservers: str = ""
    """Name servers that are asked for webhooks' hosts, comma separated
    (COSERVE_WEBHOOK_NAMESERVERS); none: the host's own."""

    model_aliases: str = ""
    """Further names of models, `name=model|fallback@tier` comma separated
    (COSERVE_MODEL_ALIASES). The gateway and the workers need the same."""

    @field_validator("model_aliases")
    @classmethod
    def _are_aliases(cls, aliases: str) -> str:
        parse_aliases(aliases)
        return aliases

    @field_validator("broker_url")
    @classmethod
    def _is_broker(cls, url: str) -> str:
        Broker(url).check()
        return url

    @field_validator("engine_urls", "foreign_engines")
    @classmethod
    def _are_engines(cls, urls: str) -> str:
        addresses(urls)
        return urls

    @field_validator("engine_keys")
    @classmethod
    def _are_keys(cls, keys: str) -> str:
        parse_keys(keys)
        return keys

    @field_validator("broker_ca")
    @classmethod
    def _is_authority(cls, path: str) -> str:
        if path and not Path(path).is_file():
            raise ValueError("there is no such file")
        return path

    @field_validator("webhook_nameservers")
    @classmethod
    def _are_servers(cls, servers: str) -> str:
        checked_servers(servers)
        return servers

    @field_validator("webhook_networks")
    @classmethod
    def _are_networks(cls, networks: str) -> str:
        TargetPolicy.of(networks)
        return networks

    @property
    def aliases(self) -> dict[str, tuple[str, ...]]:
        """Models by a further name, the preferred one first."""
        return parse_aliases(self.model_aliases)

    @property
    def alias_tiers(self) -> dict[str, str]:
        """The default service tiers of model aliases."""
        return parse_tiers(self.model_aliases)

    @property
    def broker(self) -> Broker:
        """The broker at `broker_url`, with its own CA if one is set."""
        return Broker(self.broker_url, self.broker_ca)

    @property
    def webhook_targets(self) -> TargetPolicy:
        """The addresses that webhooks may be sent to."""
        return TargetPolicy.of(self.webhook_networks)

    @property
    def webhook_servers(self) -> tuple[str, ...]:
        """Name servers for webhooks' hosts."""
        return checked_servers(self.webhook_nameservers)

    @property
    def foreign(self) -> ForeignTerms:
        """What holds for engines that are not ours."""
        urls = frozenset(addresses(self.foreign_engines))
        keys = parse_keys(self.engine_keys)
        return ForeignTerms(urls, self.ttft_ms / 1000, self.tbt_ms / 1000, keys)

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines' addresses in their normal form, in order."""
        return addresses(self.engine_urls)


class BatchSettings(CommonSettings):
    """What the workers and beat need to know."""

    batch_max_in_flight: int = Field(default=256, ge=1, le=4096)
    """Most rows one dispatcher has at its engine at once."""

    batch_max_bytes: int = Field(default=64 * 1024**2, ge=1024**2)
    """Most bytes of rows that one dispatcher has in memory at once: at its engine, and of
    results that are not written yet (COSERVE_BATCH_MAX_BYTES). A line takes several times its
    length while it is sent."""

    batch_max_attempts: int = Field(default=10, ge=1, le=1000)
    """How often a row may fail in a way worth repeating before its error is final."""

    batch_retention_days: float = Field(default=90.0, gt=0)
    """How long a batch that has ended stays, with its rows and events."""

    batch_row_timeout_s: float = Field(default=3600.0, gt=0)
    """How long one attempt may take at the engine, parked time included."""
