"""Settings of a nameserver: `namesrv.conf`, with the keys and defaults of RocketMQ 4.9.8.

Keys are those of NamesrvConfig, NettyServerConfig and TlsSystemConfig, and some of our own
(`OWN_KEYS`): the times that the original has in its code, where to listen, how many connections to
take, from where to take changes, and access control. What threads and buffers the original uses
means nothing here; such keys are accepted.

`LiveConfig` is the configuration of a running process. An update is written to the file before it
counts, and only the lines of changed keys are touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, final

from rmq.errors import ConfigError, RefusedError
from rmq.remoting.channel import ChannelConfig
from rmq.remoting.codes import ResponseCode
from rmq.remoting.fairness.shares import SHARE_MAX
from rmq.remoting.layout import REQUEST_HEADER_BYTES_MAX
from rmq.remoting.server import ServerConfig
from rmq.remoting.tls_settings import (
    tls_server_config,
    tls_server_settings,
    tls_server_warnings,
)
from rmq.settings import metrics_port as metrics_port_rules
from rmq.settings.declaration import (
    NOW,
    RESTART,
    attributes,
    read_attributes,
    required_setting,
    setting,
)
from rmq.settings.exposure import secret_file_warnings
from rmq.settings.guard import guarded_changes, guarded_remark
from rmq.settings.log_settings import LogSettings
from rmq.settings.networks import Network, check_networks, read_networks
from rmq.settings.schema import (
    Change,
    Effect,
    Rule,
    Schema,
    Setting,
    Values,
    decode_settings,
    format_value,
)
from rmq.settings.schema import change as change_settings
from rmq.settings.schema import load as load_settings
from rmq.settings.settings_file import change_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmq.remoting.tls_config import TlsServerConfig
    from rmq.settings.schema import Value

OWN_KEYS: Final = frozenset(
    (
        "bindAddress",
        "serverConnectionsMax",
        "hostShareMax",
        "scanNotActiveBrokerInterval",
        "brokerExpiredTime",
        "aclEnable",
        "rocketmq.acl.plain.file",
        "registrationAllowedAddresses",
        "adminAllowedAddresses",
        "logLevel",
        "logFormat",
        "logFile",
        "logFileSize",
        "logFilesKept",
        "metricsPort",
        "metricsAddress",
    )
)
"""Keys that RocketMQ 4.9.8 does not have."""

_BLACK_LIST: Final = frozenset(
    (
        "configBlackList",
        "configStorePath",
        "kvConfigPath",
        "rocketmqHome",
    )
)
REMARK_BLACK_LIST: Final = "Can not update config in black list."


def _ignored(key: str, default: Value) -> Setting:
    return Setting(key=key, default=default, effect=Effect.IGNORED, help="Has no meaning here.")


def _is_given(key: str) -> Rule:
    return Rule(keys=(key,), check=lambda values: None if values.text(key) else "must not be empty")


def _makes_tls(values: Values) -> None:
    tls_server_config(values)


def _black_list(text: str) -> frozenset[str]:
    """Read `configBlackList`, and add what is always in it."""
    return _BLACK_LIST.union(key for part in text.split(";") if (key := part.strip()))


def _seconds(milliseconds: int) -> float:
    return milliseconds / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class NameserverConfig(LogSettings):
    """A nameserver's settings, checked. Made by `load_nameserver_config`."""

    values: Values
    """Every setting of the schema, as it is printed and answered."""
    tls: TlsServerConfig
    """`tls.server.*`."""
    bind_address: str = setting(
        "bindAddress",
        "0.0.0.0",
        "Address or host name to listen on.",
        RESTART,
        important=True,
        guarded=True,
    )
    listen_port: int = setting(
        "listenPort",
        9876,
        "Port to listen on; 0 takes a free one.",
        RESTART,
        maximum=65_535,
        important=True,
        guarded=True,
    )
    kv_path: Path = required_setting(
        "kvConfigPath",
        "File of the KV config.",
        RESTART,
        read=Path,
        unread=None,
        default_text="$HOME/namesrv/kvConfig.json",
        important=True,
        guarded=True,
    )
    file_path: Path = required_setting(
        "configStorePath",
        "File that run-time updates of these settings are written to.",
        RESTART,
        read=Path,
        unread=None,
        default_text="the file given with -c, else $HOME/namesrv/namesrv.properties",
        guarded=True,
    )
    order_topics: bool = setting(
        "orderMessageEnable",
        False,
        "Whether the route of an ordered topic tells its queues per broker.",
        NOW,
    )
    black_list: frozenset[str] = setting(
        "configBlackList",
        _BLACK_LIST,
        "Keys that cannot be updated at run time, separated by semicolons.",
        RESTART,
        read=_black_list,
        unread="configBlackList;configStorePath;kvConfigPath",
    )
    scan_interval_s: float = setting(
        "scanNotActiveBrokerInterval",
        10.0,
        "Milliseconds between two searches for silent brokers.",
        NOW,
        read=_seconds,
        unread=10_000,
        minimum=10,
    )
    broker_expiry_s: float = setting(
        "brokerExpiredTime",
        120.0,
        "Milliseconds after which a broker that has not registered again is removed.",
        NOW,
        read=_seconds,
        unread=120_000,
        minimum=10,
    )
    acl_enabled: bool = setting(
        "aclEnable",
        False,
        "Requests need an account and a signature, changes an account with admin rights.",
        RESTART,
        important=True,
        guarded=True,
    )
    acl_file: str | None = setting(
        "rocketmq.acl.plain.file",
        None,
        "The main file of access control, below rocketmqHome or beside the settings file unless"
        " its path is absolute.",
        RESTART,
        default_text="conf/plain_acl.yml below rocketmqHome, else plain_acl.yml beside the settings"
        " file",
        guarded=True,
    )
    rocketmq_home: str | None = setting(
        "rocketmqHome",
        None,
        "Directory of a Java installation: the file of access control is sought there first.",
        RESTART,
        guarded=True,
    )
    idle_timeout_s: int = setting(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "Seconds without a byte either way after which a connection is closed.",
        RESTART,
        minimum=1,
    )
    connections_max: int = setting(
        "serverConnectionsMax",
        50_000,
        "Connections open at a time; one more is closed at once.",
        RESTART,
        minimum=1,
    )
    host_share_max: int = setting(
        "hostShareMax",
        SHARE_MAX,
        "Largest percentage of connections, of unanswered requests and of held bytes that one host"
        " may have; 100: hosts are not told apart.",
        RESTART,
        minimum=1,
        maximum=100,
    )
    backlog: int = setting(
        "serverSocketBacklog",
        1024,
        "Connections that may wait to be accepted.",
        RESTART,
        minimum=1,
    )

    metrics_port: int = setting(
        "metricsPort",
        metrics_port_rules.UNSET,
        "Port for Prometheus and for probes (docs/metrics.md); -1: 5556, or none if another process"
        " has that; 0: none.",
        RESTART,
        minimum=metrics_port_rules.UNSET,
        maximum=65_535,
        guarded=True,
    )
    metrics_address: str = setting(
        "metricsAddress",
        "127.0.0.1",
        "Address that metricsPort is opened on; it has neither TLS nor a password.",
        RESTART,
        guarded=True,
    )
    registration_allowed: tuple[Network, ...] = setting(
        "registrationAllowedAddresses",
        (),
        "Addresses and networks whose brokers may register, separated by semicolons; empty allows"
        " all.",
        RESTART,
        read=read_networks,
        unread="",
        check=check_networks("registrationAllowedAddresses"),
        guarded=True,
    )
    admin_allowed: tuple[Network, ...] = setting(
        "adminAllowedAddresses",
        (),
        "Addresses and networks that may change the KV config, settings, permissions and topics,"
        " separated by semicolons; empty allows all.",
        RESTART,
        read=read_networks,
        unread="",
        check=check_networks("adminAllowedAddresses"),
        guarded=True,
    )

    @classmethod
    def from_values(cls, values: Values) -> Self:
        given = read_attributes(_ATTRIBUTES, values)
        return cls(values=values, tls=tls_server_config(values), **given)

    @property
    def server(self) -> ServerConfig:
        """Settings of the port."""
        return ServerConfig(
            host=self.bind_address,
            port=self.listen_port,
            backlog=self.backlog,
            connections_max=self.connections_max,
            host_share_max=self.host_share_max,
            channel=ChannelConfig(
                idle_timeout_s=self.idle_timeout_s,
                calls_max=10_000,
                header_bytes_max=REQUEST_HEADER_BYTES_MAX,
            ),
        )

    def as_properties(self) -> dict[str, str]:
        """Every setting that has a value."""
        return SCHEMA.as_properties(self.values)

    def lines(self) -> list[str]:
        """`key=value` of every setting, as `-p` prints them."""
        return SCHEMA.format_lines(self.values)


