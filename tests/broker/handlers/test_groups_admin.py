"""Groups and their members for admin tools: requests 200, 201, 203, 204, 207 and 328."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import trio

from rmq.broker.handlers.groups import SETTINGS_BYTES_MAX
from rmq.broker.tables.groups import GroupTable
from rmq.model.offsets import ConsumerOffset
from rmq.remoting.bodies import (
    Connection,
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumerData,
    ConsumeType,
    MessageModel,
    ProducerConnection,
    ProducerTableInfo,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from rmq.remoting.bodies.lists import ITEMS_PER_STEP
from rmq.remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmq.remoting.headers import (
    DeleteSubscriptionGroupRequest,
    GetConsumerConnectionListRequest,
    GetProducerConnectionListRequest,
)
from tests.broker.broker_frames import (
    GROUP,
    START_MS,
    TOPIC,
    consumer,
    heartbeat,
    pull,
    subscription,
)
from tests.broker.broker_kit import part_broker
from tests.broker.clients.registry_kit import identity, open_channel

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.broker.broker_kit import PartBroker
    from tests.remoting.server_kit import Frame

SLAVE: Final = {"brokerRole": "SLAVE", "brokerId": "1"}
SLAVE_REMARK: Final = (
    "Can't modify topic or subscription group from slave broker,"
    " please execute it from master broker."
)


async def create(broker: PartBroker, group: SubscriptionGroupConfig) -> Frame:
    return await broker.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group.encode())


async def delete(broker: PartBroker, group: str = GROUP, *, offsets: bool = False) -> Frame:
    return await broker.call(
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        DeleteSubscriptionGroupRequest(group_name=group, remove_offset=offsets),
    )


def saved_groups(folder: Path, broker: PartBroker) -> GroupTable:
    """Return the groups as the next start would find them."""
    table = GroupTable(broker.live.current, lambda: 0)
    table.load((folder / "config" / "subscriptionGroup.json").read_text())
    return table


# --- 200, 201, 207 -------------------------------------------------------------------------------


async def test_a_group_is_made_as_it_is_asked_for_and_on_disk_when_answered(
    tmp_path: Path,
) -> None:
    async with part_broker(tmp_path) as broker:
        wanted = SubscriptionGroupConfig(
            group_name="new",
            consume_enable=False,
            consume_from_min_enable=False,
            consume_broadcast_enable=False,
            retry_queue_nums=3,
            retry_max_times=5,
            broker_id=1,
            which_broker_when_consume_slowly=2,
            notify_consumer_ids_changed_enable=False,
        )
        answer = await create(broker, wanted)
        assert (answer.code, answer.remark, answer.fields) == (ResponseCode.SUCCESS, None, None)
        assert broker.groups.get("new") == wanted
        assert saved_groups(tmp_path, broker).get("new") == wanted


async def test_a_change_counts_for_the_next_pull(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        assert (await broker.ask(pull())).code == ResponseCode.PULL_NOT_FOUND
        await create(broker, SubscriptionGroupConfig(group_name=GROUP, consume_enable=False))
        assert (await broker.ask(pull())).code == ResponseCode.NO_PERMISSION
        await create(broker, SubscriptionGroupConfig(group_name=GROUP))
        assert (await broker.ask(pull())).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("", "the specified group is blank"),
        (" \t", "the specified group is blank"),
        ("g" * 256, "the specified group is longer than group max length 255."),
        (
            "a b",
            "the specified group[a b] contains illegal characters,"
            " allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        (
            "../g",
            "the specified group[../g] contains illegal characters,"
            " allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
    ],
    ids=["empty", "blank", "too long", "with a blank", "a path"],
)
async def test_a_group_that_no_client_can_have_is_refused(
    name: str, remark: str, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        answer = await create(broker, SubscriptionGroupConfig(group_name=name))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert broker.groups.get(name) is None


async def test_too_many_retry_queues_are_refused(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        answer = await create(
            broker, SubscriptionGroupConfig(group_name="new", retry_queue_nums=1025)
        )
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "retryQueueNums 1025 is above 1024",
        )


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"{}", b'{"groupName":null}'])
async def test_a_body_that_is_no_group_is_refused(
    body: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with part_broker(tmp_path) as broker:
        before = broker.groups.changes
        answer = await broker.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark
        assert broker.groups.changes == before
    # It is the client's mistake and no failure of the broker.
    assert not [record for record in caplog.records if record.exc_info]


async def test_all_groups_are_listed_with_their_version(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.groups.find(GROUP)
        answer = await broker.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert (answer.code, answer.remark, answer.fields) == (ResponseCode.SUCCESS, None, None)
        body = SubscriptionGroupWrapper.decode(answer.body)
        assert body.subscription_group_table == dict(broker.groups.items())
        assert {GROUP, "TOOLS_CONSUMER"} <= set(body.subscription_group_table)
        assert body.data_version == broker.groups.version


@pytest.mark.parametrize("with_offsets", [True, False])
async def test_a_group_goes_with_its_offsets_if_they_are_to_go(
    with_offsets: bool, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        broker.groups.find(GROUP)
        for group in (GROUP, "others"):
            broker.offsets.commit("client", group, TOPIC, 0, ConsumerOffset(5))
        answer = await delete(broker, offsets=with_offsets)
        assert (answer.code, answer.remark, answer.fields) == (ResponseCode.SUCCESS, None, None)
        assert broker.groups.get(GROUP) is None
        assert saved_groups(tmp_path, broker).get(GROUP) is None
        assert broker.offsets.query(GROUP, TOPIC, 0) == (-1 if with_offsets else 5)
        assert broker.offsets.query("others", TOPIC, 0) == 5


async def test_deleting_a_group_that_is_not_there_succeeds(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        assert (await delete(broker, "unknown")).code == ResponseCode.SUCCESS


async def test_a_deleted_group_comes_back_with_its_next_pull(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        await create(broker, SubscriptionGroupConfig(group_name=GROUP, consume_enable=False))
        await delete(broker)
        assert (await broker.ask(pull())).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("is_on", [True, False])
async def test_figures_of_a_deleted_group_go_if_they_are_to(is_on: bool, tmp_path: Path) -> None:
    settings = {"autoDeleteUnusedStats": str(is_on).lower()}
    async with part_broker(tmp_path, settings) as broker:
        broker.put(b"message")
        await broker.ask(pull())
        key = f"{TOPIC}@{GROUP}"
        assert broker.broker.stats.view("GROUP_GET_NUMS", key) is not None
        await delete(broker)
        assert (broker.broker.stats.view("GROUP_GET_NUMS", key) is None) is is_on


async def test_a_slave_changes_no_group(tmp_path: Path) -> None:
    async with part_broker(tmp_path, SLAVE) as broker:
        broker.groups.find(GROUP)
        for answer in (
            await create(broker, SubscriptionGroupConfig(group_name="new")),
            await delete(broker),
        ):
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, SLAVE_REMARK)
        assert broker.groups.get("new") is None
        assert broker.groups.get(GROUP) is not None


async def test_a_group_that_cannot_be_saved_is_not_acknowledged(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        await broker.tables.topics_writer.save_now()
        (tmp_path / "config").rename(tmp_path / "elsewhere")
        (tmp_path / "config").write_text("in the way")
        answer = await create(broker, SubscriptionGroupConfig(group_name="new"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert "subscriptionGroup.json" in answer.remark


# --- 203, 204, 328 -------------------------------------------------------------------------------


async def test_the_members_of_a_consumer_group_are_shown(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        data = ConsumerData(
            group_name=GROUP,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            subscription_data_set=(subscription("TagA", version=3),),
        )
        await broker.join("a", data)
        await broker.join("b", data)
        body = await broker.get(
            ConsumerConnection,
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            GetConsumerConnectionListRequest(consumer_group=GROUP),
        )
        assert set(body.connection_set) == {
            Connection(client_id=name, client_addr=name, language=LanguageCode.PYTHON, version=409)
            for name in "ab"
        }
        assert body.consume_type is ConsumeType.CONSUME_PASSIVELY
        assert body.message_model is MessageModel.CLUSTERING
        assert body.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        assert set(body.subscription_table) == {TOPIC}
        assert body.subscription_table[TOPIC].sub_string == "TagA"


async def test_a_group_without_members_is_not_online(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer = await broker.join("a", consumer(subscription()))
        await peer.aclose()
        await broker.settle()
        answer = await broker.call(
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            GetConsumerConnectionListRequest(consumer_group=GROUP),
        )
        assert (answer.code, answer.remark, answer.body) == (
            ResponseCode.CONSUMER_NOT_ONLINE,
            "the consumer group[readers] not online",
            b"",
        )


async def test_the_members_of_a_producer_group_are_shown(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for name in "ab":
            await broker.attach(name).request(heartbeat(name, producers=("writers",)))
        body = await broker.get(
            ProducerConnection,
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            GetProducerConnectionListRequest(producer_group="writers"),
        )
        assert set(body.connection_set) == {
            Connection(client_id=name, client_addr=name, language=LanguageCode.PYTHON, version=409)
            for name in "ab"
        }


async def test_a_producer_group_without_members_does_not_exist(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        answer = await broker.call(
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            GetProducerConnectionListRequest(producer_group="writers"),
        )
        assert (answer.code, answer.remark, answer.body) == (
            ResponseCode.SYSTEM_ERROR,
            "the producer group[writers] not exist",
            b"",
        )


async def test_all_producers_are_shown_with_when_they_were_heard_of(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with part_broker(tmp_path) as broker:
        early = broker.attach("a")
        await early.request(heartbeat("a", producers=("one", "two")))
        await broker.pass_time(7)
        await broker.attach("b").request(heartbeat("b", producers=("two",)))
        await broker.pass_time(3)
        body = await broker.get(ProducerTableInfo, RequestCode.GET_ALL_PRODUCER_INFO)
        heard = {
            (group, info.client_id): info.last_update_timestamp
            for group, infos in body.data.items()
            for info in infos
        }
        assert heard == {
            ("one", "a"): START_MS,
            ("two", "a"): START_MS,
            ("two", "b"): START_MS + 7_000,
        }
        (info,) = body.data["one"]
        assert (info.remote_ip, info.language, info.version) == ("/a", LanguageCode.PYTHON, 409)


async def test_nobody_is_shown_where_nobody_is(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        body = await broker.get(ProducerTableInfo, RequestCode.GET_ALL_PRODUCER_INFO)
        assert body.data == {}


# --- many members, long requests -----------------------------------------------------------------


async def test_others_are_answered_while_many_members_are_listed(tmp_path: Path) -> None:
    members = 2_000
    async with part_broker(tmp_path) as broker:
        registry = broker.broker.clients
        data = ConsumerData(group_name="many", subscription_data_set=(subscription("*"),))
        for number in range(members):
            channel = open_channel(f"client-{number}")
            client = identity(f"id-{number}")
            registry.register_consumer("many", channel, client, data, 0.0, notify=False)
            registry.register_producer("many", channel, client, 0.0)
        for code, header in (
            (
                RequestCode.GET_CONSUMER_CONNECTION_LIST,
                GetConsumerConnectionListRequest(consumer_group="many"),
            ),
            (
                RequestCode.GET_PRODUCER_CONNECTION_LIST,
                GetProducerConnectionListRequest(producer_group="many"),
            ),
            (RequestCode.GET_ALL_PRODUCER_INFO, None),
        ):
            passes = 0

            async def count() -> None:
                nonlocal passes
                while True:
                    passes += 1
                    await trio.lowlevel.checkpoint()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(count)
                answer = await broker.call(code, header)
                nursery.cancel_scope.cancel()
            assert answer.code == ResponseCode.SUCCESS
            assert passes > members // ITEMS_PER_STEP
            assert answer.body.count(b'"clientId":"id-') == members


async def test_settings_of_a_group_have_a_length(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        refused = await broker.call(code, body=b"[" * (SETTINGS_BYTES_MAX + 1))
        assert refused.remark == (
            "the body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200) has 65537 bytes,"
            " the limit is 65536"
        )
        slow = await broker.call(code, body=b'{groupName:"g"' + b" " * 10_000 + b"}")
        assert slow.remark is not None
        assert "bytes that are not standard JSON" in slow.remark
        assert broker.broker.groups.get("g") is None
