"""Addresses as text: `host:port`, IPv6 hosts in brackets."""

from __future__ import annotations

from rmq.errors import ConfigError


def parse_address(address: str) -> tuple[str, int]:
    """Split `host:port`; an IPv6 host may stand in brackets."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ConfigError("address", f"{address!r} is not host:port")
    host = host.removeprefix("[").removesuffix("]")
    if not host:
        raise ConfigError("address", f"{address!r} names no host")
    return host, int(port)


def format_address(address: object) -> str:
    """Return a socket address as `host:port`, IPv6 hosts in brackets."""
    if not isinstance(address, tuple) or len(address) < 2:
        return str(address) or "(unnamed)"
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
