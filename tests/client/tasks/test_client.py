"""The shared client: routes, heartbeats, members, and what it does when nobody answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rmq.client.tasks.pull_consumer import pulling
from rmq.client.trio.opening import open_client
from rmq.errors import ClientClosedError, ConfigError, NoNameserverError, NoRouteError
from rmq.remoting.bodies import ProducerData
from tests.client.cluster_kit import cluster

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rmq.client.core.routes import TopicRoute


class QuietProducer:
    """A member that sends nothing."""

    def __init__(self, group: str, *topics: str) -> None:
        self.group = group
        self.changed: list[str] = []
        self._topics = topics

    def topics(self) -> Iterable[str]:
        return self._topics

    def presence(self) -> ProducerData:
        return ProducerData(group_name=self.group)

    def route_changed(self, route: TopicRoute) -> None:
        self.changed.append(route.topic)


async def test_a_route_is_found_and_kept(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_client(it.nameserver) as client:
        await it.create_topic("Orders", queues=3)
        route = await client.route("Orders")
        assert [queue.queue_id for queue in route.writable] == [0, 1, 2]
        assert route.master_of("broker-a") == it.address()
        assert await client.route("Orders") is route


async def test_a_topic_that_a_send_would_create_has_the_route_of_the_template(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, open_client(it.nameserver) as client:
        with pytest.raises(NoRouteError, match="no broker has it") as caught:
            await client.route("New")
        assert caught.value.topic == "New"
        assert caught.value.hint is not None
        route = await client.route_to_send("New", 4)
        assert [(queue.topic, queue.queue_id) for queue in route.writable] == [
            ("New", number) for number in range(4)
        ]


async def test_members_are_known_to_brokers_until_they_leave(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_client(it.nameserver) as client:
        await it.create_topic("Orders")
        member = QuietProducer("orders", "Orders")
        client.join(member)
        await client.route("Orders")
        assert member.changed == ["Orders"]
        await client.beat()
        known = it.brokers["broker-a"].clients
        assert len(known.producer_channels("orders")) == 1
        assert known.find_producer(client.client_id) is not None
        await client.leave(member)
        assert known.producer_channels("orders") == ()


async def test_nobody_there_is_said_with_what_was_tried() -> None:
    async with open_client("127.0.0.1:1;127.0.0.1:2") as client:
        with pytest.raises(NoNameserverError) as caught:
            await client.route("Orders")
        assert set(caught.value.attempts) == {"127.0.0.1:1", "127.0.0.1:2"}
        assert "cannot connect to 127.0.0.1:1" in str(caught.value)


async def test_a_closed_client_says_so() -> None:
    async with open_client("127.0.0.1:1") as client:
        pass
    with pytest.raises(ClientClosedError, match=client.client_id):
        await client.route("Orders")


async def test_two_consumers_of_a_group_need_clients_of_their_own() -> None:
    async with open_client("127.0.0.1:1") as client, pulling(client, "readers"):
        with pytest.raises(ConfigError, match="has a consumer of group readers already"):
            async with pulling(client, "readers"):
                pass
        async with pulling(client, "others"):
            pass


async def test_a_broker_that_was_restarted_is_told_of_consumers_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_client(it.nameserver) as client:
        await it.create_topic("Orders")
        async with pulling(client, "readers") as consumer:
            (queue, *_) = await consumer.fetch_queues("Orders")
            await client.beat()
            await it.stop()
            await it.start()
            known = it.brokers["broker-a"].clients
            assert known.consumer_group("readers") is None
            assert await consumer.max_offset(queue) == 0
            with trio.fail_after(5):
                while known.consumer_group("readers") is None:
                    await trio.testing.wait_all_tasks_blocked(0.01)
