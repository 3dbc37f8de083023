"""The address by which others know this machine."""

from __future__ import annotations

import socket

from rmq.remoting.addresses import parse_address


def own_address(peer: str) -> str:
    """Return the address that this machine reaches `peer` from. Sends nothing."""
    host, port = parse_address(peer)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[
            0
        ]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
