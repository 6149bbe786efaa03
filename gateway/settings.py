"""Settings of the gateway, read from the environment once per process."""

from __future__ import annotations

from pydantic import Field

from batch.settings import CommonSettings


class GatewaySettings(CommonSettings):
    """What the gateway needs to know."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    secret: str = Field(default="", repr=False)
    """Signs dashboard sessions; empty: a random one, so that sessions end with the process."""
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
    cors_origins: str = "*"
    """Origins that browsers may call from, comma separated (COSERVE_CORS_ORIGINS)."""
    log_level: str = "info"
    """COSERVE_LOG_LEVEL."""

    @property
    def origins(self) -> list[str]:
        """The allowed origins."""
        return [part.strip() for part in self.cors_origins.split(",") if part.strip()]
