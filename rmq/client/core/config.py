"""What a client is told before it starts, its id, and the address it is known by.

Settings are values only: they can be compared and pickled.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from rmq.client.core.nameservers import parse_nameservers
from rmq.errors import ConfigError
from rmq.remoting.addresses import parse_address
from rmq.remoting.busy_wait import BUSY_WAIT_S
from rmq.remoting.codes import Serialization

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmq.remoting.signing import Credentials
    from rmq.remoting.tls_config import TlsClientConfig

C = TypeVar("C")

DEFAULT_INSTANCE: Final = "DEFAULT"
_STREAM: Final = "STREAM"
_BUSY_WAIT_S_MAX: Final = 0.01
"""The longest busy-wait for one answer, which uses a core to the full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client finds its cluster and behaves towards it. Defaults are those of 4.9.8."""

    nameservers: str | tuple[str, ...] = field()
    """`host:port`, several joined by `;` or `,`, or in a tuple."""
    instance_name: str = DEFAULT_INSTANCE
    """Part of the client id; the default stands for one that no other process has."""
    unit_name: str | None = None
    local_address: str | None = None
    """The address to name in the client id; None: the one this machine reaches others from."""
    credentials: Credentials | None = None
    tls: TlsClientConfig | None = None
    """None: connections are not encrypted."""
    request_timeout_s: float = 3.0
    connect_timeout_s: float = 3.0
    route_refresh_s: float = 30.0
    heartbeat_s: float = 30.0
    serialization: Serialization = Serialization.JSON
    busy_wait_s: float = BUSY_WAIT_S
    """How long a task busy-waits for a single answer before it sleeps; 0: not at all. A
    broker nearby answers sooner than a process is woken; where it does not help it is left out."""
    trace_topic: str | None = None
    """Where to trace each message (`RMQ_SYS_TRACE_TOPIC`); None: nowhere."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "nameservers", parse_nameservers(self.nameservers))
        for name in ("request_timeout_s", "connect_timeout_s", "route_refresh_s", "heartbeat_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(name, f"{getattr(self, name)} is not above 0")
        if not 0 <= self.busy_wait_s <= _BUSY_WAIT_S_MAX:
            raise ConfigError(
                "busy_wait_s", f"{self.busy_wait_s} is not between 0 and {_BUSY_WAIT_S_MAX}"
            )

    @property
    def addresses(self) -> tuple[str, ...]:
        """The nameservers, one by one."""
        assert isinstance(self.nameservers, tuple)
        return self.nameservers


def client_id(ip: str, instance: str, *, unit: str | None = None, is_stream: bool = False) -> str:
    """Return a client id; two clients of a group with the same one get the same queues."""
    parts = [ip, instance]
    if unit:
        parts.append(unit)
    if is_stream:
        parts.append(_STREAM)
    return "@".join(parts)


def unique_instance(pid: int, nanoseconds: int) -> str:
    """Return an instance name that no other process of the machine has."""
    return f"{pid}#{nanoseconds}"


def member_config(
    kind: Callable[..., C], config: C | None, group: str | None, options: Mapping[str, object]
) -> C:
    """Return `config`, or one made of `group` and options; raise `ConfigError` for both or none."""
    if config is None:
        if group is None:
            raise ConfigError("group", "none is given", hint="name the group, or give a config")
        return kind(group=group, **options)
    if group is not None or options:
        raise ConfigError("config", "is given, and settings beside it, too")
    return config


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
