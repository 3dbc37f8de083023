"""Our client against the stock broker: what administrators and slaves ask.

They come after the cases of `message_cases`, whose messages and offsets they find.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker_session import (
    CLIENT_ID,
    PRODUCER_GROUP,
    QUEUES,
    BrokerSession,
    queue_of,
    running_info,
    subscription,
)
from stock_servers import BROKER, CLUSTER

from interop.support.cases import expect, expect_true
from interop.support.waiting import wait_until
from rmq.remoting import bodies, headers
from rmq.remoting.bodies import parse_properties
from rmq.remoting.codes import LanguageCode, RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from interop.support.cases import CaseTable


async def run_admin_cases(table: CaseTable, session: BrokerSession) -> None:
    for name, case in CASES.items():
        with table.case(session.part, name):
            await case(session)


async def _runtime_info(session: BrokerSession) -> None:
    # In its first second a stock broker has no rates yet and fails over them.
    async def has_rates() -> bool:
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        answer = await session.client.request(session.servers.broker, code)
        return answer.code == ResponseCode.SUCCESS

    await wait_until("the broker to have rates", has_rates)
    info = await session.broker.body(bodies.KVTable, RequestCode.GET_BROKER_RUNTIME_INFO)
    expect("version", info.table["brokerVersionDesc"], "V4_9_7")


async def _config(session: BrokerSession) -> None:
    answer = await session.broker.ask(RequestCode.GET_BROKER_CONFIG)
    version = answer.header(headers.GetBrokerConfigResponse).version
    bodies.DataVersion.decode(version.encode())
    config = parse_properties(answer.body)
    expect("brokerName", config["brokerName"], BROKER)
    expect("cluster", config["brokerClusterName"], CLUSTER)


async def _vip_port(session: BrokerSession) -> None:
    topics = await session.vip.body(
        bodies.TopicConfigSerializeWrapper, RequestCode.GET_ALL_TOPIC_CONFIG
    )
    expect("queues", topics.topic_config_table[session.topic].read_queue_nums, QUEUES)
    await session.vip.ask(
        RequestCode.PULL_MESSAGE,
        session.pull(0, 0, hold_ms=0),
        answered=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    )


async def _slave_tables(session: BrokerSession) -> None:
    offsets = await session.broker.body(
        bodies.ConsumerOffsetSerializeWrapper, RequestCode.GET_ALL_CONSUMER_OFFSET
    )
    expect("offsets", offsets.offset_table[f"{session.topic}@{session.group}"], {0: 3})
    await session.broker.body(bodies.DelayOffsetSerializeWrapper, RequestCode.GET_ALL_DELAY_OFFSET)
    groups = await session.broker.body(
        bodies.SubscriptionGroupWrapper, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    )
    expect_true("our group", session.group in groups.subscription_group_table)


async def _connections(session: BrokerSession) -> None:
    members = await session.broker.body(
        bodies.GetConsumerListByGroupResponseBody,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        headers.GetConsumerListByGroupRequest(consumer_group=session.group),
    )
    expect("members", members.consumer_id_list, (CLIENT_ID,))
    consumers = await session.broker.body(
        bodies.ConsumerConnection,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        headers.GetConsumerConnectionListRequest(consumer_group=session.group),
    )
    (consumer,) = consumers.connection_set
    expect("client", (consumer.client_id, consumer.language), (CLIENT_ID, LanguageCode.PYTHON))
    expect_true("our subscription", session.topic in consumers.subscription_table)
    producers = await session.broker.body(
        bodies.ProducerConnection,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        headers.GetProducerConnectionListRequest(producer_group=PRODUCER_GROUP),
    )
    expect("producers", [each.client_id for each in producers.connection_set], [CLIENT_ID])
    everyone = await session.broker.body(
        bodies.ProducerTableInfo, RequestCode.GET_ALL_PRODUCER_INFO, headers.EmptyHeader()
    )
    expect_true("our producers", PRODUCER_GROUP in everyone.data)


async def _statistics(session: BrokerSession) -> None:
    broker = session.broker
    queue = queue_of(session.topic, 0)
    topic = await broker.body(
        bodies.TopicStatsTable,
        RequestCode.GET_TOPIC_STATS_INFO,
        headers.GetTopicStatsInfoRequest(topic=session.topic),
    )
    expect("queues", len(topic.offset_table), QUEUES)
    progress = await broker.body(
        bodies.ConsumeStats,
        RequestCode.GET_CONSUME_STATS,
        headers.GetConsumeStatsRequest(consumer_group=session.group, topic=session.topic),
    )
    expect("consumer offset", progress.offset_table[queue].consumer_offset, 3)
    await broker.body(
        bodies.QueryConsumeTimeSpanBody,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        headers.QueryConsumeTimeSpanRequest(topic=session.topic, group=session.group),
    )
    await broker.body(
        bodies.BrokerStatsData,
        RequestCode.VIEW_BROKER_STATS_DATA,
        headers.ViewBrokerStatsDataRequest(stats_name="TOPIC_PUT_NUMS", stats_key=session.topic),
    )
    everything = await broker.body(
        bodies.ConsumeStatsList,
        RequestCode.GET_BROKER_CONSUME_STATS,
        headers.GetBrokerConsumeStatsRequest(),
    )
    groups = {group for entry in everything.consume_stats_list for group in entry}
    expect_true("our group", session.group in groups)


async def _tables(session: BrokerSession) -> None:
    broker = session.broker
    entries = await broker.body(
        bodies.QueryConsumeQueueResponseBody,
        RequestCode.QUERY_CONSUME_QUEUE,
        headers.QueryConsumeQueueRequest(topic=session.topic, queue_id=0, index=0, count=3),
    )
    expect("entries", len(entries.queue_data), 3)
    consumers = await broker.body(
        bodies.GroupList,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        headers.QueryTopicConsumeByWhoRequest(topic=session.topic),
    )
    expect("groups", consumers.group_list, frozenset((session.group,)))
    await broker.body(bodies.TopicList, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    await broker.ask(
        RequestCode.CLONE_GROUP_OFFSET,
        headers.CloneGroupOffsetRequest(
            src_group=session.group, dest_group=f"{session.group}_clone", topic=session.topic
        ),
    )
    corrections = await broker.body(
        bodies.QueryCorrectionOffsetBody,
        RequestCode.QUERY_CORRECTION_OFFSET,
        headers.QueryCorrectionOffsetRequest(topic=session.topic, compare_group=session.group),
    )
    expect("corrections", corrections.correction_offsets, {0: 3})


async def _running_info(session: BrokerSession) -> None:
    answer = await session.broker.ask(
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        headers.GetConsumerRunningInfoRequest(consumer_group=session.group, client_id=CLIENT_ID),
        handed_on=True,
    )
    expect("asked", session.consumer.asked, [CLIENT_ID])
    expect("info", bodies.ConsumerRunningInfo.decode(answer.body), running_info())


async def _reset(session: BrokerSession) -> None:
    # The broker resets a group only where it has an offset for every queue.
    await session.broker.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        headers.UpdateConsumerOffsetRequest(
            consumer_group=session.group, topic=session.topic, queue_id=1, commit_offset=4
        ),
    )
    reset = await session.broker.body(
        bodies.ResetOffsetBody,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        headers.ResetOffsetRequest(
            topic=session.topic, group=session.group, timestamp=0, is_force=True
        ),
    )
    expect("offsets", set(reset.offset_table.values()), {0})

    async def told() -> bool:
        return bool(session.consumer.resets)

    await wait_until("the broker to tell its consumer", told)
    expect("what the broker told its consumer", session.consumer.resets, [reset])

    status = await session.broker.body(
        bodies.GetConsumerStatusBody,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        headers.GetConsumerStatusRequest(topic=session.topic, group=session.group),
    )
    ours = {queue_of(session.topic, 0): 42}
    expect("what its consumer told the broker", status.consumer_table, {CLIENT_ID: ours})


async def _groups(session: BrokerSession) -> None:
    group = f"{session.group}_made"
    await session.broker.ask(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        body=bodies.SubscriptionGroupConfig(group_name=group, retry_max_times=3).encode(),
    )
    groups = await session.broker.body(
        bodies.SubscriptionGroupWrapper, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    )
    expect("retries", groups.subscription_group_table[group].retry_max_times, 3)
    await session.broker.ask(
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        headers.DeleteSubscriptionGroupRequest(group_name=group),
    )
    await session.broker.ask(
        RequestCode.CHECK_CLIENT_CONFIG,
        body=bodies.CheckClientRequestBody(
            client_id=CLIENT_ID, group=group, subscription_data=subscription(session.topic)
        ).encode(),
    )


async def _unregister(session: BrokerSession) -> None:
    for group in ({"producer_group": PRODUCER_GROUP}, {"consumer_group": session.group}):
        await session.broker.ask(
            RequestCode.UNREGISTER_CLIENT,
            headers.UnregisterClientRequest(client_id=CLIENT_ID, **group),
        )
    await session.broker.ask(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        headers.GetConsumerListByGroupRequest(consumer_group=session.group),
        answered=ResponseCode.SYSTEM_ERROR,
    )


async def _refusals(session: BrokerSession) -> None:
    broker = session.broker
    await broker.ask(
        RequestCode.GET_TOPIC_STATS_INFO,
        headers.GetTopicStatsInfoRequest(topic="nowhere"),
        answered=ResponseCode.TOPIC_NOT_EXIST,
    )
    await broker.ask(
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        headers.GetConsumerConnectionListRequest(consumer_group="nobody"),
        answered=ResponseCode.CONSUMER_NOT_ONLINE,
    )
    await broker.ask(
        RequestCode.PULL_MESSAGE,
        headers.PullMessageRequest(
            consumer_group="nobody",
            topic=session.topic,
            queue_id=0,
            queue_offset=0,
            max_msg_nums=1,
            sys_flag=0,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
        ),
        answered=ResponseCode.SUBSCRIPTION_NOT_EXIST,
    )
    await broker.ask(
        RequestCode.GET_NAMESRV_CONFIG, answered=ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    )


CASES: Final[dict[str, Callable[[BrokerSession], Awaitable[None]]]] = {
    "GET_BROKER_RUNTIME_INFO": _runtime_info,
    "GET_BROKER_CONFIG": _config,
    "GET_ALL_TOPIC_CONFIG on the VIP port, no pull there": _vip_port,
    "what a slave copies (43, 45, 201)": _slave_tables,
    "who is connected (38, 203, 204, 328)": _connections,
    "statistics (202, 208, 303, 315, 317)": _statistics,
    "ConsumeQueue, correction, groups (300, 305, 308, 314, 321)": _tables,
    "GET_CONSUMER_RUNNING_INFO comes back to us": _running_info,
    "reset and status, with the broker's calls (222, 223)": _reset,
    "UPDATE, DELETE_SUBSCRIPTIONGROUP, CHECK_CLIENT_CONFIG": _groups,
    "UNREGISTER_CLIENT": _unregister,
    "refusals have their codes (3, 17, 24, 206)": _refusals,
}
