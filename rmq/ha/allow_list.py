"""Which addresses may replicate."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"


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
    """Return whether a peer may connect; without networks every peer may."""
    if not networks:
        return True
    try:
        address = ipaddress.ip_address(plain_host(host))
    except ValueError:
        return False
    return any(address in network for network in networks)
