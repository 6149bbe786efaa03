"""`/models`: what is served, known even while the engine is down."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from api.errors import PermissionDenied
from api.model_errors import unknown_model
from engine_adapter.client.pool import ModelInfo
from gateway.auth.principal import Principal
from gateway.dependencies import EnginesDep, PrincipalDep
from gateway.prompts.serving import parts_of
from gateway.prompts.tiers import default_tier

router = APIRouter(tags=["models"])

OWNER = "coserve"

# SGLang has no creation time for a model, and the contract wants a fixed one (row M-02).
_CREATED = 1_700_000_000


def _wire(request: Request, principal: Principal, model: ModelInfo) -> dict[str, Any]:
    head = {"id": model.id, "object": "model", "created": _CREATED, "owned_by": OWNER}
    alias_tier = parts_of(request).alias_tiers.get(model.id)
    return head | model.told() | {"service_tier": default_tier(principal, alias_tier)}


@router.get("/models")
async def list_models(
    request: Request, principal: PrincipalDep, engines: EnginesDep
) -> dict[str, Any]:
    """Every served model that the project may use, with the tier of requests that name none."""
    usable = [
        _wire(request, principal, model)
        for model in engines.models()
        if principal.may_use(model.id)
    ]
    return {"object": "list", "data": usable}


@router.get("/models/{model_id:path}")
async def get_model(
    request: Request, model_id: str, principal: PrincipalDep, engines: EnginesDep
) -> dict[str, Any]:
    """One served model; ids with `/` work encoded and raw."""
    if not principal.may_use(model_id):
        raise unknown_model(model_id)
    return _wire(request, principal, engines.model(model_id))


@router.delete("/models/{model_id:path}")
async def delete_model(model_id: str, _: PrincipalDep, engines: EnginesDep) -> dict[str, Any]:
    """Refused: models are the operator's."""
    engines.model(model_id)
    raise PermissionDenied("Models cannot be deleted through the API.")
