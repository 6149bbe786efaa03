"""The class of a request as a label: in JSON, in metrics and in the usage table."""

from __future__ import annotations

from engine_adapter.scheduling.request import RequestClass

CLASS_LABELS: dict[RequestClass, str] = {
    RequestClass.ONLINE: "online",
    RequestClass.FLEX: "flex",
    RequestClass.OFFLINE: "offline",
}

_CLASSES = {label: request_class for request_class, label in CLASS_LABELS.items()}


def class_label(request_class: RequestClass) -> str:
    return CLASS_LABELS[request_class]


def class_of(label: str) -> RequestClass:
    """The class of a label.

    Raises:
        ValueError: There is no such class.
    """
    try:
        return _CLASSES[label]
    except KeyError:
        raise ValueError(f"no request class is called {label!r}") from None


__all__ = ["CLASS_LABELS", "RequestClass", "class_label", "class_of"]
