"""What a client is told before it starts. Values only: they can be compared and pickled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rmq.client.core.client_ids import DEFAULT_INSTANCE
from rmq.client.core.nameservers import parse_nameservers
from rmq.errors import ConfigError
from rmq.remoting.busy_wait import BUSY_WAIT_S
from rmq.remoting.codes import Serialization

if TYPE_CHECKING:
    from rmq.client.core.signing import Credentials
    from rmq.remoting.tls_config import TlsClientConfig

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
_BUSY_WAIT_S_MAX: Final = 0.01
"""So long the core is used to the full, for one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How a client finds its cluster and behaves towards it. Defaults are those of 4.9.8."""

    nameservers: str | tuple[str, ...] = field()
    """`host:port`, several joined by `;` or in a tuple."""
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
    """How long whoever waits for a single answer looks for it before sleeping; 0: not at all. A
    broker nearby answers sooner than a process is woken; where it does not help it is left out."""
    trace_topic: str | None = None
    """Where to write what became of each message (`RMQ_SYS_TRACE_TOPIC`); None: nowhere."""

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
