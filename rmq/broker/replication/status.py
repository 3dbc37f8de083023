"""Builds the HA_STATUS response from the parts of replication."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import trio

from rmq.broker.config import BrokerRole
from rmq.model.in_sync_record import newest
from rmq.remoting.bodies import HaMaster, HaSlave, HaStatusBody

if TYPE_CHECKING:
    from typing import Any

    from rmq.broker.config import BrokerConfig
    from rmq.broker.replication.role import Replication
    from rmq.ha.protocol.master import Master
    from rmq.ha.protocol.slaves import SlaveProgress
    from rmq.model.in_sync_record import InSyncRecord
    from rmq.model.offsets import PhysicalOffset
    from rmq.store.store import MessageStore


def replication_status(
    replication: Replication,
    config: BrokerConfig,
    store: MessageStore,
    *,
    is_promoting: bool,
    other_masters: tuple[str, ...] = (),
) -> HaStatusBody:
    """Return the status of replication; `is_promoting`: this broker is being promoted.

    `other_masters` are addresses of masters that have asked whether they still are.
    """
    log, identity = store.log, replication.identity
    master = replication.master
    common: dict[str, Any] = {
        "epoch": identity.epoch,
        "replica": identity.name,
        "member": identity.member,
        "members": tuple(sorted(identity.members)),
        "pending": replication.is_pending,
        "promoting": is_promoting,
        "gave_up": replication.was_last,
        "record": _record(identity.records, config),
        "cluster_name": config.cluster_name,
        "broker_name": config.broker_name,
        "broker_id": config.broker_id,
        "address": config.address,
        "ha_address": config.ha_address,
        "has_secret": bool(config.ha_secret),
        "expected": config.expected_slaves,
        "former_masters": tuple(dict.fromkeys((*identity.former_masters, *other_masters))),
        "begin": int(log.min_offset),
        "end": int(log.written),
        "flushed": int(log.flushed),
    }
    if master is None:
        return HaStatusBody(
            role="SLAVE", mode=BrokerRole.SLAVE.value, **common, **_of_slave(replication)
        )
    visible = int(log.written)
    if config.hide_unreplicated:
        visible = master.pending_acks.advance_visible(log.written)
    refusal = store.refusal
    return HaStatusBody(
        role="MASTER",
        mode=config.role.value,
        state="writable" if refusal is None else refusal.value,
        visible=visible,
        last_error=replication.fenced or master.last_error,
        waits_for="" if replication.records is None else replication.records.missing,
        **_of_master(master, log.written),
        **common,
    )


def _record(records: tuple[InSyncRecord, ...], config: BrokerConfig) -> str:
    record = newest(*records)
    if record is None:
        return ""
    return record.encode(config.ha_secret.encode(), config.broker_name).decode()


def _of_master(master: Master[Any], end: PhysicalOffset) -> dict[str, Any]:
    now = trio.current_time()
    slaves = master.slaves
    allows = master.keeper.allows
    return {
        "in_force": master.pending_acks.mode.value,
        "mode_offset": master.pending_acks.in_force.offset,
        "replicated": slaves.replicated,
        "needed": slaves.rules.needed,
        "minimum": slaves.rules.minimum,
        # Connections that may be of one slave count once.
        "in_sync": tuple(
            {r.identity: r.name for r in slaves if r.in_sync and allows(r.member)}.values()
        ),
        "waiting": len(master.pending_acks),
        "counters": dataclasses.asdict(master.counters),
        "slaves": tuple(_slave(slave, end, now) for slave in (*slaves, *slaves.gone)),
    }


def _slave(slave: SlaveProgress, end: PhysicalOffset, now: float) -> HaSlave:
    return HaSlave(
        name=slave.name,
        address=slave.address,
        identity=slave.identity,
        native=slave.is_native,
        connected=slave.gone_at is None,
        in_sync=slave.in_sync,
        appended=slave.appended,
        flushed=slave.flushed,
        lag_bytes=slave.lag_bytes(end),
        lag_ms=_ms(slave.lag_s(end, now)),
        heard_ms_ago=_ms(now - slave.heard_at),
        why=slave.why_gone,
    )


def _of_slave(replication: Replication) -> dict[str, Any]:
    slave = replication.slave
    if slave is None:
        return {"state": "changing role"}
    status = slave.status
    view = status.master
    return {
        "state": status.state.value,
        "counters": {"connects": status.connects, "received_bytes": status.received_bytes},
        "last_error": status.last_error or _metadata_error(replication),
        "master": HaMaster(
            address=view.address or replication.master_address or "",
            ha_address=status.ha_address or "",
            native=view.is_native,
            epoch=view.epoch,
            end=view.end,
            lag_bytes=status.lag_bytes,
            lag_ms=_ms(status.lag_s),
            heard_ms_ago=_ms(trio.current_time() - view.heard_at) if view.heard_at else -1,
            sync=view.is_sync,
            in_sync=view.is_in_sync,
            needed=view.needed,
            in_sync_count=view.in_sync,
        ),
    }


def _metadata_error(replication: Replication) -> str | None:
    tables = replication.metadata.status.tables
    return next(
        (f"{table.value}: {told.error}" for table, told in tables.items() if told.error), None
    )


def _ms(seconds: float) -> int:
    return int(seconds * 1000) if math.isfinite(seconds) else -1
