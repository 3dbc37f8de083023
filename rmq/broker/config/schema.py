"""All settings of a broker together: the schema, the rules between them, and `build_config`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.broker.config.ignored import ignored_settings
from rmq.broker.config.store import STORE_KEYS, pool_is_possible, store_config
from rmq.broker.config.tls import TLS_SETTINGS, tls_client_config, tls_replication_config
from rmq.broker.config.values import BrokerConfig
from rmq.remoting.tls_settings import tls_server_config
from rmq.settings.declaration import attributes, read_attributes
from rmq.settings.schema import Rule, Schema, Setting
from rmq.store.config import split_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rmq.settings.schema import Value, Values

SECTIONS: Final = ("broker", "server", "client", "store", "system", "tls", "rmq")
"""The classes of a Java broker, in the order in which it prints them; then what else it takes."""

_ATTRIBUTES: Final = tuple(attributes(BrokerConfig, section="broker"))
_RECORD_ROOM_BYTES: Final = 64 * 1024 + 8
"""What a record may have beside its body, and the blank at the end of a segment."""


def build_config(values: Values, config_path: Path | None) -> BrokerConfig:
    """Make the attributes of values that the rules found nothing wrong with."""
    return BrokerConfig(
        store=store_config(values),
        config_path=config_path,
        tls_server=tls_server_config(values),
        tls_client=tls_client_config(values),
        tls_replication=tls_replication_config(values),
        **read_attributes(_ATTRIBUTES, values),
    )


def adjusted(values: Values) -> Values:
    """The values as a broker prints them: those in force, also where the file differs."""
    port = values.integer("listenPort")
    changes: dict[str, Value] = {"haListenPort": port + 1 if port else 0}
    if values["brokerRole"] != "SLAVE":
        changes["brokerId"] = 0
    return values.with_changes(changes)


def adjustments(values: Values) -> list[str]:
    """Values in force that differ from the file, in sentences for the log."""
    found: list[str] = []
    if values["brokerRole"] != "SLAVE" and values["brokerId"] != 0:
        found.append(f"brokerId is 0 for a master, not {values['brokerId']}")
    for key, low, high in (
        ("diskMaxUsedSpaceRatio", 10, 95),
        ("registerNameServerPeriod", 10_000, 60_000),
    ):
        if not low <= values.integer(key) <= high:
            counts = low if values.integer(key) < low else high
            found.append(f"{key} counts as {counts}, not {values[key]}")
    if values.flag("transientStorePoolEnable") and not pool_is_possible(values):
        found.append("transientStorePoolEnable counts for masters with ASYNC_FLUSH only")
    room = values.integer("mappedFileSizeCommitLog") - _RECORD_ROOM_BYTES
    if room < values.integer("maxMessageSize"):
        found.append(
            f"maxMessageSize is {values['maxMessageSize']}, but a segment of "
            f"mappedFileSizeCommitLog={values['mappedFileSizeCommitLog']} bytes may have no room "
            "for such a message"
        )
    return found


def _settings() -> Iterable[Setting]:
    every = (
        *(each.setting for each in _ATTRIBUTES),
        *(each.setting for each in STORE_KEYS),
        *TLS_SETTINGS,
        *ignored_settings(),
    )
    return sorted(every, key=lambda setting: SECTIONS.index(setting.section))


def _keys_of_tls(prefix: str) -> tuple[str, ...]:
    return tuple(setting.key for setting in TLS_SETTINGS if setting.key.startswith(prefix))


def _must_be_set(key: str) -> Rule:
    return Rule(keys=(key,), check=lambda values: None if values[key] else "must not be empty")


def _makes(part: Callable[[Values], object]) -> Callable[[Values], str | None]:
    """A check that a part of the settings can be made; it raises `ConfigError` otherwise."""

    def check(values: Values) -> None:
        part(values)

    return check


def _fails(reason: str, when: Callable[[Values], bool]) -> Callable[[Values], str | None]:
    return lambda values: reason if when(values) else None


_RULES: Final = (
    *map(
        _must_be_set,
        (
            "brokerIP1",
            "brokerIP2",
            "brokerName",
            "brokerClusterName",
            "bindAddress",
            "metricsAddress",
            "msgTraceTopicName",
            "storePathRootDir",
            "deleteWhen",
            "messageDelayLevel",
        ),
    ),
    Rule(
        keys=("brokerId", "brokerRole"),
        check=_fails(
            "must be above 0 for a SLAVE",
            lambda values: values["brokerRole"] == "SLAVE" and values["brokerId"] == 0,
        ),
    ),
    Rule(
        keys=("fetchNamesrvAddrByAddressServer", "namesrvAddr"),
        check=_fails(
            "there is no address server here; set namesrvAddr",
            lambda values: (
                values["fetchNamesrvAddrByAddressServer"] is True and not values["namesrvAddr"]
            ),
        ),
    ),
    Rule(
        keys=(
            "rocketmq.broker.diskSpaceWarningLevelRatio",
            "rocketmq.broker.diskSpaceCleanForciblyRatio",
        ),
        check=_fails(
            "must not be below rocketmq.broker.diskSpaceCleanForciblyRatio",
            lambda values: (
                values.fraction("rocketmq.broker.diskSpaceWarningLevelRatio")
                < values.fraction("rocketmq.broker.diskSpaceCleanForciblyRatio")
            ),
        ),
    ),
    Rule(
        keys=("haHousekeepingInterval", "haSendHeartbeatInterval"),
        check=_fails(
            "must be above haSendHeartbeatInterval, or idle links are closed all the time",
            lambda values: (
                values.integer("haHousekeepingInterval")
                <= values.integer("haSendHeartbeatInterval")
            ),
        ),
    ),
    Rule(
        keys=("haDialect", "haSecret"),
        check=_fails(
            "must not be stock: RocketMQ's own dialect knows no haSecret",
            lambda values: bool(values["haSecret"]) and values["haDialect"] == "stock",
        ),
    ),
    Rule(
        keys=("haTlsMode", "tls.server.certPath"),
        check=_fails(
            "needs tls.server.certPath and tls.server.keyPath",
            lambda values: values["haTlsMode"] != "disabled" and not values["tls.server.certPath"],
        ),
    ),
    Rule(
        keys=("storePathCommitLog", "storePathRootDir"),
        check=_fails(
            "must not be storePathRootDir itself, where other files are",
            lambda values: (
                Path(values.text("storePathRootDir")) in split_paths(values["storePathCommitLog"])
            ),
        ),
    ),
    Rule(
        keys=(*(each.setting.key for each in STORE_KEYS), "brokerRole"), check=_makes(store_config)
    ),
    Rule(keys=_keys_of_tls("tls.server."), check=_makes(tls_server_config)),
    Rule(keys=("useTLS", *_keys_of_tls("tls.client.")), check=_makes(tls_client_config)),
    Rule(keys=("haTlsMode", *_keys_of_tls("tls.client.")), check=_makes(tls_replication_config)),
)

SCHEMA: Final = Schema(_settings(), _RULES)
