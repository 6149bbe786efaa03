"""Who is counted, and under which name."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import ValidationError

from api.errors import RateLimited
from gateway.http.per_address_limits import (
    FLOOR,
    ConnectionCount,
    TrustedProxies,
    UnknownKeyLimiter,
    stranger_of,
)
from gateway.settings import GatewaySettings

INSIDE = TrustedProxies.of("10.0.0.0/8, fd00::/8")


def test_trusted_are_those_of_the_networks_and_no_others() -> None:
    for address in ("10.1.2.3", "fd00::1"):
        assert address in INSIDE
    for address in ("11.0.0.1", "127.0.0.1", "::1", "", "proxy", "10.0.0.0/8"):
        assert address not in INSIDE
    assert "127.0.0.1" in GatewaySettings().proxies


@pytest.mark.parametrize("wrong", ["*", "proxy", "10.0.0.1/8", "0.0.0.0/0", "::/0"])
def test_a_setting_that_trusts_everybody_or_nobody_knows_whom_stops_the_start(wrong: str) -> None:
    with pytest.raises(ValidationError, match="trusted_proxies"):
        GatewaySettings(trusted_proxies=wrong)


def test_one_customer_of_a_provider_is_one_stranger() -> None:
    assert stranger_of("2001:db8:1:2::1") == stranger_of("2001:db8:1:2:ffff::9")
    assert stranger_of("2001:db8:1:2::1") != stranger_of("2001:db8:1:3::1")
    assert stranger_of("::ffff:192.0.2.1") == stranger_of("192.0.2.1")
    assert stranger_of("192.0.2.1") != stranger_of("192.0.2.2")
    assert stranger_of("") == ""


def test_connections_are_counted_per_address() -> None:
    count = ConnectionCount(2, INSIDE)
    assert [count.opened("192.0.2.1", 99) for _ in range(3)] == [True, True, False]
    assert count.opened("192.0.2.2", 99)
    assert all(count.opened("10.0.0.1", 99) for _ in range(9))
    count.closed("10.0.0.1")
    for _ in range(2):
        count.closed("192.0.2.1")
    assert count.opened("192.0.2.1", 99)
    for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
        count.closed(address)
    assert count == ConnectionCount(2, INSIDE), "nothing is kept of those that are gone"


def test_a_few_addresses_do_not_take_all_connections() -> None:
    count, size, num_open = ConnectionCount(1024), 4096, 0
    for customer in range(8):
        while num_open < size and count.opened(f"192.0.2.{customer}", size - num_open - 1):
            num_open += 1
    assert all(count.opened("192.0.2.99", size - num_open - had) for had in range(1, FLOOR + 1))


async def test_who_sends_unknown_keys_without_end_is_refused_at_leisure() -> None:
    unknown = UnknownKeyLimiter(1, refusal_s=0.01)
    await unknown.count("192.0.2.1")
    refusals = [asyncio.ensure_future(unknown.count("192.0.2.1")) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in refusals)
    await unknown.count("192.0.2.2")
    refused = await asyncio.gather(*refusals, return_exceptions=True)
    assert {type(error) for error in refused} == {RateLimited}


async def test_unknown_keys_are_counted_per_address() -> None:
    unknown = UnknownKeyLimiter(3, refusal_s=0.01)
    for _ in range(3):
        await unknown.count("192.0.2.1")
    with pytest.raises(RateLimited) as refused:
        await unknown.count("192.0.2.1")
    assert 1 <= int(refused.value.headers["retry-after"]) <= 20
    await unknown.forgive("192.0.2.1")
    await unknown.count("192.0.2.1")
    for address in ("192.0.2.2", *["127.0.0.1"] * 3, *[None] * 9):
        await unknown.count(address)
    with pytest.raises(RateLimited):
        await unknown.count("127.0.0.1")
