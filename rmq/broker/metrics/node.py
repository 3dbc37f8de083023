"""Metrics of the broker itself: whether it is ready, its role and settings, and its nameservers."""

from __future__ import annotations

import hashlib
import time
from itertools import permutations
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.broker.config import BrokerRole
from rmq.broker.config.schema import SCHEMA
from rmq.broker.metrics.readiness import WORDS
from rmq.broker.replication.metadata_status import Table
from rmq.metrics.families import Catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rmq.broker.config import LiveConfig
    from rmq.broker.metrics.readiness import Unready
    from rmq.broker.registration.registration import Registration
    from rmq.broker.replication.metadata_sync import MetadataSync
    from rmq.broker.tables.groups import GroupTable
    from rmq.broker.tables.topics import TopicTable
    from rmq.metrics.families import Sheet

READY_CATALOGUE: Final = Catalogue()
CATALOGUE: Final = Catalogue()
_gauge: Final = CATALOGUE.gauge
_counter: Final = CATALOGUE.counter

READY: Final = READY_CATALOGUE.gauge(
    "rocketmq_broker_ready", "Whether the broker does what it is there for, as /readyz says."
)
UNREADY: Final = READY_CATALOGUE.gauge(
    "rocketmq_broker_unready", "1 for each reason why it does not.", "reason"
)
ROLE_CHANGES: Final = READY_CATALOGUE.counter(
    "rocketmq_broker_role_changes_total", "Changes of the role since the start.", "from", "to"
)
CONFIG_INFO: Final = READY_CATALOGUE.gauge(
    "rocketmq_broker_config_info",
    "1, with two settings, and a hash over all of them but secrets.",
    "flush_disk_type",
    "broker_role",
    "config_hash",
)
PERMISSION: Final = _gauge(
    "rocketmq_broker_permission", "What clients may do here: 2 write, 4 read, 6 both."
)
TOPICS: Final = _gauge("rocketmq_topic_number", "How many topics there are.")
GROUPS: Final = _gauge("rocketmq_consumer_group_number", "How many consumer groups there are.")
REGISTERED: Final = _gauge(
    "rocketmq_namesrv_registered", "Whether a nameserver lists this broker.", "namesrv"
)
REGISTRATIONS: Final = _counter(
    "rocketmq_broker_registrations_total", "Registrations by this broker.", "namesrv", "result"
)
METADATA_SYNC: Final = _gauge(
    "rocketmq_slave_metadata_sync_timestamp_seconds",
    "When a table of this slave was last equal to its master's.",
    "kind",
)
METADATA_FAILURES: Final = _counter(
    "rocketmq_slave_metadata_sync_failures_total", "Copies of a table that failed.", "kind"
)

ROLES: Final = {role: role.value.lower() for role in BrokerRole}
KINDS: Final = {table: table.value.replace(" ", "_") for table in Table}
_HASH_DIGITS: Final = 12


@final
class ReadyMetrics:
    """Shows what is known also while the store is being opened."""

    catalogue: Final = READY_CATALOGUE

    def __init__(self, live: LiveConfig, unready: Callable[[], Sequence[Unready]]) -> None:
        self._live = live
        self._unready = unready
        self._hash: tuple[object, str] = (None, "")

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Put all samples into the sheet."""
        reasons = {reason.word for reason in self._unready()}
        sheet.put(READY, not reasons)
        for word in WORDS:
            sheet.put(UNREADY, word in reasons, word)
        changes = self._live.role_changes
        for old, new in permutations(BrokerRole, 2):
            sheet.put(ROLE_CHANGES, changes.get((old, new), 0), ROLES[old], ROLES[new])
        config = self._live.current
        sheet.put(
            CONFIG_INFO,
            1,
            config.store.flush_mode.value,
            ROLES[config.role],
            self._config_hash(),
        )
        yield

    def _config_hash(self) -> str:
        """Return a hash over the settings as they are in the file; secrets are left out."""
        version = self._live.version
        if self._hash[0] != version:
            lines = [
                f"{key}={value}\n"
                for key, value in sorted(self._live.as_properties().items())
                if not SCHEMA[key].secret
            ]
            digest = hashlib.sha256("".join(lines).encode("utf-8", "replace")).hexdigest()
            self._hash = (version, digest[:_HASH_DIGITS])
        return self._hash[1]


@final
class NodeMetrics:
    """Shows what a broker is and who knows of it."""

    catalogue: Final = CATALOGUE

    def __init__(
        self,
        live: LiveConfig,
        topics: TopicTable,
        groups: GroupTable,
        registration: Registration,
        metadata: MetadataSync,
    ) -> None:
        self._live = live
        self._topics = topics
        self._groups = groups
        self._registration = registration
        self._metadata = metadata

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Put all samples into the sheet."""
        sheet.put(PERMISSION, self._live.current.permission)
        sheet.put(TOPICS, len(self._topics))
        sheet.put(GROUPS, len(self._groups))
        for nameserver in self._registration.nameservers:
            address = nameserver.address
            sheet.put(REGISTERED, nameserver.registered_over is not None, address)
            sheet.put(REGISTRATIONS, nameserver.succeeded, address, "success")
            sheet.put(REGISTRATIONS, nameserver.failed, address, "failure")
        if self._live.current.role is BrokerRole.SLAVE:
            self._put_metadata(sheet)
        yield

    def _put_metadata(self, sheet: Sheet) -> None:
        # Kept by the monotonic clock, which a correction of the wall's does not move.
        offset_s = time.time() - trio.current_time()
        for table, status in self._metadata.status.tables.items():
            if status.copied_at is not None:
                sheet.put(METADATA_SYNC, status.copied_at + offset_s, KINDS[table])
            sheet.put(METADATA_FAILURES, self._metadata.failures[table], KINDS[table])
