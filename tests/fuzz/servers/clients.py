"""Clients that mean something, for scenarios that servers are fuzzed with: their requests, and how
they answer those of a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmq.model.pull_flags import FLAG_SUBSCRIPTION, FLAG_SUSPEND
from rmq.remoting.bodies import (
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    ProducerData,
    SubscriptionData,
)
from rmq.remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE, RequestCode
from tests.fuzz.servers.pools import GROUPS, QUEUES
from tests.fuzz.servers.requests import Maker
from tests.fuzz.servers.values import Values

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.remoting.command import Command
    from tests.fuzz.servers.peer import Peer
    from tests.fuzz.servers.rig import Rig


def pull(rig: Rig, topic: str, queue_id: int, offset: int) -> bytes:
    maker = rig.servers["broker"].maker
    code = RequestCode.PULL_MESSAGE
    fields = maker.fields(
        code,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        consumer_group=GROUPS[0],
        sys_flag=FLAG_SUSPEND | FLAG_SUBSCRIPTION,
    )
    return maker.frame(code, fields, flag=0)


def send(rig: Rig, topic: str, queue_id: int) -> bytes:
    maker = rig.servers["broker"].maker
    code = RequestCode.SEND_MESSAGE_V2
    fields = maker.fields(code, topic=topic, queue_id=queue_id, batch=False)
    return maker.frame(code, fields, maker.values.payload())


def heartbeat(maker: Maker, client_id: str, *topics: str) -> bytes:
    data = HeartbeatData(
        client_id=client_id,
        producer_data_set=(ProducerData(group_name=GROUPS[2]),),
        consumer_data_set=(
            ConsumerData(
                group_name=GROUPS[0],
                subscription_data_set=tuple(
                    SubscriptionData(topic=topic, sub_string="*", sub_version=1) for topic in topics
                ),
            ),
        ),
    )
    return maker.frame(RequestCode.HEART_BEAT, {}, data.encode(), flag=0)


def lock(maker: Maker, client_id: str) -> bytes:
    queues = tuple(maker.values.queue() for _ in range(4))
    body = LockBatchRequestBody(consumer_group=GROUPS[0], client_id=client_id, mq_set=queues)
    return maker.frame(RequestCode.LOCK_BATCH_MQ, {}, body.encode())


async def create_topic(rig: Rig, peer: Peer, topic: str) -> None:
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    fields = peer.server.maker.fields(
        code,
        topic=topic,
        read_queue_nums=QUEUES,
        write_queue_nums=QUEUES,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    await peer.send(peer.server.maker.frame(code, fields, flag=0))
    await rig.settle()


def ends(rig: Rig, topic: str) -> dict[int, int]:
    """Return where the queues of a topic end."""
    queues = rig.broker.store.queues
    return {
        queue_id: queue.next_offset
        for queue_id in range(QUEUES)
        if (queue := queues.get(topic, queue_id)) is not None
    }


async def ask(
    rig: Rig, peer: Peer, code: RequestCode, fields: dict[str, Any], body: bytes = b""
) -> Command | None:
    """Send a request and return its answer; None if there is none."""
    found: list[Command] = []
    usual = peer.on_answer

    def keep(server: object, request: Command, answer: Command) -> None:
        if request.code == code:
            found.append(answer)
        usual(peer.server, request, answer)

    peer.on_answer = keep
    try:
        await peer.send(peer.server.maker.frame(code, fields, body, flag=0))
        await rig.settle()
    finally:
        peer.on_answer = usual
    return found[-1] if found else None


def strange_answers(rig: Rig) -> Callable[[Peer, Command], bytes]:
    """Return a client's way to answer requests of the server: well, badly, twice, or not at all."""
    # When it is asked is not known beforehand: it has a chance of its own.
    maker = Maker(rig.broker.table, Values(rig.values.late))
    chance = maker.chance

    def answer_call(_peer: Peer, call: Command) -> bytes:
        if call.flag & FLAG_ONEWAY and chance.random() < 0.9:
            return b""

        def answer(code: int, body: bytes) -> bytes:
            return maker.frame(code, {}, body, flag=FLAG_RESPONSE, opaque=call.opaque)

        match chance.randrange(8):
            case 0:
                return b""
            case 1:
                return answer(0, b"") * 2
            case 2:
                return answer(0, maker.values.broken_body(b'{"messageQueueTable":{}}'))
            case 3:
                return answer(chance.choice((1, -1, 99_999)), b"")
            case 4:
                return answer(0, b'{"messageQueueTable":{}}') + maker.response()
            case _:
                return answer(0, b"{}")

    return answer_call
