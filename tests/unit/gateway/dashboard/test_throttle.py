from __future__ import annotations

from gateway.dashboard.session import (
    FIRST_WAIT_S,
    FREE_ATTEMPTS,
    MAX_ADDRESSES,
    MAX_WAIT_S,
    LoginThrottle,
)


def test_a_few_mistakes_cost_nothing() -> None:
    throttle = LoginThrottle()
    for _ in range(FREE_ATTEMPTS - 1):
        throttle.failed("a", 0.0)
    assert throttle.wait_s("a", 0.0) == 0


def test_each_further_mistake_doubles_the_wait_up_to_a_limit() -> None:
    throttle = LoginThrottle()
    for _ in range(FREE_ATTEMPTS):
        throttle.failed("a", 0.0)
    assert throttle.wait_s("a", 0.0) == FIRST_WAIT_S
    throttle.failed("a", 0.0)
    assert throttle.wait_s("a", 0.0) == 2 * FIRST_WAIT_S
    assert throttle.wait_s("a", 2 * FIRST_WAIT_S) == 0
    for _ in range(100):
        throttle.failed("a", 0.0)
    assert throttle.wait_s("a", 0.0) == MAX_WAIT_S


def test_others_are_not_slowed_and_a_success_forgets() -> None:
    throttle = LoginThrottle()
    for _ in range(FREE_ATTEMPTS + 3):
        throttle.failed("a", 0.0)
    assert throttle.wait_s("b", 0.0) == 0
    throttle.succeeded("a")
    assert throttle.wait_s("a", 0.0) == 0


def test_the_oldest_address_is_forgotten_first() -> None:
    throttle = LoginThrottle()
    for number in range(MAX_ADDRESSES + 1):
        for _ in range(FREE_ATTEMPTS if number in (0, 1) else 1):
            throttle.failed(str(number), 0.0)
    assert throttle.wait_s("0", 0.0) == 0
    assert throttle.wait_s("1", 0.0) > 0
