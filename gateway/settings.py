"""Settings of the gateway, read from the environment once per process."""

from __future__ import annotations

from pydantic import Field, field_validator

from batch.settings import CommonSettings
from engine_adapter.client.engine_address import EngineAddress
from gateway.http.per_address_limits import LOOPBACK, TrustedProxies
from gateway.limits.endpoints import parse_rates
from gateway.verdict.harvest import Price


class GatewaySettings(CommonSettings):
    """What the gateway needs to know."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    database_replica_url: str = Field(
        default="", validation_alias="DATABASE_REPLICA_URL", repr=False
    )
    """A replica of the database, for lists and the dashboard's sums; empty: the database itself."""
    gateway_processes: int = Field(default=1, ge=1, le=256)
    """Processes of this gateway behind its port (COSERVE_GATEWAY_PROCESSES)."""
    secret: str = Field(default="", repr=False)
    """Signs dashboard sessions; empty: a random one, so that sessions end with the process."""
    body_limit_bytes: int = Field(default=16 * 1024 * 1024, ge=1024)
    """Longest JSON body (COSERVE_BODY_LIMIT_BYTES)."""
    max_in_flight: int = Field(default=2048, ge=1)
    """Engine calls at once before further requests get 503; a project may have as many as are
    free (COSERVE_MAX_IN_FLIGHT)."""
    request_timeout_s: float = Field(default=590.0, gt=0)
    """A request without a word from its engine for this long is given up
    (COSERVE_REQUEST_TIMEOUT_S): just before the official client does so."""
    retry_on_engine_loss: bool = True
    """A request whose engine is lost before its first token is tried once on another one
    (COSERVE_RETRY_ON_ENGINE_LOSS)."""
    chat_router_url: str = ""
    """A router before the engines, through which chat and completions go
    (COSERVE_CHAT_ROUTER_URL); flex, embeddings and batches go straight to engines."""
    max_connections: int = Field(default=4096, ge=1)
    """Clients' connections at once; further ones get 503 (COSERVE_MAX_CONNECTIONS)."""
    max_connections_per_address: int = Field(default=1024, ge=1)
    """The same of one address, and never more than are free
    (COSERVE_MAX_CONNECTIONS_PER_ADDRESS)."""
    unknown_keys_per_minute: int = Field(default=300, ge=1)
    """Requests of one address whose key is missing or unknown; further ones get 429
    (COSERVE_UNKNOWN_KEYS_PER_MINUTE)."""
    trusted_proxies: str = LOOPBACK
    """Networks of the proxies that say who the client is, comma separated
    (COSERVE_TRUSTED_PROXIES)."""
    body_memory_bytes: int = Field(default=512 * 1024 * 1024, ge=1024)
    """JSON bodies in memory at once; further ones get 503 (COSERVE_BODY_MEMORY_BYTES)."""
    head_timeout_s: float = Field(default=10.0, gt=0)
    """A request's head must be complete within this time (COSERVE_HEAD_TIMEOUT_S)."""
    body_timeout_s: float = Field(default=30.0, gt=0)
    """Silence in a request's body after which it is given up (COSERVE_BODY_TIMEOUT_S)."""
    write_timeout_s: float = Field(default=60.0, gt=0)
    """A client that reads too little for this long is cut off (COSERVE_WRITE_TIMEOUT_S)."""
    metrics_token: str = Field(default="", repr=False)
    """Bearer token that opens /metrics; without one only a gateway on a loopback address serves
    it (COSERVE_METRICS_TOKEN)."""
    engine_token: str = Field(default="", repr=False)
    """Bearer token with which engines register themselves; without one they cannot
    (COSERVE_ENGINE_TOKEN)."""
    engine_selector: str = ""
    """Label selector of the Kubernetes Services whose ready endpoints are engines
    (COSERVE_ENGINE_SELECTOR); empty: none are looked for."""
    keep_alive_s: float = Field(default=15.0, gt=0)
    """A stream that is silent for this long gets a comment (COSERVE_KEEP_ALIVE_S)."""
    shutdown_delay_s: float = Field(default=0.0, ge=0)
    """How long a gateway still takes requests after SIGTERM, while `/readyz` says that it stops
    (COSERVE_SHUTDOWN_DELAY_S): a load balancer needs it to look elsewhere."""
    shutdown_grace_s: float = Field(default=600.0, ge=0)
    """How long running requests may go on after that (COSERVE_SHUTDOWN_GRACE_S)."""
    response_days: float = Field(default=30.0, gt=0, le=3650)
    """How long a response is stored (COSERVE_RESPONSE_DAYS)."""
    key_requests_per_minute: int | None = Field(default=None, ge=0)
    """Limit of each key without one of its own (COSERVE_KEY_REQUESTS_PER_MINUTE); none: no limit,
    0: nothing. So are the next three."""
    key_tokens_per_minute: int | None = Field(default=None, ge=0)
    """COSERVE_KEY_TOKENS_PER_MINUTE."""
    project_requests_per_minute: int | None = Field(default=None, ge=0)
    """COSERVE_PROJECT_REQUESTS_PER_MINUTE."""
    project_tokens_per_minute: int | None = Field(default=None, ge=0)
    """COSERVE_PROJECT_TOKENS_PER_MINUTE."""
    project_bytes_per_minute: int = Field(default=1024 * 1024 * 1024, ge=1024 * 1024)
    """Bytes of JSON bodies over 64 KiB that a project may send to one process
    (COSERVE_PROJECT_BYTES_PER_MINUTE)."""
    endpoint_requests_per_minute: str = ""
    """Requests of a project for what is not a prompt, `files=600,batches=1200`
    (COSERVE_ENDPOINT_REQUESTS_PER_MINUTE); groups that are not named keep their defaults."""
    key_grace_s: float = Field(default=300.0, ge=0)
    """How long a key that was usable opens chat while the database is away
    (COSERVE_KEY_GRACE_S)."""
    cors_origins: str = "*"
    """Origins that browsers may call from, comma separated (COSERVE_CORS_ORIGINS)."""
    batch_token_price: str = ""
    """What a million batch tokens are worth, and the currency: `0.30 USD`
    (COSERVE_BATCH_TOKEN_PRICE). The dashboard and `coserve status` say what was harvested is
    worth; empty: no money is named."""
    log_level: str = "info"
    """COSERVE_LOG_LEVEL."""

    @field_validator("trusted_proxies")
    @classmethod
    def _are_proxies(cls, networks: str) -> str:
        TrustedProxies.of(networks)
        return networks

    @field_validator("chat_router_url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        return str(EngineAddress.parse(url)) if url else ""

    @field_validator("endpoint_requests_per_minute")
    @classmethod
    def _are_rates(cls, said: str) -> str:
        parse_rates(said)
        return said

    @field_validator("batch_token_price")
    @classmethod
    def _is_price(cls, said: str) -> str:
        Price.parse(said)
        return said

    @property
    def price(self) -> Price | None:
        """What a million batch tokens are worth."""
        return Price.parse(self.batch_token_price)

    @property
    def endpoint_rates(self) -> dict[str, int]:
        """Requests a minute by group of endpoints."""
        return parse_rates(self.endpoint_requests_per_minute)

    @property
    def proxies(self) -> TrustedProxies:
        """Whose word about clients is taken."""
        return TrustedProxies.of(self.trusted_proxies)

    @property
    def origins(self) -> list[str]:
        """The allowed origins."""
        return [part.strip() for part in self.cors_origins.split(",") if part.strip()]
