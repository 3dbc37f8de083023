"""Heartbeats, goodbyes and member lists, over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import SubscriptionData
from rmq.remoting.codes import FLAG_ONEWAY, VERSION, LanguageCode, RequestCode
from rmq.remoting.headers import GetConsumerListByGroupRequest, UnregisterClientRequest
from tests.broker.client_broker import check_expression, client_broker, frame, heartbeat
from tests.broker.clients.registry_kit import consumer, subscription

if TYPE_CHECKING:
    from trio.testing import MockClock

    from tests.remoting.server_kit import Frame

NOTIFY: Final = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
UNREGISTER: Final = RequestCode.UNREGISTER_CLIENT
LIST: Final = RequestCode.GET_CONSUMER_LIST_BY_GROUP

ON_T: Final = consumer("group", [subscription("T")])


def leave_consumers(client_id: str, group: str = "group") -> bytes:
    header = UnregisterClientRequest(client_id=client_id, consumer_group=group)
    return frame(UNREGISTER, header=header)


def leave_producers(client_id: str, group: str) -> bytes:
    header = UnregisterClientRequest(client_id=client_id, producer_group=group)
    return frame(UNREGISTER, header=header)


def list_members(group: str = "group") -> bytes:
    return frame(LIST, header=GetConsumerListByGroupRequest(consumer_group=group))


def codes(frames: list[Frame]) -> list[int]:
    return [each.code for each in frames]


# ---- heartbeats ----------------------------------------------------------------------------------


async def test_a_new_consumer_is_told_to_rebalance_before_its_heartbeat_is_answered() -> None:
    async with client_broker() as broker:
        peer, transport = broker.served.attach_recorded("a")
        await peer.send(heartbeat("a", ON_T, opaque=7))
        notice, answer = await peer.read_many(2)
        assert (notice.code, notice.flag) == (NOTIFY, FLAG_ONEWAY)
        assert notice.fields == {"consumerGroup": "group"}
        assert (answer.code, answer.opaque, answer.flag) == (0, 7, 1)
        assert (answer.remark, answer.fields, answer.version) == (None, None, VERSION)
        assert len(transport.writes) == 1


async def test_a_heartbeat_of_a_known_consumer_is_only_answered() -> None:
    async with client_broker() as broker:
        peer = await broker.join("a", ON_T)
        answer = await peer.request(heartbeat("a", ON_T, opaque=9))
        assert answer.opaque == 9
        assert await peer.ping() == []


async def test_other_members_are_told_of_a_new_one() -> None:
    async with client_broker() as broker:
        first = await broker.join("a", ON_T)
        await broker.join("b", ON_T)
        assert codes(await first.ping()) == [NOTIFY]
        assert broker.group().client_ids() == ("a", "b")


async def test_a_producer_is_registered_and_not_told_anything() -> None:
    async with client_broker() as broker:
        peer = broker.attach("a")
        answer = await peer.request(heartbeat("a", producers=("p", "CLIENT_INNER_PRODUCER")))
        assert answer.code == 0
        assert broker.clients.producer_channels("p") == (peer.channel,)
        assert broker.clients.find_producer("a") is peer.channel
        assert broker.groups.get("p") is None
        assert broker.retry_topics == []


async def test_language_and_version_of_a_client_are_those_of_its_heartbeat() -> None:
    async with client_broker() as broker:
        await broker.join("a", ON_T, version=61)
        (client,) = broker.group().clients
        assert (client.client_id, client.version) == ("a", 61)
        assert client.language is LanguageCode.PYTHON


async def test_the_first_heartbeat_creates_the_group_and_its_retry_topic() -> None:
    async with client_broker() as broker:
        await broker.join("a", ON_T)
        await broker.join("b", ON_T)
        assert broker.groups.get("group") is not None
        assert broker.retry_topics == [("group", 1, False)]
        assert broker.topics.get("%RETRY%group") is not None


async def test_the_retry_topic_has_the_queues_of_its_group_and_its_unit_mode() -> None:
    async with client_broker() as broker:
        settings = broker.groups.find("group")
        assert settings is not None
        broker.groups.put(msgspec.structs.replace(settings, retry_queue_nums=3))
        await broker.join("a", msgspec.structs.replace(ON_T, unit_mode=True))
        assert broker.retry_topics == [("group", 3, True)]


async def test_a_group_that_may_not_be_created_is_connected_without_settings() -> None:
    async with client_broker({"autoCreateSubscriptionGroup": "false"}) as broker:
        peer = broker.attach("a")
        await peer.send(heartbeat("a", ON_T))
        assert codes(await peer.read_many(2)) == [NOTIFY, 0]
        assert broker.groups.get("group") is None
        assert broker.retry_topics == []
        assert broker.group().client_ids() == ("a",)


async def test_a_group_whose_settings_say_so_is_not_told_of_new_members() -> None:
    async with client_broker() as broker:
        settings = broker.groups.find("group")
        assert settings is not None
        broker.groups.put(
            msgspec.structs.replace(settings, notify_consumer_ids_changed_enable=False)
        )
        peer = broker.attach("a")
        assert (await peer.request(heartbeat("a", ON_T))).code == 0
        assert broker.group().client_ids() == ("a",)


async def test_a_broker_whose_settings_say_so_tells_nobody_of_new_members() -> None:
    async with client_broker({"notifyConsumerIdsChangedEnable": "false"}) as broker:
        peer = broker.attach("a")
        assert (await peer.request(heartbeat("a", ON_T))).code == 0


async def test_a_subscription_without_a_version_gets_the_present_time() -> None:
    async with client_broker() as broker:
        undated = SubscriptionData(topic="T", sub_string="*")
        await broker.join("a", consumer("group", [undated, subscription("U", version=5)]))
        group = broker.group()
        dated = group.subscription("T")
        assert dated is not None
        assert dated.sub_version > 1_700_000_000_000
        assert group.subscription("U") == subscription("U", version=5)


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        pytest.param(b"", "HeartbeatData: $: there is no body", id="missing"),
        pytest.param(b'{"clientID":', "malformed JSON at character 12", id="malformed"),
        pytest.param(b"{}", "HeartbeatData: $", id="without-an-id"),
    ],
)
async def test_a_heartbeat_that_cannot_be_read_is_refused(body: bytes, remark: str) -> None:
    async with client_broker() as broker:
        peer = broker.attach("a")
        answer = await peer.request(frame(RequestCode.HEART_BEAT, body=body))
        assert answer.code == 1
        assert answer.remark is not None
        assert answer.remark.startswith(remark)
        assert broker.clients.statistics().connections == 0
        assert await peer.ping() == []


async def test_a_heartbeat_of_a_connection_that_has_ended_leaves_nothing_behind() -> None:
    def close_all(kind: str, text: str) -> None:
        for channel in list(broker.served.server.channels):
            channel.close("closed while its frames are handled")

    settings = {"enablePropertyFilter": "true"}
    async with client_broker(settings, compile_filter=close_all) as broker:
        peer = await broker.join("a", ON_T)
        await peer.send(check_expression("SQL92"), heartbeat("a", ON_T))
        assert await peer.read_to_end() == []
        assert broker.clients.statistics().connections == 0


# ---- ends ----------------------------------------------------------------------------------------


async def test_who_leaves_is_gone_at_once_and_the_others_are_told() -> None:
    async with client_broker() as broker:
        first, second = await broker.join("a", ON_T), await broker.join("b", ON_T)
        await first.ping()
        answer = await second.request(leave_consumers("b"))
        assert (answer.code, answer.remark, answer.fields) == (0, None, {})
        assert codes(await first.ping()) == [NOTIFY]
        assert broker.group().client_ids() == ("a",)


async def test_the_wish_of_a_group_not_to_be_told_holds_for_goodbyes() -> None:
    async with client_broker() as broker:
        first, second = await broker.join("a", ON_T), await broker.join("b", ON_T)
        await first.ping()
        settings = broker.groups.get("group")
        assert settings is not None
        broker.groups.put(
            msgspec.structs.replace(settings, notify_consumer_ids_changed_enable=False)
        )
        await second.request(leave_consumers("b"))
        assert await first.ping() == []


async def test_a_producer_leaves_its_group() -> None:
    async with client_broker() as broker:
        peer = broker.attach("a")
        await peer.request(heartbeat("a", producers=("p",)))
        assert (await peer.request(leave_producers("a", "p"))).code == 0
        assert broker.clients.producer_group("p") is None


async def test_a_stranger_may_say_goodbye() -> None:
    async with client_broker() as broker:
        peer = broker.attach("a")
        for goodbye in (leave_consumers("a", "unknown"), leave_producers("a", "unknown")):
            assert (await peer.request(goodbye)).code == 0
        assert broker.groups.get("unknown") is None


async def test_the_end_of_a_connection_tells_those_who_stay() -> None:
    async with client_broker() as broker:
        first, second = await broker.join("a", ON_T), await broker.join("b", ON_T)
        await first.ping()
        await second.aclose()
        await wait_all_tasks_blocked()
        assert codes(await first.ping()) == [NOTIFY]
        assert broker.group().client_ids() == ("a",)


async def test_a_connection_without_heartbeats_is_closed_and_its_locks_lapse(
    autojump_clock: MockClock,
) -> None:
    async with client_broker(housekeeping=True) as broker:
        peer = await broker.join("a", ON_T)
        queue = MessageQueue(topic="T", broker_name="b", queue_id=0)
        broker.locks.lock_batch("group", "a", [queue], 0.0)
        # Not idle: only heartbeats count.
        for _ in range(3):
            await trio.sleep(40)
            await peer.ping()
        assert broker.group().client_ids() == ("a",)
        await trio.sleep(15)
        assert await peer.read_to_end() == []
        assert peer.channel.close_reason == "no heartbeat in time"
        assert broker.clients.consumer_group("group") is None
        assert len(broker.locks) == 0


# ---- lists ---------------------------------------------------------------------------------------


async def test_the_members_of_a_group_are_listed_by_id() -> None:
    async with client_broker() as broker:
        peer = await broker.join("a", ON_T)
        await broker.join("b", ON_T)
        await peer.ping()
        answer = await peer.request(list_members())
        assert (answer.code, answer.fields) == (0, {})
        assert answer.body == b'{"consumerIdList":["a","b"]}'


async def test_a_group_without_members_has_no_list() -> None:
    async with client_broker() as broker:
        answer = await broker.attach().request(list_members("nobody"))
        assert answer.code == 1
        assert answer.remark == "no consumer for this group, nobody"
        assert answer.body == b""
