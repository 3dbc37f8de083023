"""Our client against the stock nameserver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asking import Asker
from stock_servers import BROKER, CLUSTER

from interop.support.cases import expect, expect_true
from rmq.remoting import bodies, headers
from rmq.remoting.bodies import body_crc32, parse_properties
from rmq.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from interop.support.cases import CaseTable
    from rmq.remoting.client import RemotingClient

FOREIGN_CLUSTER = "ForeignCluster"
FOREIGN_BROKER = "broker-foreign"
FOREIGN_ADDRESS = "10.0.0.1:10911"
FOREIGN_TOPIC = "ForeignTopic"


async def run_nameserver_cases(
    table: CaseTable, part: str, client: RemotingClient, nameserver: str, broker: str
) -> None:
    asker = Asker(client, nameserver)

    with table.case(part, "GET_BROKER_CLUSTER_INFO"):
        info = await asker.body(bodies.ClusterInfo, RequestCode.GET_BROKER_CLUSTER_INFO)
        expect("addresses", info.broker_addr_table[BROKER].broker_addrs, {0: broker})
        expect("clusters", info.cluster_addr_table, {CLUSTER: frozenset((BROKER,))})

    with table.case(part, "PUT, GET, list and DELETE_KV_CONFIG"):
        await _kv_cases(asker)

    with table.case(part, "GET_ROUTEINFO_BY_TOPIC"):
        route = await asker.body(
            bodies.TopicRouteData,
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            headers.GetRouteInfoRequest(topic=BROKER),
        )
        expect("brokers", [data.broker_addrs for data in route.broker_datas], [{0: broker}])
        unknown = headers.GetRouteInfoRequest(topic="nowhere")
        await asker.ask(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, unknown, answered=ResponseCode.TOPIC_NOT_EXIST
        )

    with table.case(part, "topic lists (206, 224, 304, 311-313)") as case:
        topics = await asker.body(bodies.TopicList, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        expect_true("the broker's own topic", BROKER in topics.topic_list)
        cluster = headers.GetTopicsByClusterRequest(cluster=CLUSTER)
        of_cluster = await asker.body(bodies.TopicList, RequestCode.GET_TOPICS_BY_CLUSTER, cluster)
        expect("topics of the cluster", of_cluster.topic_list, topics.topic_list)
        for code in (
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
            RequestCode.GET_UNIT_TOPIC_LIST,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        ):
            await asker.body(bodies.TopicList, code)
        case.note(f"{len(topics.topic_list)} topics")

    for compressed in (False, True):
        form = "compressed" if compressed else "plain"
        with table.case(part, f"REGISTER_BROKER, {form}, and what follows from it"):
            await _foreign_broker_cases(asker, compressed=compressed)

    with table.case(part, "WIPE and ADD_WRITE_PERM_OF_BROKER") as case:
        wiped = await asker.header(
            headers.WipeWritePermOfBrokerResponse,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
            headers.WipeWritePermOfBrokerRequest(broker_name=BROKER),
        )
        added = await asker.header(
            headers.AddWritePermOfBrokerResponse,
            RequestCode.ADD_WRITE_PERM_OF_BROKER,
            headers.AddWritePermOfBrokerRequest(broker_name=BROKER),
        )
        expect("topics", wiped.wipe_topic_count, added.add_topic_count)
        case.note(f"{added.add_topic_count} topics")

    with table.case(part, "GET and UPDATE_NAMESRV_CONFIG"):
        await asker.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n")
        config = parse_properties((await asker.ask(RequestCode.GET_NAMESRV_CONFIG)).body)
        expect("orderMessageEnable", config["orderMessageEnable"], "true")

    with table.case(part, "a code it does not know stays unanswered"):
        # Pulling is a broker's business. Nothing is said, so a later answer overtakes.
        channel = await client.channel(nameserver)
        outcomes: list[object] = []
        call = channel.submit(RequestCode.PULL_MESSAGE, on_outcome=outcomes.append, timeout_s=30)
        await asker.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        expect("outcomes", outcomes, [])
        expect_true("the call to be open", not call.is_complete)
        client.close_channel(nameserver)


async def _kv_cases(asker: Asker) -> None:
    namespace, key, value = "interop namespace", "key é", 'value "quoted" 主题'
    await asker.ask(
        RequestCode.PUT_KV_CONFIG,
        headers.PutKvConfigRequest(namespace=namespace, key=key, value=value),
    )
    request = headers.GetKvConfigRequest(namespace=namespace, key=key)
    got = await asker.header(headers.GetKvConfigResponse, RequestCode.GET_KV_CONFIG, request)
    expect("value", got.value, value)
    listed = await asker.body(
        bodies.KVTable,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        headers.GetKvListByNamespaceRequest(namespace=namespace),
    )
    expect("table", listed.table, {key: value})
    await asker.ask(
        RequestCode.DELETE_KV_CONFIG, headers.DeleteKvConfigRequest(namespace=namespace, key=key)
    )
    await asker.ask(RequestCode.GET_KV_CONFIG, request, answered=ResponseCode.QUERY_NOT_FOUND)


async def _foreign_broker_cases(asker: Asker, *, compressed: bool) -> None:
    """Register a broker that does not exist, ask about it, and take it away again."""
    version = bodies.DataVersion(timestamp=1_700_000_000_000, counter=7)
    registration = bodies.RegisterBrokerBody(
        topic_config_serialize_wrapper=bodies.TopicConfigSerializeWrapper(
            topic_config_table={
                FOREIGN_TOPIC: bodies.TopicConfig(
                    topic_name=FOREIGN_TOPIC, read_queue_nums=3, write_queue_nums=5
                )
            },
            data_version=version,
        )
    )
    body = registration.encode_compressed() if compressed else registration.encode()
    answer = await asker.ask(
        RequestCode.REGISTER_BROKER,
        headers.RegisterBrokerRequest(
            broker_name=FOREIGN_BROKER,
            broker_addr=FOREIGN_ADDRESS,
            cluster_name=FOREIGN_CLUSTER,
            ha_server_addr="10.0.0.1:10912",
            broker_id=0,
            compressed=compressed,
            body_crc32=body_crc32(body),
        ),
        body=body,
    )
    expect("has a master", answer.header(headers.RegisterBrokerResponse).master_addr, None)
    route = await asker.body(
        bodies.TopicRouteData,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        headers.GetRouteInfoRequest(topic=FOREIGN_TOPIC),
    )
    (queues,) = route.queue_datas
    expect("queues", (queues.read_queue_nums, queues.write_queue_nums, queues.perm), (3, 5, 6))

    same = await asker.ask(
        RequestCode.QUERY_DATA_VERSION,
        headers.QueryDataVersionRequest(
            broker_name=FOREIGN_BROKER,
            broker_addr=FOREIGN_ADDRESS,
            cluster_name=FOREIGN_CLUSTER,
            broker_id=0,
        ),
        body=version.encode(),
    )
    expect("changed", same.header(headers.QueryDataVersionResponse).changed, False)
    expect("version", bodies.DataVersion.decode(same.body), version)

    await asker.ask(
        RequestCode.UNREGISTER_BROKER,
        headers.UnregisterBrokerRequest(
            broker_name=FOREIGN_BROKER,
            broker_addr=FOREIGN_ADDRESS,
            cluster_name=FOREIGN_CLUSTER,
            broker_id=0,
        ),
    )
    info = await asker.body(bodies.ClusterInfo, RequestCode.GET_BROKER_CLUSTER_INFO)
    expect("clusters", set(info.cluster_addr_table), {CLUSTER})
    await asker.ask(
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        headers.DeleteTopicFromNamesrvRequest(topic=FOREIGN_TOPIC),
    )
