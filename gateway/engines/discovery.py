"""Engines that Kubernetes knows: ready endpoints of Services with a label (decision 0187).

EndpointSlices are listed every `LOOK_S`. A ready endpoint is an engine that is there; one that is
serving and terminating drains; one that is gone has left. What is found is written to the registry,
so that gateways and dispatchers see it as they see every engine. Several gateways may look.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
from sqlalchemy.exc import SQLAlchemyError

from store.repositories import engine as engines
from store.session import Database

LOOK_S: Final = 2.0
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
logger = logging.getLogger(__name__)


def found_in(slices: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
    """Whether it is draining, of each engine's address, in order."""
    found: dict[str, bool] = {}
    for one in slices:
        port = next((port["port"] for port in one.get("ports") or () if port.get("port")), None)
        host = "[{}]" if one.get("addressType") == "IPv6" else "{}"
        for endpoint in one.get("endpoints") or () if port else ():
            conditions = endpoint.get("conditions") or {}
            draining = bool(conditions.get("terminating"))
            ready = conditions.get("ready", True)
            if not (ready or (draining and conditions.get("serving"))):
                continue
            for address in endpoint.get("addresses") or ():
                found[f"http://{host.format(address)}:{port}"] = draining
    return found


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

    async def slices(self) -> list[dict[str, Any]]:
        """Every EndpointSlice with the label.

        Raises:
            httpx.HTTPError: The API does not answer well.
        """
        # Read anew: tokens of accounts are replaced within the hour.
        token = (self._account / "token").read_text().strip()
        found: list[dict[str, Any]] = []
        following: dict[str, str] = {}
        while True:
            answer = await self._http.get(
                self._path,
                params=self._params | following,
                headers={"authorization": f"Bearer {token}"},
            )
            answer.raise_for_status()
            body = answer.json()
            found += body.get("items") or ()
            following = {"continue": (body.get("metadata") or {}).get("continue") or ""}
            if not following["continue"]:
                return found

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


class EngineDiscovery:
    """Keeps the registry at what Kubernetes says."""

    def __init__(self, api: KubernetesApi, database: Database) -> None:
        self._api = api
        self._database = database
        self._found: dict[str, bool] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self.look()
            except (httpx.HTTPError, OSError, SQLAlchemyError, ValueError) as error:
                logger.warning("engines were not looked up: %s", type(error).__name__)
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Look once, and write what is found."""
        found = found_in(await self._api.slices())
        async with self._database.unit_of_work() as session:
            for url, draining in found.items():
                await engines.beat(session, url)
                if draining and not self._found.get(url):
                    await engines.drain(session, url)
            for url in self._found.keys() - found.keys():
                await engines.remove(session, url)
        self._found = found
