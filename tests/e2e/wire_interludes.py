"""What happened between the captured runs, as far as later answers show it.

More clients ran than were captured, and of `mqadmin` every other command was not. The golden log
has what they sent, and later answers have what else they left. The interludes here leave the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.model.names import AUTO_CREATE_TOPIC
from rmq.model.properties import encode_properties
from rmq.model.record import decode_record
from rmq.remoting.bodies import ConsumerData, HeartbeatData, SubscriptionData
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    CreateTopicRequest,
    PutKvConfigRequest,
    SendMessageRequestV2,
    UpdateConsumerOffsetRequest,
    WipeWritePermOfBrokerRequest,
)
from tests.e2e.golden_cluster import BROKER
from tests.e2e.wire_capture import answers, rows
from tests.e2e.wire_peer import connected
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from rmq.remoting.header import Header
    from tests.e2e.golden_cluster import GoldenCluster

RECORDS: Final = 85
"""So many were in the golden log when the last captured run was over."""
_REQUESTS_REPLIES_TRACES: Final = range(55, 62)
_FROM_MQADMIN: Final = 84
"""Records of the golden log that no captured client sent."""

_REPLY_TOPIC: Final = "GoldenCluster_REPLY_TOPIC"
_TIMEOUT_S: Final = 10.0
_READ: Final = 4
_MOVED: Final = ResponseCode.PULL_OFFSET_MOVED


@final
class Interludes:
    """Does what was done before a captured run and was not captured itself."""

    def __init__(self, cluster: GoldenCluster) -> None:
        self._cluster = cluster
        self._before: Mapping[str, Callable[[], Awaitable[None]]] = {
            "producer-binary": self._other_clients,
            "mqadmin-00-updateTopic": self._pull_again,
            "mqadmin-06-topicList": self._make_a_topic_read_only,
            "mqadmin-26-cloneGroupOffset": self._skip_messages,
            "mqadmin-34-updateOrderConf": self._order_a_topic,
            "mqadmin-40-addWritePerm": self._wipe_write_permission,
        }

    async def before(self, run: str) -> None:
        if run in self._before:
            await self._before[run]()

    async def _other_clients(self) -> None:
        """Clients that ask and reply, one that is traced, and a lite pull consumer."""
        for number in _REQUESTS_REPLIES_TRACES:
            await self._send(number)
        for group, topic in (
            ("golden_reply_consumer", "GoldenRequest"),
            ("golden_lite", "GoldenTopic"),
        ):
            subscription = SubscriptionData(topic=topic, sub_string="*", sub_version=1)
            consumer = ConsumerData(group_name=group, subscription_data_set=(subscription,))
            data = HeartbeatData(client_id=group, consumer_data_set=(consumer,))
            await self._ask("master", RequestCode.HEART_BEAT, body=data.encode())
            await self._commit(group, topic, 0, 0)

    async def _pull_again(self) -> None:
        """The pull consumer ran once more: again it asked for four offsets that are not there."""
        async with connected(self._cluster.ports["master"]) as peer:
            for row in rows("pull"):
                answer = answers("pull").get(row.key)
                if row.name is not None and answer is not None and answer.code == _MOVED:
                    await peer.send(row.frame)
                    again = await peer.answer(row.opaque)
                    assert again is not None
                    assert again.code == _MOVED

    async def _make_a_topic_read_only(self) -> None:
        topic = CreateTopicRequest(
            topic="AdminTopic",
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=3,
            write_queue_nums=3,
            perm=_READ,
            topic_filter_type="SINGLE_TAG",
        )
        await self._ask("master", RequestCode.UPDATE_AND_CREATE_TOPIC, topic)

    async def _skip_messages(self) -> None:
        """A message from `mqadmin`, and a group that is sent to the end of a topic."""
        await self._send(_FROM_MQADMIN)
        for queue_id, offset in enumerate((17, 10, 17, 8)):
            await self._commit("golden_push", "GoldenTopic", queue_id, offset)

    async def _order_a_topic(self) -> None:
        order = PutKvConfigRequest(
            namespace="ORDER_TOPIC_CONFIG", key="GoldenTopic", value=f"{BROKER}:4"
        )
        await self._ask("namesrv", RequestCode.PUT_KV_CONFIG, order)

    async def _wipe_write_permission(self) -> None:
        wipe = WipeWritePermOfBrokerRequest(broker_name=BROKER)
        await self._ask("namesrv", RequestCode.WIPE_WRITE_PERM_OF_BROKER, wipe)

    async def _commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        header = UpdateConsumerOffsetRequest(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        await self._ask("master", RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def _send(self, number: int) -> None:
        """Send what became a record of the golden log."""
        record = decode_record(golden.records(golden.CLEAN_MASTER)[number].data)
        properties = record.properties
        code, expected = RequestCode.SEND_MESSAGE_V2, ResponseCode.SUCCESS
        if record.topic == _REPLY_TOPIC:
            # Nobody is here to get it; it is stored all the same.
            code, expected = RequestCode.SEND_REPLY_MESSAGE_V2, ResponseCode.SYSTEM_ERROR
        else:
            # The broker adds it.
            del properties["CLUSTER"]
        header = SendMessageRequestV2(
            producer_group="golden_others",
            topic=record.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4,
            queue_id=record.queue_id,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_ms,
            flag=record.flag,
            properties=encode_properties(properties).decode(),
        )
        await self._ask("master", code, header, body=record.body, expected=expected)

    async def _ask(
        self,
        server: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes | None = None,
        expected: ResponseCode = ResponseCode.SUCCESS,
    ) -> None:
        answer = await self._cluster.client.request(
            self._cluster.address(server), code, header, body=body, timeout_s=_TIMEOUT_S
        )
        assert answer.code == expected, f"{code.name}: {answer.code} {answer.remark}"
