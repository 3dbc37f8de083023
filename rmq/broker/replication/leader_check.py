"""A master checks, before it registers, whether another broker is master of its name.

A nameserver of ours refuses a master that was replaced. A stock one does not know epochs: it lists
the last master to register, so a former master that comes back has to find out for itself. And what
a nameserver lists may be a forged registration. So an unconfirmed claim fences no master. A later
epoch is confirmed by

- the broker that a nameserver lists, if it answers and is of a later epoch, or master of the same;
- the in-sync record that a nameserver keeps, if it is of a later epoch. Records survive restarts of
  brokers and nameservers, so they keep a former master out while the new one is down.

Where brokers have a secret, only records made with it count, and a broker that answers has to know
such a record of its epoch. A listed broker that does not answer, or is a stock one, proves nothing,
and then all is as in RocketMQ 4.9.8.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from rmq.broker.replication.peers import ASK_S
from rmq.broker.replication.record_keeping import kept_record
from rmq.errors import ProtocolError, RemoteProtocolError, RmqError
from rmq.model.in_sync_record import NAMESPACE, read_record
from rmq.model.names import MASTER_ID
from rmq.remoting.bodies import ClusterInfo, HaStatusBody
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    DeleteKvConfigRequest,
    GetKvConfigRequest,
    GetKvConfigResponse,
    HaStatusRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.broker.config import BrokerConfig
    from rmq.broker.replication.peers import Peers
    from rmq.model.in_sync_record import InSyncRecord
    from rmq.remoting.channel import Channel
    from rmq.remoting.client import RemotingClient

logger = logging.getLogger(__name__)

PROBE_S: Final = 1.0
"""How long the listed broker may take to answer."""
LOOK_S: Final = 10.0
"""How long it may take to ask all nameservers whether there is a later epoch."""


class Fence(NamedTuple):
    """Why a broker must not be master."""

    epoch: int
    """The epoch of the broker that is master; only a later one lifts the fence."""
    reason: str
    address: str = ""
    """The broker that confirmed it; empty if a record does."""


async def listed_master(channel: Channel, broker_name: str, *, timeout_s: float) -> str | None:
    """Ask a nameserver for the master of a name; None if it lists none.

    Raise `ClientError` if there is no answer at all.
    """
    answer = await channel.request(RequestCode.GET_BROKER_CLUSTER_INFO, timeout_s=timeout_s)
    if answer.code != ResponseCode.SUCCESS:
        return None
    try:
        listed = ClusterInfo.decode(answer.body).broker_addr_table.get(broker_name)
    except ProtocolError as exc:
        logger.warning("cannot decode cluster info from nameserver %s: %s", channel.peer, exc)
        return None
    return None if listed is None else listed.broker_addrs.get(MASTER_ID)


async def ask_listed(
    client: RemotingClient, address: str, config: BrokerConfig, epoch: int, *, timeout_s: float
) -> Fence | None:
    """Ask the broker that a nameserver lists as master for its status; never raises."""
    status: HaStatusBody | None = None
    with trio.move_on_after(timeout_s):
        try:
            # It says who asks: a master that was replaced is listed nowhere else.
            header = HaStatusRequest(master=config.address)
            answer = await client.request(
                address, RequestCode.HA_STATUS, header, timeout_s=timeout_s
            )
            if answer.code == ResponseCode.SUCCESS:
                status = HaStatusBody.decode(answer.body)
        except RmqError as exc:
            logger.info("no status from %s, which is listed as master: %s", address, exc)
    return None if status is None else fence_of(address, status, config, epoch)


def fence_of(address: str, status: HaStatusBody, config: BrokerConfig, epoch: int) -> Fence | None:
    """Decide whether the status of the broker at `address` fences a master of `epoch`."""
    if status.broker_name != config.broker_name or status.address == config.address:
        # Another broker has that address now; or it is an earlier address of this broker.
        return None
    if status.pending:
        # It may find that this broker has gone on, and withdraw.
        return None
    later = status.epoch > epoch
    if not later and (status.epoch != epoch or status.role != "MASTER"):
        return None
    if not _is_proven(status, config):
        logger.warning(
            "%s claims to be master of %s in epoch %d, but has no in-sync record of it that was"
            " made with haSecret; the claim is ignored",
            address,
            config.broker_name,
            status.epoch,
        )
        return None
    if later:
        return Fence(
            status.epoch,
            f"{address} is master of {config.broker_name} in epoch {status.epoch}, this broker was"
            f" in epoch {epoch}",
            address,
        )
    return Fence(
        epoch,
        f"{address} is master of {config.broker_name} in epoch {epoch}, too; one of the two has"
        " to become its slave, or to be promoted",
        address,
    )


def _is_proven(status: HaStatusBody, config: BrokerConfig) -> bool:
    """Return whether a broker has a record of its epoch made with the secret, if there is one."""
    secret = config.ha_secret.encode()
    if not secret:
        return True
    try:
        record = read_record(status.record)
    except RemoteProtocolError:
        return False
    return record.epoch >= status.epoch and record.is_genuine(secret, config.broker_name)


async def later_record(
    peers: Peers,
    nameserver: str,
    config: BrokerConfig,
    epoch: Callable[[], int],
    listed: str | None,
) -> Fence | None:
    """Ask a nameserver for an in-sync record that is later than the epoch of this broker.

    `epoch` is called after the answer: this broker may have been promoted meanwhile. Raise
    `ClientError` or `ResponseError` if there is no answer.
    """
    record = await kept_record(peers, nameserver, config.broker_name, config.ha_secret.encode())
    return _fence_by(record, nameserver, config, epoch(), listed)


def _fence_by(
    record: InSyncRecord | None,
    nameserver: str,
    config: BrokerConfig,
    epoch: int,
    listed: str | None,
) -> Fence | None:
    name = config.broker_name
    if record is None or record.epoch <= epoch:
        return None
    where = f"; it lists {listed} as master" if listed not in (None, config.address) else ""
    return Fence(
        record.epoch,
        f"nameserver {nameserver} keeps an in-sync record of {name} of epoch {record.epoch}, this"
        f" broker was master in epoch {epoch}{where}",
    )


async def is_confirmed(
    peers: Peers,
    client: RemotingClient,
    fence: Fence,
    config: BrokerConfig,
    epoch: Callable[[], int],
    own_record: InSyncRecord | None,
) -> bool | None:
    """Return whether a broker or nameserver still confirms a fence; None if too few answer.

    A record that counts is kept by most nameservers, so most of them have to deny it. `own_record`
    is the last one of this broker: a nameserver that has not even that was emptied, and denies
    nothing.
    """
    if fence.address and await ask_listed(
        client, fence.address, config, epoch(), timeout_s=PROBE_S
    ):
        return True
    nameservers, secret = config.namesrv_addrs, config.ha_secret.encode()
    answers: list[Fence | None] = []

    async def ask(nameserver: str) -> None:
        try:
            channel = await client.channel(nameserver)
            listed = await listed_master(channel, config.broker_name, timeout_s=ASK_S)
            record = await kept_record(peers, nameserver, config.broker_name, secret)
        except RmqError as exc:
            logger.info("cannot ask nameserver %s for the master: %s", nameserver, exc)
            return
        found = _fence_by(record, nameserver, config, epoch(), listed)
        if found is None and listed is not None and listed != config.address:
            found = await ask_listed(client, listed, config, epoch(), timeout_s=PROBE_S)
        if found is None and own_record is not None and _is_older(record, own_record):
            logger.info(
                "nameserver %s lost the in-sync record of %s, and may have known of a later epoch",
                nameserver,
                config.broker_name,
            )
            return
        answers.append(found)

    with trio.move_on_after(LOOK_S):
        async with trio.open_nursery() as nursery:
            for nameserver in nameservers:
                nursery.start_soon(ask, nameserver)
    if any(answers):
        return True
    return False if len(answers) > len(nameservers) // 2 else None


def _is_older(record: InSyncRecord | None, own_record: InSyncRecord) -> bool:
    return record is None or record.order < own_record.order


async def delete_forged(peers: Peers, nameserver: str, config: BrokerConfig) -> None:
    """Delete a record that was not made with the secret: it blocks this broker's own records.

    Without a secret every client may write records, and nothing is deleted.
    """
    secret, name = config.ha_secret.encode(), config.broker_name
    if not secret:
        return
    key = GetKvConfigRequest(namespace=NAMESPACE, key=name)
    answer = await peers.ask(nameserver, RequestCode.GET_KV_CONFIG, key)
    value = answer.header(GetKvConfigResponse).value or ""
    try:
        is_forged = not read_record(value).is_genuine(secret, name)
    except RemoteProtocolError:
        is_forged = True
    if is_forged:
        logger.warning(
            "nameserver %s keeps an in-sync record of %s that was not made with haSecret; deleting"
            " it: %.200s",
            nameserver,
            name,
            value,
        )
        header = DeleteKvConfigRequest(namespace=NAMESPACE, key=name)
        await peers.ask(nameserver, RequestCode.DELETE_KV_CONFIG, header)
