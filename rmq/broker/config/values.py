"""The settings of a broker as its parts read them: one attribute for every key with a meaning here.

The attributes are declared in `service` (what peers notice), `operation` (how it runs)
and `replication`, those of its log in `rmq.settings.log_settings`, and the keys that describe the
store in `store`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rmq.broker.config.operation import RunningSettings
from rmq.broker.config.replication import ReplicationSettings
from rmq.broker.config.service import ServiceSettings
from rmq.remoting.channel import ChannelConfig
from rmq.remoting.client import ClientConfig
from rmq.remoting.layout import REQUEST_HEADER_BYTES_MAX
from rmq.remoting.server import ServerConfig
from rmq.settings.log_settings import LogSettings

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.remoting.tls_config import TlsClientConfig, TlsServerConfig
    from rmq.store.config import StoreConfig


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(LogSettings, ReplicationSettings, RunningSettings, ServiceSettings):
    """All settings of a broker. `LiveConfig.current` is the one in force."""

    store: StoreConfig
    config_path: Path | None = None
    """The file that updates are written to; None where nothing is to be kept."""
    tls_server: TlsServerConfig | None = None
    """None: clients are served without TLS only."""
    tls_client: TlsClientConfig | None = None
    """How nameservers and other brokers are dialled; None: without TLS."""

    tls_replication: TlsClientConfig | None = None
    """How a slave dials its master's replication port; None: without TLS."""

    @property
    def address(self) -> str:
        """What clients are told to connect to."""
        return f"{self.broker_ip1}:{self.listen_port}"

    @property
    def ha_port(self) -> int:
        """Port for slaves: always the next one, as in 4.9.8."""
        return self.listen_port + 1 if self.listen_port else 0

    @property
    def vip_port(self) -> int:
        """The second port for clients, which serves everything but pulls."""
        return self.listen_port - 2 if self.listen_port else 0

    @property
    def ha_address(self) -> str:
        """What slaves are told to connect to."""
        return f"{self.broker_ip2}:{self.ha_port}"

    @property
    def query_count_max(self) -> int:
        return self.store.query_count_max

    @property
    def server(self) -> ServerConfig:
        """Settings of the port for clients."""
        return self._listening(self.listen_port)

    @property
    def vip_server(self) -> ServerConfig:
        """Settings of the second port for clients."""
        return self._listening(self.vip_port)

    def _listening(self, port: int) -> ServerConfig:
        return ServerConfig(
            host=self.bind_address,
            port=port,
            backlog=self.server_backlog,
            host_share_max=self.host_share_max,
            channel=replace(
                ServerConfig().channel,
                idle_timeout_s=self.server_idle_timeout_s,
                header_bytes_max=REQUEST_HEADER_BYTES_MAX,
            ),
        )

    @property
    def client(self) -> ClientConfig:
        """Settings of the side that dials nameservers and brokers."""
        return ClientConfig(
            connect_timeout_s=self.connect_timeout_ms / 1000,
            channel=ChannelConfig(
                calls_max=self.client_calls_max,
                oneways_max=self.client_oneways_max,
                idle_timeout_s=self.client_idle_timeout_s,
            ),
        )
