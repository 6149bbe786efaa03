"""Engines that Kubernetes knows: ready endpoints of Services with a label.

EndpointSlices are listed every `POLL_INTERVAL_S`. A ready endpoint is an engine that is there; one
that is serving and terminating drains; one that is gone has left. What is found is written to the
registry, so that gateways and dispatchers see it as they see every engine. Several gateways may
look. While an entry cannot be read, no engine that was found before is taken for gone.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
from pydantic import BaseModel, Field, ValidationError

from engine_adapter.client.engine_address import EngineAddress, NotAnAddress
from store.failures import AWAY
from store.repositories import engine as engines
from store.session import Database

POLL_INTERVAL_S: Final = 2.0
MAX_PAGES: Final = 100
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
logger = logging.getLogger(__name__)


class NotUnderstood(ValueError):
    """The API answers with another shape than Kubernetes' own."""


class _Conditions(BaseModel):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None

    @property
    def is_draining(self) -> bool:
        return bool(self.terminating)

    @property
    def is_there(self) -> bool:
        return self.ready is not False or (self.is_draining and bool(self.serving))


class _Endpoint(BaseModel):
    addresses: list[str] | None = None
    conditions: _Conditions | None = None


class _Port(BaseModel):
    port: int | None = None


class _Slice(BaseModel):
    address_type: str = Field("", alias="addressType")
    ports: list[_Port] | None = None
    endpoints: list[Any] | None = None


class _Meta(BaseModel):
    following: str | None = Field(None, alias="continue")


class _Page(BaseModel):
    items: list[Any] | None = None
    metadata: _Meta | None = None


def found_in(
    slices: Iterable[Any], skipped: Callable[[], object] = lambda: None
) -> dict[str, bool]:
    """Whether it is draining, of each engine's address, in order.

    Args:
        slices: As they came.
        skipped: Called for each slice and endpoint that cannot be read, and is left out.
    """
    found: dict[str, bool] = {}
    for one in slices:
        try:
            known = _Slice.model_validate(one)
        except ValidationError:
            skipped()
            continue
        port = next((each.port for each in known.ports or () if each.port), None)
        for endpoint in known.endpoints or () if port else ():
            try:
                found |= _addresses(endpoint, known.address_type, port)
            except (ValidationError, NotAnAddress):
                skipped()
    return found


def _addresses(endpoint: Any, address_type: str, port: int | None) -> dict[str, bool]:
    known = _Endpoint.model_validate(endpoint)
    conditions = known.conditions or _Conditions()
    if not conditions.is_there:
        return {}
    host = "[{}]" if address_type == "IPv6" else "{}"
    return {
        str(EngineAddress.parse(f"http://{host.format(address)}:{port}")): conditions.is_draining
        for address in known.addresses or ()
    }


class KubernetesApi:
    """Lists EndpointSlices with the pod's own account."""

    def __init__(
        self,
        selector: str,
        *,
        account: Path = ACCOUNT,
        environ: Mapping[str, str] = os.environ,
        scheme: str = "https",
    ) -> None:
        host = environ.get("KUBERNETES_SERVICE_HOST", "")
        if not host:
            raise ValueError("COSERVE_ENGINE_SELECTOR needs a gateway that runs in Kubernetes.")
        namespace = (account / "namespace").read_text().strip()
        port = environ.get("KUBERNETES_SERVICE_PORT", "443")
        self._account = account
        self._params = {"labelSelector": selector, "limit": "500"}
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        secure = scheme == "https"
        self._http = httpx.AsyncClient(
            base_url=f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}",
            verify=ssl.create_default_context(cafile=account / "ca.crt") if secure else False,
            timeout=10,
            trust_env=False,
        )

    async def slices(self) -> list[Any]:
        """Every EndpointSlice with the label, as it came.

        Raises:
            httpx.HTTPError: The API does not answer well.
            NotUnderstood: It answers, but not as Kubernetes does.
        """
        # Read anew: tokens of accounts are replaced within the hour.
        token = (self._account / "token").read_text().strip()
        found: list[Any] = []
        following: dict[str, str] = {}
        for _ in range(MAX_PAGES):
            answer = await self._http.get(
                self._path,
                params=self._params | following,
                headers={"authorization": f"Bearer {token}"},
            )
            answer.raise_for_status()
            try:
                page = _Page.model_validate_json(answer.content)
            except ValidationError:
                raise NotUnderstood("no list of EndpointSlices") from None
            found += page.items or ()
            token_of_next = page.metadata and page.metadata.following
            if not token_of_next:
                return found
            following = {"continue": token_of_next}
        raise NotUnderstood(f"more than {MAX_PAGES} pages")

    async def close(self) -> None:
        await self._http.aclose()


class EngineDiscovery:
    """Keeps the registry at what Kubernetes says."""

    def __init__(self, api: KubernetesApi, database: Database) -> None:
        self._api = api
        self._database = database
        self._found: dict[str, bool] = {}
        self._num_skipped = 0

    async def follow(self) -> None:
        """Look, unless the API or the database is away; done every `POLL_INTERVAL_S`."""
        try:
            await self.poll()
        except (httpx.HTTPError, NotUnderstood, *AWAY) as error:
            logger.warning("engines were not looked up: %s", type(error).__name__)

    async def poll(self) -> None:
        """Look once, and write what is found."""
        skipped: list[None] = []
        found = found_in(await self._api.slices(), partial(skipped.append, None))
        if len(skipped) != self._num_skipped:
            logger.warning("%d entries of EndpointSlices cannot be read", len(skipped))
            self._num_skipped = len(skipped)
        if skipped:
            # What was found before may be one of those: only Kubernetes can take it away.
            found = self._found | found
        async with self._database.unit_of_work() as session:
            for url, draining in found.items():
                await engines.beat(session, url)
                if draining and not self._found.get(url):
                    await engines.drain(session, url)
            for url in self._found.keys() - found.keys():
                await engines.remove(session, url)
        self._found = found
