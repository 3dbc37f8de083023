"""Is another broker master of this broker's name? Asked by a master, before it says that it is.

A nameserver of ours turns a master away that was deposed. A stock one does not know of epochs: with
it the last one to register is master, so a master that was deposed and comes back must find out for
itself. It asks the nameserver whom it lists, and the one that is listed for its epoch. That takes
the two of them to be able to talk; a listed broker that does not answer, or is a stock one, proves
nothing, and then all is as in RocketMQ 4.9.8.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from rmq.errors import ProtocolError, RmqError
from rmq.remoting.bodies import ClusterInfo, HaStatusBody
from rmq.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from rmq.broker.config import BrokerConfig
    from rmq.remoting.channel import Channel
    from rmq.remoting.client import RemotingClient

logger = logging.getLogger(__name__)

MASTER_ID: Final = 0
PROBE_S: Final = 1.0
"""How long the broker that is listed may take to answer."""


class Fence(NamedTuple):
    """Why a broker must not be master."""

    epoch: int
    """Of the broker that is; only a later one is an answer to it."""
    reason: str


async def listed_master(channel: Channel, broker_name: str, *, timeout_s: float) -> str | None:
    """Ask a nameserver for the master of a name; None if it has none, or does not say.

    Raise `ClientError` if there is no answer at all.
    """
    answer = await channel.request(RequestCode.GET_BROKER_CLUSTER_INFO, timeout_s=timeout_s)
    if answer.code != ResponseCode.SUCCESS:
        return None
    try:
        listed = ClusterInfo.decode(answer.body).broker_addr_table.get(broker_name)
    except ProtocolError as exc:
        logger.warning("nameserver %s says who is there in a way of its own: %s", channel.peer, exc)
        return None
    return None if listed is None else listed.broker_addrs.get(MASTER_ID)


async def ask_listed(
    client: RemotingClient, address: str, config: BrokerConfig, epoch: int, *, timeout_s: float
) -> Fence | None:
    """Ask the broker that a nameserver lists as master whether it is; never raises for it."""
    status: HaStatusBody | None = None
    with trio.move_on_after(timeout_s):
        try:
            answer = await client.request(address, RequestCode.HA_STATUS, timeout_s=timeout_s)
            if answer.code == ResponseCode.SUCCESS:
                status = HaStatusBody.decode(answer.body)
        except RmqError as exc:
            logger.info("%s is listed as master and does not say of what epoch: %s", address, exc)
    return None if status is None else fence_of(address, status, config, epoch)


def fence_of(address: str, status: HaStatusBody, config: BrokerConfig, epoch: int) -> Fence | None:
    """Decide whether what the broker at `address` says keeps a master of `epoch` from being one."""
    if status.broker_name != config.broker_name or status.address == config.address:
        # Another broker has got that address; or it is an address that this one had before.
        return None
    if status.epoch > epoch:
        return Fence(
            status.epoch,
            f"{address} is master of {config.broker_name} in epoch {status.epoch}, this broker was"
            f" in epoch {epoch}",
        )
    if status.epoch == epoch and status.role == "MASTER":
        return Fence(
            epoch,
            f"{address} is master of {config.broker_name} in epoch {epoch}, too; one of the two has"
            " to become its slave, or to be promoted",
        )
    return None
