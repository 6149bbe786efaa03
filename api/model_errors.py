"""Errors about a model that cannot be used: the same for a call and for a batch."""

from __future__ import annotations

from api.errors import InvalidRequest, ModelNotFound

_SHOWN_CHARS = 128


def unknown_model(model: str) -> ModelNotFound:
    return ModelNotFound(
        f"The model '{model[:_SHOWN_CHARS]}' does not exist or you do not have access to it.",
        param="model",
    )


def unsuited_model(model: str, *, embeds: bool) -> InvalidRequest:
    """An engine makes text or embeddings, never both.

    Args:
        model: Its id.
        embeds: It makes embeddings.
    """
    name = model[:_SHOWN_CHARS]
    if embeds:
        why = f"The model '{name}' makes embeddings and cannot generate text: use /v1/embeddings."
    else:
        why = f"The model '{name}' generates text: its engine does not serve embeddings."
    return InvalidRequest(why, param="model", code="unsupported_model")
