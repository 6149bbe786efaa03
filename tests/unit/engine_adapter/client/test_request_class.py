from __future__ import annotations

import pytest

from engine_adapter.client.request_class import RequestClass, class_of, word_of


def test_every_class_has_a_word_and_back() -> None:
    for request_class in RequestClass:
        assert class_of(word_of(request_class)) is request_class
    with pytest.raises(ValueError, match="premium"):
        class_of("premium")
