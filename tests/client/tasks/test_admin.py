"""The admin client against real brokers: topics, groups, offsets, brokers, nameservers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from rmq.client.core.admin.nameservers import ORDER_NAMESPACE
from rmq.client.core.admin.offsets import QUEUE_ENDS_MS
from rmq.client.trio.opening import open_admin
from rmq.errors import (
    BrokersFailedError,
    ConfigError,
    IllegalMessageError,
    NoBrokerError,
    NoNameserverError,
    NoRouteError,
    ResponseError,
)
from rmq.model.names import dlq_topic, retry_topic
from rmq.remoting.bodies import ConsumeType, SubscriptionGroupConfig
from tests.client.admin_kit import KitConsumer, joined, queue, register, send, until
from tests.client.cluster_kit import cluster

if TYPE_CHECKING:
    from pathlib import Path

TWO = ("broker-a", "broker-b")


# --- topics -----------------------------------------------------------------------------------


async def test_a_topic_is_created_on_every_master_and_deleted_everywhere(tmp_path: Path) -> None:
    async with cluster(tmp_path, TWO) as it, open_admin(it.nameserver) as admin:
        done = await admin.create_topic("Orders", queues=3, read_queues=2)
        assert [target.address for target in done] == [it.address(name) for name in TWO]
        route = await admin.topic_route("Orders")
        assert {
            (data.broker_name, data.write_queue_nums, data.read_queue_nums, data.perm)
            for data in route.queue_datas
        } == {("broker-a", 3, 2, 6), ("broker-b", 3, 2, 6)}
        assert await admin.topic_clusters("Orders") == ("DefaultCluster",)
        assert "Orders" in await admin.list_topics()
        assert "Orders" in await admin.list_topics(cluster="DefaultCluster")
        assert await admin.list_topics(cluster="Other") == ()

        await admin.delete_topic("Orders")
        with pytest.raises(NoRouteError):
            await admin.topic_route("Orders")
        for broker in it.brokers.values():
            assert broker.topics.get("Orders") is None


async def test_a_topic_can_be_created_on_one_broker_by_name_or_address(tmp_path: Path) -> None:
    async with cluster(tmp_path, TWO) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("ByName", broker="broker-b")
        await admin.create_topic("ByAddress", broker=it.address("broker-a"))
        for topic, name in (("ByName", "broker-b"), ("ByAddress", "broker-a")):
            route = await admin.topic_route(topic)
            assert [data.broker_name for data in route.queue_datas] == [name]
        assert set(await admin.topic_configs("broker-b", only_own=True)) == {"ByName"}
        assert "TBW102" in await admin.topic_configs("broker-b")
        assert "TBW102" in await admin.list_system_topics()


async def test_an_ordered_topic_is_noted_at_the_nameserver(tmp_path: Path) -> None:
    async with cluster(tmp_path, TWO) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Steps", queues=2, is_ordered=True, broker=it.address("broker-a"))
        assert await admin.get_kv(ORDER_NAMESPACE, "Steps") == "broker-a:2"
        await admin.create_topic("Steps", queues=4, is_ordered=True, broker="broker-b")
        assert await admin.get_kv(ORDER_NAMESPACE, "Steps") == "broker-a:2;broker-b:4"
        await admin.create_topic("Steps", queues=8, is_ordered=True)
        assert await admin.get_kv(ORDER_NAMESPACE, "Steps") == "broker-a:8;broker-b:8"


async def test_permission_changes_and_nothing_else(tmp_path: Path) -> None:
    async with cluster(tmp_path, TWO) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=3)
        done = await admin.set_topic_permission("Orders", 4, broker="broker-b")
        assert [target.broker_name for target in done] == ["broker-b"]
        route = await admin.topic_route("Orders")
        assert {
            data.broker_name: (data.perm, data.write_queue_nums) for data in route.queue_datas
        } == {
            "broker-a": (6, 3),
            "broker-b": (4, 3),
        }
        await admin.set_topic_permission("Orders", 2, cluster="DefaultCluster")
        route = await admin.topic_route("Orders")
        assert [data.perm for data in route.queue_datas] == [2, 2]
        await admin.create_topic("Here", broker="broker-a")
        with pytest.raises(NoBrokerError, match="it is not at broker-b"):
            await admin.set_topic_permission("Here", 4, broker="broker-b")


async def test_who_failed_is_said_with_who_did_not(tmp_path: Path) -> None:
    async with cluster(tmp_path, TWO) as it, open_admin(it.nameserver) as admin:
        with pytest.raises(BrokersFailedError, match="create topic TBW102: 2 of 2 failed") as none:
            await admin.create_topic("TBW102")
        assert none.value.done == ()
        with pytest.raises(ResponseError, match="conflict with system topic"):
            raise none.value.failures[0][1]
        await admin.create_topic("Orders", broker="broker-a")
        with pytest.raises(NoRouteError, match="Orders2"):
            await admin.topic_stats("Orders2")
        with pytest.raises(NoBrokerError, match="cluster Other: nameservers know DefaultCluster"):
            await admin.create_topic("Orders", cluster="Other")
        with pytest.raises(NoBrokerError, match="broker broker-c: nameservers know broker-a"):
            await admin.create_topic("Orders", broker="broker-c")
        with pytest.raises(ConfigError, match="too: which one"):
            await admin.create_topic("Orders", cluster="DefaultCluster", broker="broker-a")
        with pytest.raises(IllegalMessageError):
            await admin.create_topic("no blanks")


async def test_what_a_topic_holds_is_told_by_queue(tmp_path: Path) -> None:
    async with cluster(tmp_path, TWO) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=2)
        before_ms = time.time_ns() // 1_000_000
        for number in range(3):
            await send(it, admin.client, "Orders", b"%d" % number)
        await send(it, admin.client, "Orders", b"b", broker="broker-b", queue_id=1)
        stats = await admin.topic_stats("Orders")
        assert stats.failures == ()
        assert {queue: held.count for queue, held in stats.queues.items()} == {
            queue("Orders", 0): 3,
            queue("Orders", 1): 0,
            queue("Orders", 0, "broker-b"): 0,
            queue("Orders", 1, "broker-b"): 1,
        }
        assert stats.count == 4
        assert stats.queues[queue("Orders", 0)].updated_at_ms >= before_ms
        assert stats.queues[queue("Orders", 1)].updated_at_ms == 0


# --- groups and offsets -----------------------------------------------------------------------


async def test_groups_are_created_listed_and_deleted(tmp_path: Path) -> None:
    async with cluster(tmp_path, TWO) as it, open_admin(it.nameserver) as admin:
        await admin.create_group("billing")
        config = SubscriptionGroupConfig(group_name="audit", retry_max_times=3)
        await admin.create_group(config, broker="broker-b")
        groups = await admin.list_groups()
        assert groups.failures == ()
        assert set(groups.configs) == {"billing", "audit"}
        assert set(groups.configs["billing"]) == set(TWO)
        assert groups.configs["audit"] == {"broker-b": config}
        assert "TOOLS_CONSUMER" in (await admin.list_groups(with_system=True)).configs
        for topic in (retry_topic("billing"), dlq_topic("billing")):
            await admin.create_topic(topic)
        await admin.set_consumer_offsets("billing", {})
        await admin.delete_group("billing", removes_offsets=True)
        assert set((await admin.list_groups(cluster="DefaultCluster")).configs) == {"audit"}
        assert retry_topic("billing") not in await admin.list_topics()
        await admin.delete_group("audit", broker="broker-b")
        assert (await admin.list_groups(broker="broker-b")).configs == {}


async def test_lag_is_what_the_broker_has_and_the_group_has_not_read(tmp_path: Path) -> None:
    async with cluster(tmp_path, TWO) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=2)
        for _ in range(5):
            await send(it, admin.client, "Orders", b"x")
        assert await admin.consumer_offset("billing", queue("Orders")) == 0
        await admin.set_consumer_offsets("billing", {queue("Orders"): 2})
        assert await admin.consumer_offset("billing", queue("Orders")) == 2
        # Nobody has ever consumed in the group: it has no retry topic.
        progress = await admin.group_progress("billing")
        assert progress.failures == ()
        assert progress.queues[queue("Orders")].lag == 3
        assert progress.queues[queue("Orders")].consumed_at_ms > 0
        assert progress.queues[queue("Orders", 1)].lag == 0
        assert progress.lag == 3
        assert (await admin.group_progress("billing", topic="Orders")).lag == 3
        await admin.create_group("billing", broker="broker-a")
        everybody = await admin.broker_progress("broker-a")
        assert everybody["billing"].lag == 3
        times = await admin.group_times("billing", "Orders")
        assert times.queues[queue("Orders")].delay_time >= 0
        assert (await admin.groups_of_topic("Orders")).groups == ("billing",)
        with pytest.raises(NoBrokerError, match="broker-c"):
            await admin.set_consumer_offsets("billing", {queue("Orders", 0, "broker-c"): 1})


async def test_offsets_of_queues(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        one = queue("Orders")
        assert await admin.first_stored_at_ms(one) is None
        for _ in range(4):
            await send(it, admin.client, "Orders", b"x")
        assert await admin.min_offset(one) == 0
        assert await admin.max_offset(one) == 4
        stored_ms = await admin.first_stored_at_ms(one)
        assert stored_ms is not None
        assert await admin.offset_at(one, stored_ms - 60_000) == 0
        assert await admin.offset_at(one, stored_ms + 3_600_000) == 3
        entries = await admin.consume_queue(one, 1, count=2)
        assert (entries.min_queue_index, entries.max_queue_index) == (0, 4)
        assert len(entries.queue_data) == 2
        assert (await admin.consume_queue(one, 99)).queue_data == ()


async def test_a_group_without_consumers_is_reset_by_writing(tmp_path: Path) -> None:
    async with cluster(tmp_path, TWO) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        for name in TWO:
            for _ in range(4):
                await send(it, admin.client, "Orders", b"x", broker=name)
        first, second = queue("Orders"), queue("Orders", 0, "broker-b")
        # It never consumed: there is nothing that could be moved, only written.
        reset = await admin.reset_offsets("billing", "Orders", QUEUE_ENDS_MS)
        assert reset.offsets == {first: 4, second: 4}
        assert reset.offline == {"broker-a", "broker-b"}
        reset = await admin.reset_offsets("billing", "Orders", 0)
        assert reset.offsets == {first: 0, second: 0}
        assert (await admin.group_progress("billing", topic="Orders")).lag == 8
        await admin.set_consumer_offsets("billing", {first: 1, second: 4})
        reset = await admin.reset_offsets("billing", "Orders", QUEUE_ENDS_MS, is_forced=False)
        assert reset.offsets == {first: 1, second: 4}
        cloned = await admin.clone_offsets("billing", "audit", topic="Orders")
        assert cloned == {first: 1, second: 4}
        assert (await admin.group_progress("audit", topic="Orders")).lag == 3


async def test_a_group_with_consumers_is_reset_by_telling_them(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        for _ in range(4):
            await send(it, admin.client, "Orders", b"x")
        consumer = KitConsumer("billing", "Orders")
        await joined(admin.client, consumer, "Orders")
        # Its consumers are connected and have no offset: the broker cannot say where to go.
        with pytest.raises(BrokersFailedError, match="not exist"):
            await admin.reset_offsets("billing", "Orders", 0)
        await admin.set_consumer_offsets("billing", {queue("Orders"): 3})
        reset = await admin.reset_offsets("billing", "Orders", 0)
        assert reset.offsets == {queue("Orders"): 0}
        assert reset.offline == frozenset()
        await until(lambda: bool(consumer.resets))
        assert consumer.resets == [{queue("Orders"): 0}]


# --- clients ----------------------------------------------------------------------------------


async def test_consumers_are_found_and_called_through_brokers(tmp_path: Path) -> None:
    async with cluster(tmp_path, TWO) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        assert not (await admin.consumer_connections("billing")).is_online
        consumer = KitConsumer("billing", "Orders", tags=frozenset({"new"}))
        consumer.offsets = {queue("Orders"): 7}
        await joined(admin.client, consumer, "Orders")
        found = await admin.consumer_connections("billing")
        assert [one.client_id for one in found.connections] == [admin.client.client_id]
        assert found.consume_type is ConsumeType.CONSUME_PASSIVELY
        assert found.subscriptions["Orders"].tags_set == {"new"}
        assert found.failures == ()
        assert (await admin.consumer_connections("billing", broker="broker-b")).is_online

        info = await admin.running_info("billing", admin.client.client_id)
        assert info.properties == {"PROP_CONSUME_TYPE": "kit"}
        with pytest.raises(BrokersFailedError, match="nobody"):
            await admin.running_info("billing", "nobody")
        assert await admin.consumer_status("billing", "Orders") == {
            admin.client.client_id: {queue("Orders"): 7}
        }
        message_id = await send(it, admin.client, "Orders", b"again", KEYS="k")
        result = await admin.consume_directly(
            "billing", admin.client.client_id, "Orders", message_id
        )
        assert result.consume_result == "CR_SUCCESS"
        assert consumer.consumed == [b"again"]
        with pytest.raises(NoBrokerError, match="no broker of topic Orders has it"):
            await admin.consume_directly("billing", "x", "Orders", "no-such-id")


async def test_producers_are_found(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders")
        await joined(admin.client, KitConsumer("billing", "Orders"), "Orders")
        # Every client has this one.
        found = await admin.producer_connections("CLIENT_INNER_PRODUCER", "Orders")
        assert [one.client_id for one in found.connections] == [admin.client.client_id]
        assert (await admin.producer_connections("none", "Orders")).connections == ()
        everybody = await admin.broker_producers("broker-a")
        assert [one.client_id for one in everybody["CLIENT_INNER_PRODUCER"]] == [
            admin.client.client_id
        ]


# --- brokers and nameservers ------------------------------------------------------------------


async def test_settings_and_figures_of_a_broker(tmp_path: Path) -> None:
    async with cluster(tmp_path, TWO) as it, open_admin(it.nameserver) as admin:
        info = await admin.cluster_info()
        assert info.cluster_addr_table == {"DefaultCluster": frozenset(TWO)}
        brokers = await admin.list_brokers(cluster="DefaultCluster")
        assert [(one.broker_name, one.broker_id) for one in brokers] == [
            ("broker-a", 0),
            ("broker-b", 0),
        ]
        assert (await admin.broker_config("broker-a"))["brokerName"] == "broker-a"
        remark = await admin.update_broker_config("broker-a", {"defaultQueryMaxNum": "7"})
        assert remark is None
        assert (await admin.broker_config(it.address()))["defaultQueryMaxNum"] == "7"
        with pytest.raises(ResponseError, match="no_such_key"):
            await admin.update_broker_config("broker-a", {"no_such_key": "1"})
        runtime = await admin.runtime_info("broker-a")
        assert runtime.version == "V4_9_8"
        assert runtime.sends_per_second == 0
        assert runtime.reads_per_second == 0
        await send(it, admin.client, "Made", b"x")
        after = await admin.runtime_info("broker-a")
        assert after.log_end > runtime.log_end >= runtime.log_start
        figure = await admin.broker_statistic("broker-a", "TOPIC_PUT_NUMS", "Made")
        assert figure.stats_minute is not None
        for clean in (
            admin.clean_expired_queues,
            admin.clean_unused_topics,
            admin.delete_expired_logs,
        ):
            assert [one.broker_name for one in await clean()] == list(TWO)
            assert [one.address for one in await clean(broker="broker-b")] == [
                it.address("broker-b")
            ]


async def test_settings_of_nameservers(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        assert await admin.get_kv("mine", "colour") is None
        assert await admin.list_kv("mine") == {}
        await admin.put_kv("mine", "colour", "blue")
        assert await admin.get_kv("mine", "colour") == "blue"
        assert await admin.list_kv("mine") == {"colour": "blue"}
        await admin.delete_kv("mine", "colour")
        assert await admin.get_kv("mine", "colour") is None

        told = await admin.nameserver_config()
        assert [(one.address, "listenPort" in settings) for one, settings in told.answers] == [
            (it.nameserver, True)
        ]
        await admin.update_nameserver_config({"orderMessageEnable": "true"})
        (_, settings), *_ = (await admin.nameserver_config()).answers
        assert settings["orderMessageEnable"] == "true"

        await admin.create_topic("Orders")
        wiped = await admin.wipe_write_permission("broker-a")
        assert wiped[it.nameserver] > 0
        assert (await admin.topic_route("Orders")).queue_datas[0].perm == 4
        await admin.add_write_permission("broker-a")
        assert (await admin.topic_route("Orders")).queue_datas[0].perm == 6


async def test_a_change_at_two_nameservers_of_which_one_is_gone_says_which(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(f"{it.nameserver};127.0.0.1:1") as admin:
        with pytest.raises(BrokersFailedError, match=r"set mine\.key: 1 of 2 failed") as caught:
            await admin.put_kv("mine", "key", "value")
        assert caught.value.done == (it.nameserver,)
        assert [who for who, _ in caught.value.failures] == ["127.0.0.1:1"]
        told = await admin.nameserver_config()
        assert len(told.answers) == len(told.failures) == 1
        assert "127.0.0.1:1" in str(told.failures[0])


async def test_no_nameserver_is_an_error_that_names_it() -> None:
    async with open_admin("127.0.0.1:1") as admin:
        with pytest.raises(NoNameserverError, match=r"127\.0\.0\.1:1"):
            await admin.list_topics()


async def test_a_broker_that_does_not_answer_is_named(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        await send(it, admin.client, "Orders", b"x")
        await register(it, admin.client, "broker-b", 0, "127.0.0.1:1", "Orders")
        stats = await admin.topic_stats("Orders")
        assert list(stats.queues) == [queue("Orders")]
        (failure,) = stats.failures
        assert str(failure).startswith("broker-b at 127.0.0.1:1: cannot connect to 127.0.0.1:1")
        assert len((await admin.list_groups()).failures) == 1
        with pytest.raises(BrokersFailedError, match="broker-b at") as caught:
            await admin.create_topic("More")
        assert caught.value.done == (f"broker-a at {it.address()}",)
        # It is on the other broker still, so that its route must stay.
        with pytest.raises(BrokersFailedError):
            await admin.delete_topic("Orders")
        assert await admin.topic_route("Orders")


async def test_a_slave_is_read_from_and_not_changed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        # A name whose master has gone, and one whose master does not answer: broker-a stands in
        # for the slaves of both.
        await register(it, admin.client, "broker-b", 1, it.address(), "Orders")
        await register(it, admin.client, "broker-c", 0, "127.0.0.1:1", "Orders")
        await register(it, admin.client, "broker-c", 1, it.address())
        assert (await admin.list_groups()).failures == ()
        assert (await admin.topic_stats("Orders")).failures == ()
        with pytest.raises(BrokersFailedError, match="broker-b: it has no master now") as caught:
            await admin.create_topic("More")
        assert len(caught.value.failures) == 2
        with pytest.raises(NoBrokerError, match="it has no master now"):
            await admin.broker_config("broker-b")