_ATTRIBUTES: Final = tuple(attributes(NameserverConfig, section="nameserver"))
_TLS: Final = tls_server_settings("nameserver")

SCHEMA: Final = Schema(
    [
        *(each.setting for each in _ATTRIBUTES),
        *_TLS,
        Setting(
            key="clusterTest",
            default=False,
            effect=Effect.IGNORED,
            refused="looking up unknown topics in another environment does not exist here",
            help="Must be false.",
        ),
        _ignored("productEnvName", "center"),
        _ignored("serverWorkerThreads", 8),
        _ignored("serverCallbackExecutorThreads", 0),
        _ignored("serverSelectorThreads", 3),
        _ignored("serverOnewaySemaphoreValue", 256),
        _ignored("serverAsyncSemaphoreValue", 64),
        _ignored("serverSocketSndBufSize", 0),
        _ignored("serverSocketRcvBufSize", 0),
        _ignored("writeBufferHighWaterMark", 0),
        _ignored("writeBufferLowWaterMark", 0),
        _ignored("serverPooledByteBufAllocatorEnable", True),
        _ignored("useEpollNativeSelector", False),
    ],
    rules=[
        *(
            _is_given(key)
            for key in ("bindAddress", "metricsAddress", "kvConfigPath", "configStorePath")
        ),
        Rule(keys=tuple(setting.key for setting in _TLS), check=_makes_tls),
    ],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A configuration, and warnings for the operator."""

    config: NameserverConfig
    warnings: tuple[str, ...]


def load_nameserver_config(
    path: Path | None = None,
    overrides: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str],
) -> LoadedConfig:
    """Read the settings: `overrides` (of the command line) before the file before the defaults.

    Raise `ConfigError` with all faults.
    """
    home = Path(environ.get("HOME") or "") / "namesrv"
    text = "" if path is None else _read(path)
    loaded = load_settings(
        SCHEMA,
        text,
        "" if path is None else str(path),
        overrides=overrides,
        defaults={
            "kvConfigPath": str(home / "kvConfig.json"),
            "configStorePath": str(home / "namesrv.properties"),
            "rocketmqHome": environ.get("ROCKETMQ_HOME") or None,
        },
    )
    values = loaded.values
    if path is not None:
        # As in the original: the file that was read is the one that updates go to.
        values = values.with_changes({"configStorePath": str(path)})
    return LoadedConfig(
        config=NameserverConfig.from_values(values),
        warnings=(
            *loaded.warnings,
            *tls_server_warnings(values),
            *secret_file_warnings(SCHEMA, values, path),
        ),
    )


@final
class LiveConfig:
    """The settings of a running nameserver."""

    def __init__(self, config: NameserverConfig) -> None:
        self.current = config
        """The settings in force; those that need a restart are read at the start only."""
        self._subscribers: list[Callable[[NameserverConfig], object]] = []

    def subscribe(self, callback: Callable[[NameserverConfig], object]) -> None:
        """Have `callback(new)` called after each change of `current`."""
        self._subscribers.append(callback)

    def plan(self, changes: Mapping[str, str], *, by_admin: bool = False) -> Change:
        """Check an update; raise `RefusedError` for a forbidden or invalid one."""
        if not self.current.black_list.isdisjoint(changes):
            raise RefusedError(ResponseCode.NO_PERMISSION, REMARK_BLACK_LIST)
        guarded = guarded_changes(SCHEMA, self.current.values, changes)
        if guarded and not by_admin:
            raise RefusedError(ResponseCode.NO_PERMISSION, guarded_remark(guarded))
        try:
            return change_settings(SCHEMA, self.current.values, changes)
        except ConfigError as exc:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"nothing was updated: {exc.text}"
            ) from None

    def plan_reload(self, config: NameserverConfig) -> Change:
        """Work out what changes with settings that were just read from the file."""
        values = config.values
        changes = {
            each.key: format_value(values[each.key])
            for each in SCHEMA
            if values[each.key] != self.current.values[each.key]
        }
        return change_settings(SCHEMA, self.current.values, changes)

    def write(self, changes: Mapping[str, str]) -> None:
        """Write an update to the file; blocks. Raise `StorageError`."""
        change_file(self.current.file_path, changes, SCHEMA)

    def apply(self, change: Change) -> None:
        """Apply an update, as far as it needs no restart."""
        self.current = NameserverConfig.from_values(change.values)
        for callback in self._subscribers:
            callback(self.current)


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise ConfigError(str(path), f"cannot be read: {exc.strerror or exc}") from exc
    return decode_settings(data, str(path))
