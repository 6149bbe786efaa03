from __future__ import annotations

import pytest

from engine_adapter.client.request_class import RequestClass, class_label, class_of


def test_every_class_has_a_word_and_back() -> None:
    for request_class in RequestClass:
        assert class_of(class_label(request_class)) is request_class
    with pytest.raises(ValueError, match="premium"):
        class_of("premium")
