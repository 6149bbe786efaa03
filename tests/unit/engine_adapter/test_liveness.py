"""The proof fails closed, each time with one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from engine_adapter.liveness import EngineNotProven, prove, verify_engine
from tests.fakes.client import FakeEngine, FakeEngineClient, FakeSettings
from tests.fakes.script import Script


class ShapingEngine(FakeEngine):
    """A fake engine that answers schemas with a given text."""

    shaped = '{"ok": true}'

    def script(self, path: str, body: Mapping[str, Any]) -> Script:
        script = super().script(path, body)
        if "response_format" not in body:
            return script
        return Script((self.shaped,), "stop", script.prompt_tokens, 0.0)


async def test_a_good_engine_is_proven() -> None:
    engine = ShapingEngine()
    facts = await prove(FakeEngineClient(engine), engine.settings.model)
    assert facts.model == engine.settings.model
    assert facts.context_tokens == engine.settings.context_tokens
    # What a CUDA engine compiles when it is first asked for, it was asked for.
    assert {
        name for body in engine.received for name in ("top_p", "top_k", "min_p") if name in body
    } == {"top_p", "top_k", "min_p"}


async def test_an_engine_that_embeds_is_asked_for_nothing_else() -> None:
    engine = ShapingEngine(FakeSettings(embeds=True))
    assert (await prove(FakeEngineClient(engine), engine.settings.model)).embeds
    assert [body["input"] for body in engine.received] == ["Say hello."]


async def test_an_engine_that_cannot_embed_what_it_should() -> None:
    engine = ShapingEngine(FakeSettings(embeds=True, context_tokens=1))
    with pytest.raises(EngineNotProven, match="failed an embeddings request"):
        await prove(FakeEngineClient(engine), engine.settings.model)


async def test_no_plugin() -> None:
    engine = FakeEngine(FakeSettings(plugin=False))
    with pytest.raises(EngineNotProven, match="runs without coserve's scheduler plugin"):
        await prove(FakeEngineClient(engine), engine.settings.model)
    assert engine.received == []


async def test_wrong_model() -> None:
    with pytest.raises(EngineNotProven, match="expected 'another'"):
        await prove(FakeEngineClient(ShapingEngine()), "another")


@pytest.mark.parametrize("text", ["1 2 3", '{"ok": "yes"}', '{"ok": true, "more": 1}', "[true]"])
async def test_structured_output_that_is_none(text: str) -> None:
    engine = ShapingEngine()
    engine.shaped = text
    with pytest.raises(EngineNotProven, match="does not hold to a JSON schema"):
        await prove(FakeEngineClient(engine), engine.settings.model)


async def test_an_engine_that_is_not_there() -> None:
    with pytest.raises(EngineNotProven, match=r"was not ready within 1 s\."):
        await verify_engine("http://127.0.0.1:9", "m", 0.6)
