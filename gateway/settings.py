"""Settings of the gateway, read from the environment once per process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from batch.secret_files import ServiceSettings
from batch.webhooks.targets import TargetPolicy


class GatewaySettings(ServiceSettings):
    """What the gateway needs to know. Names in the environment: docs/api.md."""

    model_config = SettingsConfigDict(populate_by_name=True)

    database_url: str = Field(
        default="postgresql+psycopg://app@127.0.0.1/app",
        validation_alias="DATABASE_URL",
        repr=False,
    )
    broker_url: str = Field(
        default="redis://127.0.0.1:6379/0", validation_alias="BROKER_URL", repr=False
    )
    engine_urls: Annotated[str, NoDecode] = Field(
        default="http://127.0.0.1:30000", validation_alias="ENGINE_URLS"
    )
    """Comma separated."""

    home: Path = Path(".coserve")
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    secret: str = Field(default="", repr=False)
    """Signs dashboard sessions; empty: a random one, so that sessions end with the process."""
    files_url: str | None = None
    """`file:///...` or `s3://...`; none: `files` below `home`."""

    body_limit_bytes: int = Field(default=16 * 1024 * 1024, ge=1024)
    """Longest JSON body (COSERVE_BODY_LIMIT_BYTES)."""
    max_in_flight: int = Field(default=1024, ge=1)
    """Engine calls at once before further requests get 503 (COSERVE_MAX_IN_FLIGHT)."""
    request_timeout_s: float = Field(default=590.0, gt=0)
    """A request without a word from its engine for this long is given up
    (COSERVE_REQUEST_TIMEOUT_S): just before the official client does so."""
    max_connections: int = Field(default=4096, ge=1)
    """Clients' connections at once; further ones get 503 (COSERVE_MAX_CONNECTIONS)."""
    bodies_limit_bytes: int = Field(default=512 * 1024 * 1024, ge=1024)
    """JSON bodies in memory at once; further ones get 503 (COSERVE_BODIES_LIMIT_BYTES)."""
    head_timeout_s: float = Field(default=10.0, gt=0)
    """A request's head must be complete within this time (COSERVE_HEAD_TIMEOUT_S)."""
    body_timeout_s: float = Field(default=30.0, gt=0)
    """Silence in a request's body after which it is given up (COSERVE_BODY_TIMEOUT_S)."""
    write_timeout_s: float = Field(default=60.0, gt=0)
    """A client that reads too little for this long is cut off (COSERVE_WRITE_TIMEOUT_S)."""
    metrics_token: str = Field(default="", repr=False)
    """Bearer token that opens /metrics; without one only a gateway on a loopback address serves
    it (COSERVE_METRICS_TOKEN)."""
    keep_alive_s: float = Field(default=15.0, gt=0)
    """A stream that is silent for this long gets a comment (COSERVE_KEEP_ALIVE_S)."""
    shutdown_grace_s: float = Field(default=10.0, ge=0)
    """How long running requests may go on after SIGTERM (COSERVE_SHUTDOWN_GRACE_S)."""
    key_requests_per_minute: int | None = Field(default=None, ge=0)
    """Limit of each key without one of its own (COSERVE_KEY_REQUESTS_PER_MINUTE); none: no limit,
    0: nothing. So are the next three."""
    key_tokens_per_minute: int | None = Field(default=None, ge=0)
    """COSERVE_KEY_TOKENS_PER_MINUTE."""
    project_requests_per_minute: int | None = Field(default=None, ge=0)
    """COSERVE_PROJECT_REQUESTS_PER_MINUTE."""
    project_tokens_per_minute: int | None = Field(default=None, ge=0)
    """COSERVE_PROJECT_TOKENS_PER_MINUTE."""
    batch_enqueued_tokens: int | None = Field(default=None, ge=0)
    """The same as the workers' (COSERVE_BATCH_ENQUEUED_TOKENS): retried batches are let in here."""
    webhook_networks: str = ""
    """Networks that webhooks may reach beside the public internet, comma separated
    (COSERVE_WEBHOOK_NETWORKS)."""
    cors_origins: str = "*"
    """Origins that browsers may call from, comma separated (COSERVE_CORS_ORIGINS)."""
    log_level: str = "info"
    """COSERVE_LOG_LEVEL."""

    @field_validator("webhook_networks")
    @classmethod
    def _are_networks(cls, networks: str) -> str:
        TargetPolicy.of(networks)
        return networks

    @property
    def webhook_targets(self) -> TargetPolicy:
        """What webhooks may reach."""
        return TargetPolicy.of(self.webhook_networks)

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines' addresses without trailing slashes, in order."""
        parts = (part.strip().rstrip("/") for part in self.engine_urls.split(","))
        return tuple(part for part in parts if part)

    @property
    def origins(self) -> list[str]:
        """The allowed origins."""
        return [part.strip() for part in self.cors_origins.split(",") if part.strip()]
