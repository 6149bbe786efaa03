"""What is found of engines, without one."""

from __future__ import annotations

from coserve.checkup.finding import Finding
from coserve.checkup.service import only_busy


def test_the_only_engine_that_the_gateway_reaches_is_busy_and_not_lost() -> None:
    silent = only_busy(Finding("engine http://e:1", "bad", "it does not answer", "Look"))
    assert (silent.name, silent.state) == ("engine http://e:1", "warn")
    assert "ask again" in silent.fix
    strange = Finding("engine http://e:1", "warn", "SGLang without our scheduler", "Start it with")
    assert only_busy(strange) == strange
