from tests.unit.engine_adapter.conftest import model, world

__all__ = ["model", "world"]
