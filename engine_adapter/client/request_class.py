"""The class of a request as a word: in JSON, in metrics and in the usage table."""

from __future__ import annotations

from engine_adapter.scheduling.request import RequestClass

WORDS: dict[RequestClass, str] = {
    RequestClass.ONLINE: "online",
    RequestClass.FLEX: "flex",
    RequestClass.OFFLINE: "offline",
}

_CLASSES = {word: request_class for request_class, word in WORDS.items()}


def class_label(request_class: RequestClass) -> str:
    return WORDS[request_class]


def class_of(word: str) -> RequestClass:
    """The class a word means.

    Raises:
        ValueError: The word names no class.
    """
    try:
        return _CLASSES[word]
    except KeyError:
        raise ValueError(f"no request class is called {word!r}") from None


__all__ = ["WORDS", "RequestClass", "class_label", "class_of"]
