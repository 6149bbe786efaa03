"""No address but a public one, however it is written."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch.webhooks.names import ReceiverNames
from batch.webhooks.targets import RefusedTarget, TargetPolicy, is_public, parse_url

# IANA's special-purpose registries, multicast, and the clouds' own services.
# fmt: off
NOT_PUBLIC = [
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
    "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32",
    "168.63.129.16/32", "::/128", "::1/128", "::/96", "::ffff:0:0/96", "64:ff9b::/96",
    "64:ff9b:1::/48", "100::/64", "2001::/32", "2001:2::/48", "2001:10::/28", "2001:20::/28",
    "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10",
    "ff00::/8",
]
# fmt: on

PUBLIC = ("1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001::1")

_SPECIAL = st.sampled_from(NOT_PUBLIC).map(ipaddress.ip_network)
_IN_SPECIAL = _SPECIAL.flatmap(lambda net: st.ip_addresses(network=net))


@pytest.mark.contract("W-08")
@given(_IN_SPECIAL)
def test_no_special_address_is_public(address: ipaddress.IPv4Address) -> None:
    assert not is_public(str(address))


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_inside_an_ipv6_address_is_never_public(
    inner: ipaddress.IPv4Address,
) -> None:
    packed = int(inner)
    for prefix in ("::ffff:0:0", "::", "64:ff9b::"):
        assert not is_public(str(ipaddress.IPv6Address(int(ipaddress.ip_address(prefix)) | packed)))
    assert not is_public(str(ipaddress.IPv6Address((0x2002 << 112) | packed << 80)))
    teredo = (0x20010000 << 96) | (packed ^ 0xFFFFFFFF)
    assert not is_public(str(ipaddress.IPv6Address(teredo)))


@given(st.ip_addresses())
def test_whatever_is_public_is_global_unicast(address: ipaddress.IPv4Address) -> None:
    if is_public(str(address)):
        assert address.is_global
        assert not address.is_multicast


@pytest.mark.parametrize("address", PUBLIC)
def test_hosts_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)
    assert TargetPolicy().permits(address, encrypted=True)
    assert not TargetPolicy().permits(address, encrypted=False), "never in the clear"


@pytest.mark.parametrize("text", ["", "localhost", "127.1", "0x7f.1", "fe80::1%eth0", "1.2.3.4.5"])
def test_what_is_no_address_is_not_public(text: str) -> None:
    assert not is_public(text)
    assert not TargetPolicy.of("127.0.0.0/8").permits(text, encrypted=True)


def test_named_networks_are_allowed_and_no_others() -> None:
    policy = TargetPolicy.of(" 127.0.0.0/8, fd00:1::/32,")
    for encrypted in (True, False):
        assert policy.permits("127.0.0.1", encrypted=encrypted)
        assert policy.permits("fd00:1::5", encrypted=encrypted)
        assert not policy.permits("10.0.0.1", encrypted=encrypted)
        assert not policy.permits("::ffff:127.0.0.1", encrypted=encrypted)
    assert policy.permits("1.1.1.1", encrypted=True)
    assert not policy.permits("1.1.1.1", encrypted=False)


@pytest.mark.parametrize("networks", ["nonsense", "10.0.0.1/8", "10.0.0.0/8;::1"])
def test_a_wrong_setting_is_refused(networks: str) -> None:
    with pytest.raises(ValueError, match=r"does not appear|has host bits"):
        TargetPolicy.of(networks)


BAD_URLS = (
    "",
    "nonsense",
    "//example.com/x",
    "ftp://example.com/x",
    "file:///etc/passwd",
    "https:///x",
    "https://user@example.com/",
    "https://user:pass@example.com/",
    "https://example.com/#part",
    "https://example.com:0/",
    "https://example.com:99999/",
    "https://exa mple.com/",
    "https://example.com\\@127.0.0.1/",
    "https://example.com/\r\nhost: x",
    "https://exämple.com/",
    "https://[::1/",
    "https://example.com/" + "x" * 2048,
)


@pytest.mark.parametrize("url", BAD_URLS)
def test_malformed_urls_are_refused(url: str) -> None:
    with pytest.raises(RefusedTarget):
        parse_url(url, allow_http=True)


def test_http_needs_a_named_network() -> None:
    with pytest.raises(RefusedTarget, match="https"):
        parse_url("http://example.com/", allow_http=False)
    assert parse_url("http://example.com/", allow_http=True).hostname == "example.com"
    assert parse_url("https://Example.com:8443/a?b=c", allow_http=False).port == 8443


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "0",
        "localhost",
        "localhost.",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:169.254.169.254]",
        "169.254.169.254",
        "100.100.100.200",
        "[fd00:ec2::254]",
        "168.63.129.16",
        "10.0.0.1",
        "name.invalid",
    ],
)
async def test_creation_refuses_hosts_that_are_not_public(host: str) -> None:
    names = ReceiverNames(["127.0.0.1:1"])
    with pytest.raises(RefusedTarget) as refused:
        await TargetPolicy().check(f"https://{host}/hook", names)
    # The same words whether the name is unknown or known to us only.
    assert refused.value.message == (
        "The host of the URL does not resolve to a public address. The operator can allow networks"
        " of its own with COSERVE_WEBHOOK_NETWORKS."
    )


async def test_creation_takes_what_may_be_reached() -> None:
    names = ReceiverNames()
    await TargetPolicy().check("https://1.1.1.1/hook", names)
    await TargetPolicy.of("127.0.0.0/8").check("http://127.0.0.1:8000/hook", names)
    with pytest.raises(RefusedTarget):
        await TargetPolicy.of("127.0.0.0/8").check("http://1.1.1.1/hook", names)
