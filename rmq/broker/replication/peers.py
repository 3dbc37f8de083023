"""Finds the other brokers with this broker's name and queries their replication status."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from rmq.errors import ResponseError, RmqError
from rmq.remoting.bodies import ClusterInfo, HaStatusBody
from rmq.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from rmq.broker.config import LiveConfig
    from rmq.remoting.client import RemotingClient
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header

logger = logging.getLogger(__name__)

ASK_S: Final = 3.0
"""How long another broker or a nameserver may take to answer."""


class Member(NamedTuple):
    """Another broker of the same name."""

    address: str
    broker_id: int
    status: HaStatusBody | None
    """None: no answer, or not an rmq broker."""


def free_id(members: list[Member]) -> int:
    """Return the lowest slave id that none of these members has."""
    taken = {member.broker_id for member in members}
    return next(number for number in range(1, len(taken) + 2) if number not in taken)


@final
class Peers:
    """Queries the other brokers with this broker's name."""

    def __init__(self, live: LiveConfig, client: RemotingClient) -> None:
        self._live = live
        self.client = client

    async def members(self) -> list[Member]:
        """Return the brokers that nameservers list under this name, sorted by address."""
        nameservers = self._live.current.namesrv_addrs
        known: dict[str, dict[str, int]] = {}

        async def ask(nameserver: str) -> None:
            known[nameserver] = await self._known_to(nameserver)

        async with trio.open_nursery() as nursery:
            for nameserver in nameservers:
                nursery.start_soon(ask, nameserver)
        found: dict[str, int] = {}
        for nameserver in nameservers:
            found.update(known[nameserver])
        members: list[Member] = []

        async def query(address: str, broker_id: int) -> None:
            status: HaStatusBody | None = None
            try:
                answer = await self.ask(address, RequestCode.HA_STATUS)
                status = HaStatusBody.decode(answer.body)
            except RmqError as exc:
                logger.info("no replication status from %s: %s", address, exc)
            members.append(Member(address, broker_id, status))

        async with trio.open_nursery() as nursery:
            for address, broker_id in found.items():
                nursery.start_soon(query, address, broker_id)
        return sorted(members, key=lambda member: member.address)

    async def _known_to(self, nameserver: str) -> dict[str, int]:
        config = self._live.current
        try:
            answer = await self.ask(nameserver, RequestCode.GET_BROKER_CLUSTER_INFO)
            info = ClusterInfo.decode(answer.body)
        except RmqError as exc:
            logger.info("no cluster info from nameserver %s: %s", nameserver, exc)
            return {}
        data = info.broker_addr_table.get(config.broker_name)
        if data is None:
            return {}
        return {
            address: number
            for number, address in data.broker_addrs.items()
            if address != config.address
        }

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        timeout_s: float = ASK_S,
    ) -> Command:
        """Send a request and return its response.

        Raise `ClientError` if there is none, `ResponseError` if it is not SUCCESS.
        """
        answer = await self.client.request(address, code, header, timeout_s=timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(address, code.name, answer.code, answer.remark)
        return answer
