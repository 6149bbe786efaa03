"""What the generated description says about bodies that routes read themselves."""

from __future__ import annotations

from typing import Any


def json_request(*required: str) -> dict[str, Any]:
    """An object body with these required fields; further ones as in the OpenAI API."""
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": list(required),
                        "properties": {name: {} for name in required},
                        "additionalProperties": True,
                    }
                }
            },
        }
    }
