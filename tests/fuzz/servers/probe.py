"""Whether servers under fuzz still do what they are there for, and have lost nothing.

A `Probe` has connections of its own and a topic that nothing else touches. `check` sends, pulls and
asks for a route; `verify_ledger` looks for every message that was ever acknowledged.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.broker.config import BrokerRole
from rmq.errors import RmqError
from rmq.model.pull_flags import FLAG_SUBSCRIPTION
from rmq.model.record import decode_records
from rmq.remoting.bodies import SubscriptionGroupConfig, TopicConfig, TopicRouteData
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    CreateTopicRequest,
    EmptyHeader,
    GetRouteInfoRequest,
    PullMessageRequest,
    PullMessageResponse,
    SendMessageRequestV2,
    SendMessageResponse,
    ViewMessageRequest,
)
from tests.fuzz.servers.rig import HOST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.remoting.client import RemotingClient
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header
    from tests.fuzz.servers.rig import Rig
    from tests.fuzz.servers.watch import Note

TOPIC: Final = "ProbeTopic"
GROUP: Final = "probe-group"
QUEUES: Final = 2
_TIMEOUT_S: Final = 20.0
_PULL: Final = 32
_VIEWS_AT_ONCE: Final = 64


@final
class Probe:
    """A client that behaves."""

    def __init__(self, rig: Rig, client: RemotingClient) -> None:
        self._rig = rig
        self._client = client
        self._broker = f"{HOST}:{rig.broker.server.port}"
        self._nameserver = f"{HOST}:{rig.nameserver.port}"
        self.sent: list[list[bytes]] = [[] for _ in range(QUEUES)]
        """Acknowledged bodies by queue."""

    @property
    def is_slave(self) -> bool:
        """Whether the broker takes nothing from clients."""
        return self._rig.broker.live.current.role is BrokerRole.SLAVE

    async def prepare(self) -> None:
        """Create topic and group."""
        if self.is_slave:
            config = TopicConfig(topic_name=TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
            self._rig.broker.topics.put(config)
            self._rig.broker.groups.put(SubscriptionGroupConfig(group_name=GROUP))
            return
        header = CreateTopicRequest(
            topic=TOPIC,
            read_queue_nums=QUEUES,
            write_queue_nums=QUEUES,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        await self._ask(self._broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        body = SubscriptionGroupConfig(group_name=GROUP).encode()
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self._ask(self._broker, code, EmptyHeader(), body)

    async def check(self) -> None:
        """Send, pull and look the topic up; whatever does not go well is a finding."""
        queue_id = min(range(QUEUES), key=lambda queue: len(self.sent[queue]))
        number = len(self.sent[queue_id])
        body = b"probe %d of queue %d" % (number, queue_id)
        try:
            if not self.is_slave:
                offset = await self._send(queue_id, body)
                if offset != number:
                    self._rig.note("a message got another offset", f"{offset}, not {number}")
            bodies = await pull(self._client, self._broker, queue_id, number)
            if bodies != self.sent[queue_id][number:]:
                self._rig.note("a message is not pulled", f"{bodies} for {body!r}")
            # Topics are known to a nameserver from masters only.
            if not self.is_slave and not await self._is_routed():
                # Somebody may have registered in the broker's name; it comes back in its turn.
                await self._rig.pass_time(31)
                # Topics are known to a nameserver from masters only.
            if not self.is_slave and not await self._is_routed():
                self._rig.note("no route", f"to {TOPIC}")
        except (RmqError, AssertionError) as exc:
            self._rig.note("no normal service", f"{exc}")

    async def verify(self, when: str) -> None:
        """Look for everything that was acknowledged so far."""
        ledger, note = self._rig.answers.ledger, self._rig.note
        await verify_ledger(self._client, self._broker, ledger, self.sent, note, when)

    async def _send(self, queue_id: int, body: bytes) -> int:
        header = SendMessageRequestV2(
            producer_group=GROUP,
            topic=TOPIC,
            default_topic="TBW102",
            default_topic_queue_nums=QUEUES,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=0,
            flag=0,
        )
        answer = await self._ask(self._broker, RequestCode.SEND_MESSAGE_V2, header, body)
        told = answer.header(SendMessageResponse)
        self.sent[queue_id].append(body)
        self._rig.answers.acknowledge(told.msg_id, body)
        return told.queue_offset

    async def _is_routed(self) -> bool:
        header = GetRouteInfoRequest(topic=TOPIC)
        answer = await self._client.request(
            self._nameserver, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, timeout_s=_TIMEOUT_S
        )
        if answer.code != ResponseCode.SUCCESS:
            return False
        route = TopicRouteData.decode(answer.body)
        return any(self._broker in data.broker_addrs.values() for data in route.broker_datas)

    async def _ask(
        self, address: str, code: RequestCode, header: Header, body: bytes = b""
    ) -> Command:
        answer = await self._client.request(
            address, code, header, body=body or None, timeout_s=_TIMEOUT_S
        )
        assert answer.code == ResponseCode.SUCCESS, f"{code.name}: {answer.code}, {answer.remark}"
        return answer


async def pull(client: RemotingClient, address: str, queue_id: int, offset: int) -> list[bytes]:
    """Return the bodies at the end of a queue of the probe's topic."""
    header = PullMessageRequest(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=_PULL,
        sys_flag=FLAG_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
    )
    answer = await client.request(address, RequestCode.PULL_MESSAGE, header, timeout_s=_TIMEOUT_S)
    if answer.code == ResponseCode.PULL_NOT_FOUND:
        return []
    assert answer.code == ResponseCode.SUCCESS, f"PULL_MESSAGE: {answer.code}, {answer.remark}"
    answer.header(PullMessageResponse)
    return [record.body for record in decode_records(answer.body or b"")]


async def verify_ledger(
    client: RemotingClient,
    address: str,
    ledger: Mapping[int, tuple[int, int]],
    sent: list[list[bytes]],
    note: Note,
    when: str,
) -> None:
    """Look for every acknowledged message at a broker; a missing one is a finding."""

    async def look(offset: int, known: tuple[int, int]) -> None:
        answer = await client.request(
            address,
            RequestCode.VIEW_MESSAGE_BY_ID,
            ViewMessageRequest(offset=offset),
            timeout_s=_TIMEOUT_S,
        )
        bodies = [record.body for record in decode_records(answer.body or b"")]
        if [(len(body), zlib.crc32(body)) for body in bodies] != [known]:
            note(f"an acknowledged message is lost {when}", f"at {offset}: {answer.remark}")

    rows = list(ledger.items())
    for start in range(0, len(rows), _VIEWS_AT_ONCE):
        async with trio.open_nursery() as nursery:
            for offset, known in rows[start : start + _VIEWS_AT_ONCE]:
                nursery.start_soon(look, offset, known, name="fuzz ledger")
    for queue_id, bodies in enumerate(sent):
        found: list[bytes] = []
        try:
            while some := await pull(client, address, queue_id, len(found)):
                found += some
        except (RmqError, AssertionError) as exc:
            note(f"a queue cannot be read {when}", str(exc))
        if found != bodies:
            note(f"a queue is not what was acknowledged {when}", f"{len(found)}, {len(bodies)}")
