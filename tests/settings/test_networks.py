"""From where something is allowed."""

from __future__ import annotations

import ipaddress

import pytest

from rmq.errors import ConfigError
from rmq.settings.networks import Network, check_networks, is_allowed, plain_host, read_networks


def networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


@pytest.mark.parametrize(
    ("allowed", "host", "expected"),
    [
        pytest.param((), "203.0.113.9", True, id="no list allows everyone"),
        pytest.param(("10.0.0.0/8",), "10.200.3.4", True, id="in the network"),
        pytest.param(("10.0.0.0/8",), "11.0.0.1", False, id="outside of it"),
        pytest.param(("10.0.0.5",), "10.0.0.5", True, id="a single address"),
        pytest.param(("10.0.0.5",), "10.0.0.6", False, id="its neighbour"),
        pytest.param(("10.0.0.0/8", "192.168.7.0/24"), "192.168.7.1", True, id="the second one"),
        pytest.param(("10.0.0.0/8",), "::ffff:10.1.1.1", True, id="IPv4 over an IPv6 socket"),
        pytest.param(("10.0.0.0/8",), "::ffff:11.1.1.1", False, id="the same from elsewhere"),
        pytest.param(("10.0.0.0/8",), "fd00::1", False, id="IPv6 and an IPv4 network"),
        pytest.param(("fd00::/8",), "fd00::1", True, id="IPv6"),
        pytest.param(("fe80::/10",), "fe80::1%eth0", True, id="with the name of an interface"),
        pytest.param(("10.0.0.0/8",), "localhost", False, id="a name is no address"),
    ],
)
def test_an_address_is_judged_by_the_networks(
    allowed: tuple[str, ...], host: str, expected: bool
) -> None:
    assert is_allowed(networks(*allowed), host) is expected


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fd00:0:0::1", "fd00::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("", ""),
        ("somewhere", "somewhere"),
    ],
)
def test_an_address_is_written_in_one_way(host: str, plain: str) -> None:
    assert plain_host(host) == plain


def test_a_setting_lists_addresses_and_networks() -> None:
    text = "10.0.0.0/8; 192.168.1.7;fd00::/8"
    check_networks("allowed")(text)
    assert [str(network) for network in read_networks(text)] == [
        "10.0.0.0/8",
        "192.168.1.7/32",
        "fd00::/8",
    ]
    assert read_networks("") == read_networks(None) == ()


def test_what_is_no_network_is_named() -> None:
    with pytest.raises(ConfigError, match="allowed: 'localhost' is no address or network"):
        check_networks("allowed")("10.0.0.0/8;localhost")
