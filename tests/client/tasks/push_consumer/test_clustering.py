"""Members that share the messages of their topics: starting, sharing, coming and going."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rmq.client.core.consuming.subscription_set import Sql
from rmq.client.tasks.push_consumer import consuming
from rmq.client.trio.opening import open_client, open_push_consumer
from rmq.errors import ClientClosedError, ConfigError, NoNameserverError, ResponseError
from tests.client.cluster_kit import cluster
from tests.client.pull_kit import bodies, numbered, put, queue, until
from tests.client.push_kit import (
    GROUP,
    Collector,
    committed,
    consumer,
    die,
    members,
    quick,
    quick_client,
    wait_shared,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmq.client.core.received import ReceivedMessage


# --- alone -----------------------------------------------------------------------------------


async def test_all_messages_come_and_the_next_consumer_goes_on_behind_them(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=4)
        for number in range(4):
            await put(it, queue(number), numbered(100, first=100 * number))
        first = Collector()
        async with consumer(it, first) as running:
            await first.wait(*numbered(400))
            assert len(running.queues) == 5
            assert running.queues[0].topic == "%RETRY%readers"
            assert members(it) == (running.client.client_id,)
        assert first.repeated == 0
        assert committed(it) == dict.fromkeys(range(4), 100)
        assert members(it) == ()
        second = Collector()
        async with consumer(it, second):
            await put(it, queue(1), ["later"])
            await second.wait("later")
        assert second.bodies == ["later"]
        with pytest.raises(ClientClosedError, match=GROUP):
            await running.commit()


async def test_a_topic_that_is_missing_is_told_of_once_and_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as it:
        listener = Collector()
        async with consumer(it, listener, rebalance_s=0.01) as running:
            await until(lambda: running._rebalancer.rounds > 5)
            await it.create_topic("Orders", queues=1)
            await put(it, queue(0), ["first"])
            await listener.wait("first")
    told = [each.getMessage() for each in caplog.records if "waits for its topic" in each.message]
    assert len(told) == 1
    assert "topic Orders: no broker has it" in told[0]
    assert "(create it," in told[0]


async def test_batches_are_given_to_listeners_that_want_them(tmp_path: Path) -> None:
    sizes: list[int] = []

    async def listener(messages: Sequence[ReceivedMessage]) -> None:
        sizes.append(len(messages))

    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        await put(it, queue(), numbered(320))
        async with consumer(it, listener, batch_messages_max=32):
            await until(lambda: sum(sizes) == 320)
        assert max(sizes) == 32
        assert len(sizes) < 60


async def test_only_messages_with_the_tags_come(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        # The first two have the same hash, so that only the consumer can tell them apart.
        await put(it, queue(), ["wanted"], tag="Aa")
        await put(it, queue(), ["collision"], tag="BB")
        await put(it, queue(), ["other"], tag="C")
        await put(it, queue(), ["wanted too"], tag="D")
        await put(it, queue(), ["without"])
        seen = Collector()
        async with consumer(it, seen, {"Orders": "Aa || D"}, offset_commit_s=0.05):
            await seen.wait("wanted", "wanted too")
            # What is not for it counts as finished.
            await until(lambda: committed(it).get(0) == 5)
        assert seen.bodies == ["wanted", "wanted too"]


async def test_conditions_on_properties_are_for_brokers_that_have_them(tmp_path: Path) -> None:
    async with cluster(tmp_path, enablePropertyFilter="true") as it:
        await it.create_topic("Orders", queues=1)
        for amount in (3, 30, 7, 70):
            await put(it, queue(), [f"m{amount}"], properties={"amount": str(amount)})
        seen = Collector()
        async with consumer(it, seen, {"Orders": Sql("amount > 10")}):
            await seen.wait("m30", "m70")
        assert seen.bodies == ["m30", "m70"]
        with pytest.raises(ResponseError, match="CHECK_CLIENT_CONFIG"):
            async with consumer(it, seen, {"Orders": Sql("amount >")}):
                pytest.fail("that is no condition")
        assert members(it) == ()


async def test_a_broker_that_cannot_filter_by_conditions_says_so(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        with pytest.raises(ResponseError, match="CHECK_CLIENT_CONFIG"):
            async with consumer(it, Collector(), {"Orders": Sql("amount > 10")}):
                pytest.fail("the broker cannot do that")
        assert members(it) == ()


async def test_a_topic_that_is_not_there_yet_is_found_later(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        seen = Collector()
        async with consumer(it, seen, ["Orders", "Unborn"]):
            await put(it, queue(), ["here"])
            await seen.wait("here")
            await it.create_topic("Unborn", queues=2)
            await put(it, queue(1, topic="Unborn"), ["born"])
            await seen.wait("born")


async def test_topics_come_and_go_while_it_runs(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        await it.create_topic("Prices", queues=1)
        await put(it, queue(topic="Prices"), ["price"], tag="x")
        seen = Collector()
        async with consumer(it, seen) as running:
            await running.subscribe("Prices", "x || y")
            await seen.wait("price")
            await running.unsubscribe("Prices")
            await until(lambda: {it.topic for it in running.queues} == {"Orders", "%RETRY%readers"})
            assert committed(it, "Prices") == {0: 1}
            await put(it, queue(topic="Prices"), ["unseen"], tag="x")
            await put(it, queue(), ["order"])
            await seen.wait("order")
            with pytest.raises(ConfigError):
                await running.subscribe("no such name!")
            with pytest.raises(ResponseError, match="CHECK_CLIENT_CONFIG"):
                await running.subscribe("Orders", Sql("this broker cannot"))
            await put(it, queue(), ["as before"])
            await seen.wait("as before")
        assert seen.bodies == ["price", "order", "as before"]


async def test_more_queues_are_found(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        seen = Collector()
        async with consumer(it, seen) as running:
            await put(it, queue(), ["first"])
            await seen.wait("first")
            await it.create_topic("Orders", queues=3)
            await put(it, queue(2), ["third"])
            await seen.wait("third")
            assert len(running.queues) == 4


async def test_paused_it_pulls_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        seen = Collector()
        async with consumer(it, seen) as running:
            await put(it, queue(), ["before"])
            await seen.wait("before")
            running.pause()
            assert running.is_paused
            # A pull waits at the broker, and is answered with this.
            await put(it, queue(), ["while"])
            await trio.sleep(0.2)
            assert seen.bodies == ["before"]
            running.resume()
            await seen.wait("while")
            assert not running.is_paused


async def test_offsets_are_stored_again_and_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        await put(it, queue(), numbered(10))
        seen = Collector()
        async with consumer(it, seen, offset_commit_s=0.05):
            await until(lambda: committed(it).get(0) == 10)
        async with consumer(it, seen, offset_commit_s=60.0) as running:
            await put(it, queue(), ["next"])
            await seen.wait("next")
            await running.commit()
            assert committed(it) == {0: 11}


# --- what cannot be --------------------------------------------------------------------------


async def test_no_nameserver_is_said_at_once() -> None:
    with pytest.raises(NoNameserverError, match=r"127\.0\.0\.1:1"):
        async with open_push_consumer("127.0.0.1:1", GROUP, "Orders", Collector()):
            pytest.fail("nobody is there")


async def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_client(it.nameserver) as client:
        with pytest.raises(ConfigError, match="listener"):
            async with consuming(client, quick(), "Orders", None):  # type: ignore[arg-type]
                pytest.fail("there is no listener")
        with pytest.raises(ConfigError, match="no topic"):
            async with consuming(client, quick(), [], Collector()):
                pytest.fail("there is no topic")


# --- several ---------------------------------------------------------------------------------


async def test_two_members_share_queues_and_one_gets_them_all_when_the_other_leaves(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=4)
        one, two = Collector(), Collector()
        async with consumer(it, one, offset_commit_s=0.05) as first:
            await until(lambda: len(first.queues) == 5)
            async with consumer(it, two, offset_commit_s=0.05) as second:
                await wait_shared(5, first, second)
                assert sum(each.topic == "Orders" for each in second.queues) == 2
                for number in range(4):
                    await put(it, queue(number), numbered(50, first=50 * number))
                await until(lambda: len(one.messages) + len(two.messages) >= 200)
                assert len(one.messages) == len(two.messages) == 100
            await until(lambda: len(first.queues) == 5)
            for number in range(4):
                await put(it, queue(number), numbered(50, first=200 + 50 * number))
            await one.wait(*numbered(200, first=200))
        assert sorted(one.bodies + two.bodies) == sorted(numbered(400))
        assert committed(it) == dict.fromkeys(range(4), 100)


async def test_a_member_that_dies_leaves_nothing_undone(tmp_path: Path) -> None:
    taken: list[str] = []

    async def hang(messages: Sequence[ReceivedMessage]) -> None:
        taken.extend(bodies(messages))
        await trio.sleep_forever()

    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=4)
        one = Collector()
        async with consumer(it, one) as first:
            async with consumer(it, hang, close_wait_s=0.0) as second:
                await wait_shared(5, first, second)
                for number in range(4):
                    await put(it, queue(number), numbered(50, first=50 * number))
                await until(lambda: len(one.messages) == 100 and taken)
                await die(second)
            await one.wait(*numbered(200))
            await put(it, queue(3), ["after"])
            await one.wait("after")
            assert one.repeated == 0


async def test_members_that_come_and_go_under_load_lose_nothing(tmp_path: Path) -> None:
    seen = Collector()
    total = 1_200

    async def produce(it: object) -> None:
        for number in range(0, total, 20):
            await put(it, queue(number // 20 % 6), numbered(20, first=number))  # type: ignore[arg-type]

    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=6)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce, it)
            async with consumer(it, seen, offset_commit_s=0.05):
                for _ in range(4):
                    async with consumer(it, seen, offset_commit_s=0.05) as other:
                        await until(lambda other=other: other.queues)  # type: ignore[misc]
                        await trio.sleep(0.1)
                await seen.wait(*numbered(total))
        assert set(seen.bodies) == set(numbered(total))
        # Each change of owner may repeat what was under way.
        assert len(seen.bodies) - total < 400


async def test_groups_on_one_client_do_not_mix(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_client(quick_client(it)) as client:
        await it.create_topic("Orders", queues=2)
        await put(it, queue(), numbered(10))
        one, two = Collector(), Collector()
        async with (
            consuming(client, quick("one"), "Orders", one),
            consuming(client, quick("two"), "Orders", two),
        ):
            await one.wait(*numbered(10))
            await two.wait(*numbered(10))
        assert one.bodies == two.bodies == numbered(10)
        assert bodies(one.messages) == numbered(10)


async def test_two_brokers_one_dies_and_comes_back(tmp_path: Path) -> None:
    async with cluster(tmp_path, ("broker-a", "broker-b")) as it:
        await it.create_topic("Orders", queues=2, broker="broker-a")
        await it.create_topic("Orders", queues=2, broker="broker-b")
        seen = Collector()
        async with consumer(it, seen, pull_pause_s=0.1, rebalance_s=0.5) as running:
            await put(it, queue(0, broker="broker-a"), ["a1"])
            await put(it, queue(0, broker="broker-b"), ["b1"])
            await seen.wait("a1", "b1")
            await running.commit()
            await it.kill("broker-b")
            await put(it, queue(1, broker="broker-a"), ["a2"])
            await seen.wait("a2")
            await it.start("broker-b")
            await put(it, queue(1, broker="broker-b"), ["b2"])
            await seen.wait("b2")
        assert sorted(seen.bodies) == ["a1", "a2", "b1", "b2"]


async def test_brokers_hear_of_a_changed_share(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=2)

        def version() -> int:
            group = it.brokers["broker-a"].clients.consumer_group(GROUP)
            data = None if group is None else group.subscription("Orders")
            return 0 if data is None else data.sub_version

        async with consumer(it, Collector()) as first:
            await until(lambda: len(first.queues) == 3)
            before = version()
            assert before > 0
            async with consumer(it, Collector()) as second:
                await wait_shared(3, first, second)
                await until(lambda: version() > before)
