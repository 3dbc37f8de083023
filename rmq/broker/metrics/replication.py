"""Metrics of replication: roles, guarantees, and the progress of slaves.

`HaMetrics` is computed at scrape time from the same status that operators are shown, and from what
the store says of itself. It knows no task and takes no lock; a scrape costs the broker less than a
millisecond, however much it has stored.

What is not known has no sample, for example what is replicated while too few slaves are in sync:
alerts on it would be wrong both with 0 and with -1. `..._in_sync` and `..._connected` are always
known.

No label has values that a peer can make up without bounds; `SlaveChoice` sees to that.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, final

import rmq
from rmq.broker.config import BrokerRole
from rmq.broker.metrics.slaves import SlaveChoice
from rmq.ha.slave_status import SlaveState
from rmq.metrics.families import Catalogue
from rmq.store.core import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmq.metrics.families import Family, Sheet
    from rmq.remoting.bodies import HaMaster, HaStatusBody
    from rmq.store.core import StoreStatistics

CATALOGUE: Final = Catalogue()
_gauge: Final = CATALOGUE.gauge
_counter: Final = CATALOGUE.counter

# --- the broker ---------------------------------------------------------------------------------

BROKER_INFO: Final = _gauge(
    "rocketmq_broker_info", "1, with what this broker is.", "broker_id", "version", "address"
)
BROKER_ROLE: Final = _gauge("rocketmq_broker_role", "1 for the present role of the broker.", "role")
BROKER_EPOCH: Final = _gauge(
    "rocketmq_broker_epoch", "Epoch of the master by which the log was last written."
)
BROKER_REFUSAL: Final = _gauge(
    "rocketmq_broker_refusal",
    "1 for the gravest reason why the store takes no messages, 0 everywhere while it takes them.",
    "reason",
)

# --- the log ------------------------------------------------------------------------------------

LOG_MIN: Final = _gauge("rocketmq_commitlog_min_offset_bytes", "Where the CommitLog begins.")
LOG_MAX: Final = _gauge("rocketmq_commitlog_max_offset_bytes", "Where the CommitLog ends.")
LOG_FLUSHED: Final = _gauge(
    "rocketmq_commitlog_flushed_offset_bytes", "Up to here the CommitLog is on disk."
)
LOG_DISPATCHED: Final = _gauge(
    "rocketmq_commitlog_dispatched_offset_bytes", "Up to here messages are in their queues."
)
LOG_REPLICATED: Final = _gauge(
    "rocketmq_commitlog_replicated_offset_bytes",
    "Up to here as many slaves in sync as needed hold the CommitLog; absent with fewer of them.",
)
LOG_VISIBLE: Final = _gauge(
    "rocketmq_commitlog_visible_offset_bytes", "Up to here consumers may see messages."
)
FLUSH_BEHIND: Final = _gauge(
    "rocketmq_storage_flush_behind_bytes", "Bytes of the CommitLog that are not on disk yet."
)
DISPATCH_BEHIND: Final = _gauge(
    "rocketmq_storage_dispatch_behind_bytes", "Bytes of the CommitLog that are in no queue yet."
)

# --- what a master guarantees -------------------------------------------------------------------

MODE: Final = _gauge(
    "rocketmq_ha_mode",
    "1 for what sends to this master wait for: sync, slaves; async, none.",
    "mode",
)
MODE_OFFSET: Final = _gauge(
    "rocketmq_ha_mode_offset_bytes", "From this offset of the CommitLog on the mode applies."
)
NEEDED: Final = _gauge(
    "rocketmq_ha_needed_slaves", "How many slaves must hold a message in sync mode."
)
MINIMUM: Final = _gauge(
    "rocketmq_ha_minimum_slaves", "With fewer slaves in sync, sync mode refuses messages."
)
EXPECTED: Final = _gauge(
    "rocketmq_ha_expected_slaves",
    "How many slaves the name is to have, by the setting expectedSlaves; absent without it.",
)
IN_SYNC: Final = _gauge("rocketmq_ha_in_sync_slaves", "How many slaves are in sync.")
CONNECTIONS: Final = _gauge("rocketmq_ha_connections", "How many slaves are connected.")
WAITING: Final = _gauge("rocketmq_ha_sync_waiting_requests", "Sends that wait for slaves now.")
UNPROTECTED: Final = _gauge(
    "rocketmq_ha_unprotected_bytes",
    "Bytes at the end of the CommitLog that no slave is known to hold.",
)
UNLISTED: Final = _gauge(
    "rocketmq_ha_unlisted_slaves", "Slaves that are connected, but have no series of their own."
)

# --- slaves, as their master sees them ----------------------------------------------------------

SLAVE_LABELS: Final = ("slave", "address")

SLAVE_CONNECTED: Final = _gauge(
    "rocketmq_ha_slave_connected", "Whether a slave is connected.", *SLAVE_LABELS
)
SLAVE_IN_SYNC: Final = _gauge(
    "rocketmq_ha_slave_in_sync", "Whether a slave is in sync.", *SLAVE_LABELS
)
SLAVE_LAG_BYTES: Final = _gauge(
    "rocketmq_ha_replication_lag_bytes", "What a slave lacks of the CommitLog.", *SLAVE_LABELS
)
SLAVE_LAG_SECONDS: Final = _gauge(
    "rocketmq_ha_replication_lag_seconds",
    "For how long a slave has not had all of the CommitLog; absent if it never had.",
    *SLAVE_LABELS,
)
SLAVE_ACK: Final = _gauge(
    "rocketmq_ha_slave_ack_offset_bytes", "Up to here a slave has the CommitLog.", *SLAVE_LABELS
)
SLAVE_FLUSHED: Final = _gauge(
    "rocketmq_ha_slave_flushed_offset_bytes",
    "Up to here a slave has the CommitLog on its disk.",
    *SLAVE_LABELS,
)
SLAVE_SILENCE: Final = _gauge(
    "rocketmq_ha_slave_silence_seconds", "For how long a slave was not heard.", *SLAVE_LABELS
)

# --- this broker as a slave ---------------------------------------------------------------------

STATE: Final = _gauge(
    "rocketmq_ha_slave_state", "1 for what this slave is doing, 0 everywhere on a master.", "state"
)
MASTER_CONNECTED: Final = _gauge(
    "rocketmq_ha_master_connected", "Whether this slave gets the CommitLog of its master."
)
OWN_LAG_BYTES: Final = _gauge(
    "rocketmq_ha_lag_behind_master_bytes", "What this slave lacks of its master's CommitLog."
)
OWN_LAG_SECONDS: Final = _gauge(
    "rocketmq_ha_lag_behind_master_seconds",
    "For how long this slave has not had all of its master's CommitLog; absent if it never had.",
)
MASTER_SILENCE: Final = _gauge(
    "rocketmq_ha_master_silence_seconds", "For how long the master was not heard."
)
MASTER_EPOCH: Final = _gauge("rocketmq_ha_master_epoch", "Epoch of the master, as it said last.")
COUNTED: Final = _gauge(
    "rocketmq_ha_in_sync_with_master", "Whether the master counts this slave as in sync."
)

# --- counters -----------------------------------------------------------------------------------

LINKS_ACCEPTED: Final = _counter(
    "rocketmq_ha_links_accepted_total", "Connections to the replication port that were let in."
)
LINKS_CLOSED: Final = _counter(
    "rocketmq_ha_links_closed_total", "Connections that this master ended, by reason.", "reason"
)
UNREPLICATED_SENDS: Final = _counter(
    "rocketmq_ha_unreplicated_sends_total",
    "Messages that were stored, but answered as not replicated, by the status in the answer.",
    "status",
)
CONNECTS: Final = _counter(
    "rocketmq_ha_connects_total", "Connections that this slave made to a master."
)
RECEIVED: Final = _counter(
    "rocketmq_ha_received_bytes_total", "Bytes of the CommitLog that this slave received."
)

COUNTERS: Final[dict[str, tuple[Family, tuple[str, ...]]]] = {
    "accepted": (LINKS_ACCEPTED, ()),
    "refused": (LINKS_CLOSED, ("refused",)),
    "forged": (LINKS_CLOSED, ("forged",)),
    "diverged": (LINKS_CLOSED, ("diverged",)),
    "silent": (LINKS_CLOSED, ("silent",)),
    "reseeded": (LINKS_CLOSED, ("reseeded",)),
    "timeouts": (UNREPLICATED_SENDS, ("FLUSH_SLAVE_TIMEOUT",)),
    "unavailable": (UNREPLICATED_SENDS, ("SLAVE_NOT_AVAILABLE",)),
    "connects": (CONNECTS, ()),
    "received_bytes": (RECEIVED, ()),
}
"""The counters of a status: their family, and their labels."""

ROLES: Final = {role.value: role.value.lower() for role in BrokerRole}
MODES: Final = {BrokerRole.ASYNC_MASTER.value: "async", BrokerRole.SYNC_MASTER.value: "sync"}
STATES: Final = {
    **{state.value: state.name.lower() for state in SlaveState},
    "changing role": "changing_role",
}
REASONS: Final = {refusal: refusal.name.lower() for refusal in Refusal}
_LIVE: Final = (SlaveState.CATCHING_UP.value, SlaveState.STREAMING.value)


@final
class HaMetrics:
    """The collector of one broker."""

    catalogue: Final = CATALOGUE

    def __init__(
        self,
        status: Callable[[], HaStatusBody],
        statistics: Callable[[], StoreStatistics],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._status = status
        self._statistics = statistics
        self._now = now
        self._slaves = SlaveChoice(now())

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Put all samples into the sheet."""
        status = self._status()
        self._put_broker(sheet, status)
        _put_log(sheet, status)
        _put_store(sheet, self._statistics())
        sheet.put_state(MODE, MODES.values(), MODES.get(status.mode))
        if status.mode in MODES:
            self._put_master(sheet, status)
        _put_slave(sheet, status)
        for key, count in status.counters.items():
            if key in COUNTERS:
                family, labels = COUNTERS[key]
                sheet.put(family, count, *labels)
        yield

    def _put_broker(self, sheet: Sheet, status: HaStatusBody) -> None:
        sheet.put(BROKER_INFO, 1, str(status.broker_id), rmq.__version__, status.address)
        sheet.put_state(BROKER_ROLE, ROLES.values(), ROLES.get(status.mode))
        sheet.put(BROKER_EPOCH, status.epoch)

    def _put_master(self, sheet: Sheet, status: HaStatusBody) -> None:
        slaves = status.slaves
        sheet.put_known(MODE_OFFSET, status.mode_offset)
        sheet.put(NEEDED, status.needed)
        sheet.put(MINIMUM, status.minimum)
        sheet.put_known(EXPECTED, status.expected)
        # A slave that changes its dialect may be connected twice, and counts once.
        sheet.put(IN_SYNC, len({slave.identity for slave in slaves if slave.in_sync}))
        connected = len({slave.identity for slave in slaves if slave.connected})
        sheet.put(CONNECTIONS, connected)
        sheet.put(WAITING, status.waiting)
        held = max((slave.appended for slave in slaves), default=-1)
        sheet.put(UNPROTECTED, max(0, status.end - max(status.begin, held)))
        shown = self._slaves.choose(slaves, self._now())
        listed = len({each.slave.identity for each in shown if each.slave.connected})
        sheet.put(UNLISTED, connected - listed)
        for each in shown:
            slave, labels = each.slave, (each.name, each.address)
            sheet.put(SLAVE_CONNECTED, int(slave.connected), *labels)
            sheet.put(SLAVE_IN_SYNC, int(slave.in_sync), *labels)
            sheet.put_known(SLAVE_LAG_BYTES, slave.lag_bytes, *labels)
            sheet.put_known_ms(SLAVE_LAG_SECONDS, slave.lag_ms, *labels)
            sheet.put_known(SLAVE_ACK, slave.appended, *labels)
            sheet.put_known(SLAVE_FLUSHED, slave.flushed, *labels)
            sheet.put_known_ms(SLAVE_SILENCE, slave.heard_ms_ago, *labels)


