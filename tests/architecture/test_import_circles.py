"""The product can be read from its lowest floor up: no module leads back to itself."""

from __future__ import annotations

from bench.house import PRODUCT, circles, modules


def test_no_modules_of_the_product_are_in_a_circle() -> None:
    """Imports inside functions and for types count too."""
    found = modules(*(f"{room}/*.py" for room in PRODUCT))
    edges = {name: one.uses for name, one in found.items()}
    assert edges["engine_adapter.sglang.port"], "the graph has no edges: nothing would be found"
    assert circles(edges) == []
