"""Networks as settings: from where something is allowed, as `10.0.0.0/8;192.168.1.7`."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, TypeAlias

from rmq.errors import ConfigError
from rmq.settings.declaration import split_list

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"


def read_networks(text: str | None) -> tuple[Network, ...]:
    """Read the value of a setting that was checked with `check_networks`."""
    return tuple(ipaddress.ip_network(part, strict=False) for part in split_list(text))


def check_networks(key: str) -> Callable[[str], None]:
    """Return a check of a setting: raises `ConfigError` for what is no list of networks."""

    def check(text: str) -> None:
        for part in split_list(text):
            try:
                ipaddress.ip_network(part, strict=False)
            except ValueError:
                raise ConfigError(
                    key, f"{part!r} is no address or network such as 10.0.0.0/8"
                ) from None

    return check


def plain_host(host: str) -> str:
    """Return an address as people write it: IPv4 also where it came in through an IPv6 socket."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def is_allowed(networks: Sequence[Network], host: str) -> bool:
    """Return whether a peer is in one of the networks; without networks every peer is allowed."""
    if not networks:
        return True
    try:
        address = ipaddress.ip_address(plain_host(host))
    except ValueError:
        return False
    return any(address in network for network in networks)
