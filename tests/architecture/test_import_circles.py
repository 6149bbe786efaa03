"""The plugin can be read from its lowest floor up: no module there leads back to itself."""

from __future__ import annotations

from bench.house import circles, modules

PLUGIN = "engine_adapter.sglang"


def test_no_modules_of_the_plugin_are_in_a_circle() -> None:
    edges = {name: one.uses for name, one in modules("engine_adapter/sglang/*.py").items()}
    assert f"{PLUGIN}.port" in edges
    assert edges[f"{PLUGIN}.port"], "the graph has no edges: nothing would be found"
    assert circles(edges) == []