def _put_log(sheet: Sheet, status: HaStatusBody) -> None:
    sheet.put(LOG_MIN, status.begin)
    sheet.put(LOG_MAX, status.end)
    sheet.put(LOG_FLUSHED, status.flushed)
    sheet.put_known(LOG_REPLICATED, status.replicated)
    sheet.put_known(LOG_VISIBLE, status.visible)


def _put_store(sheet: Sheet, statistics: StoreStatistics) -> None:
    sheet.put(LOG_DISPATCHED, statistics.dispatched)
    sheet.put(FLUSH_BEHIND, statistics.flush_lag_bytes)
    sheet.put(DISPATCH_BEHIND, statistics.dispatch_lag_bytes)
    refusal = statistics.refusal
    sheet.put_state(BROKER_REFUSAL, REASONS.values(), REASONS[refusal] if refusal else None)


def _put_slave(sheet: Sheet, status: HaStatusBody) -> None:
    is_slave = status.mode == BrokerRole.SLAVE.value
    sheet.put_state(STATE, STATES.values(), STATES.get(status.state) if is_slave else None)
    if not is_slave:
        return
    sheet.put(MASTER_CONNECTED, int(status.state in _LIVE))
    if status.master is not None:
        _put_view(sheet, status.master)


def _put_view(sheet: Sheet, master: HaMaster) -> None:
    if master.lag_bytes > 0 or master.lag_ms >= 0:
        # Else it was never heard where the master's log ends: 0 bytes mean nothing then.
        sheet.put_known(OWN_LAG_BYTES, master.lag_bytes)
    sheet.put_known_ms(OWN_LAG_SECONDS, master.lag_ms)
    sheet.put_known_ms(MASTER_SILENCE, master.heard_ms_ago)
    sheet.put_known(MASTER_EPOCH, master.epoch)
    sheet.put(COUNTED, int(master.in_sync))
