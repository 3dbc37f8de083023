"""Operators' calls, with both clients."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from rmq.client.core.messages import Message
from rmq.errors import ConnectFailedError, NoRouteError, ResponseError
from rmq.remoting.codes import ResponseCode
from tests.client.blocking.scripted_cluster import scripted_cluster

if TYPE_CHECKING:
    from tests.client.blocking.cluster_process import ProcessCluster
    from tests.client.contract.sides import Side


def test_a_topic_is_made_looked_at_and_deleted(side: Side, real_cluster: ProcessCluster) -> None:
    topic = f"Admin{uuid.uuid4().hex[:8]}"
    real_cluster.create_topic(topic, queues=2)
    with side.admin(real_cluster.nameserver) as admin:
        assert topic in admin("list_topics")
        route = admin("topic_route", topic)
        assert [broker.broker_name for broker in route.broker_datas] == ["broker-a"]
        with side.producer(real_cluster.nameserver) as producer:
            producer.send_many([Message(topic, b"%d" % number) for number in range(10)])
        stats = admin("topic_stats", topic)
        assert (stats.count, stats.failures) == (10, ())
        admin("delete_topic", topic)
        assert topic not in admin("list_topics")


def test_what_is_not_there_is_a_typed_error(side: Side, real_cluster: ProcessCluster) -> None:
    with side.admin(real_cluster.nameserver) as admin:
        with pytest.raises((NoRouteError, ResponseError)):
            admin("topic_route", "NoSuchTopic")
        with pytest.raises(ConnectFailedError):
            admin("broker_config", "127.0.0.1:1")


def test_a_refusal_is_an_error_with_its_code_and_remark(side: Side) -> None:
    with scripted_cluster("a") as cluster, side.admin(cluster.nameserver) as admin:
        cluster["a"].play = cluster["a"].refuse(ResponseCode.NO_PERMISSION)
        with pytest.raises(ResponseError) as caught:
            admin("broker_config", cluster["a"].address)
        assert (caught.value.code, caught.value.remark) == (ResponseCode.NO_PERMISSION, "says a")
