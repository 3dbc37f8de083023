"""Lite pull on a real broker: what is handed out, and what is committed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.client.core.consuming.config import ConsumeFrom, LitePullConfig, LitePullOptions
from rmq.client.core.consuming.subscription_set import Sql
from rmq.client.core.trace import ConsumeCode
from rmq.client.tasks.lite_pull import lite_pulling
from rmq.client.trio.opening import open_client, open_lite_pull_consumer
from rmq.errors import ConfigError, ResponseError
from tests.client.cluster_kit import cluster
from tests.client.pull_kit import TOPIC, bodies, numbered, poll_all, put, queue, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmq.client.core.received import ReceivedMessage
    from rmq.client.core.trace import Sent, TransactionEnded

FIRST = ConsumeFrom.FIRST


def test_options_are_those_of_the_configuration() -> None:
    fields = {field.name for field in dataclasses.fields(LitePullConfig)}
    assert set(LitePullOptions.__annotations__) == fields - {"group"}


# --- what is handed out ----------------------------------------------------------------------


async def test_what_is_subscribed_to_is_handed_out_in_the_order_of_its_queues(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=2)
        await put(it, queue(0), numbered(50))
        await put(it, queue(1), numbered(50, first=50))
        async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as consumer:
            await consumer.subscribe(TOPIC)
            assert consumer.assignment == (queue(0), queue(1))
            messages = await poll_all(consumer, 100, max_messages=7)
            for number in (0, 1):
                of_queue = [m for m in messages if m.queue == queue(number)]
                assert bodies(of_queue) == numbered(50, first=50 * number)
                assert [m.queue_offset for m in of_queue] == list(range(50))
            await put(it, queue(1), ["later"])
            assert bodies(await consumer.poll(10)) == ["later"]
            assert await consumer.poll(0.01) == []


async def test_messages_can_be_iterated_over(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        await put(it, queue(), numbered(200))
        async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as consumer:
            await consumer.subscribe(TOPIC)
            seen: list[str] = []
            with trio.fail_after(20):
                async for message in consumer:
                    seen.append(message.body.decode())
                    if len(seen) == 150:
                        break
            assert seen == numbered(150)
        async with open_lite_pull_consumer(it.nameserver, "g") as consumer:
            await consumer.subscribe(TOPIC)
            assert bodies(await poll_all(consumer, 50)) == numbered(50, first=150)


async def test_tags_are_filtered_and_what_is_passed_over_is_committed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        await put(it, queue(), ["a"], tag="paid")
        await put(it, queue(), ["b"], tag="lost")
        await put(it, queue(), ["c"], tag="refunded")
        await put(it, queue(), numbered(5), tag="lost")
        async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as consumer:
            await consumer.subscribe(TOPIC, "paid || refunded")
            assert bodies(await poll_all(consumer, 2)) == ["a", "c"]

            async def has_passed() -> bool:
                await consumer.poll(0.01)
                return await consumer.position(queue()) == 8

            with trio.fail_after(20):
                while not await has_passed():
                    pass
            await consumer.commit()
            assert await consumer.committed(queue()) == 8


async def test_another_expression_holds_for_what_was_not_handed_out_yet(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        for text in numbered(6):
            await put(it, queue(), [text], tag="even" if int(text[1:]) % 2 == 0 else "odd")
        async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as consumer:
            await consumer.subscribe(TOPIC, "even")
            assert bodies(await poll_all(consumer, 1, max_messages=1)) == ["m0"]
            await consumer.subscribe(TOPIC, "odd")
            assert bodies(await poll_all(consumer, 3)) == ["m1", "m3", "m5"]


async def test_the_same_expression_again_changes_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        await put(it, queue(), numbered(20))
        async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as consumer:
            await consumer.subscribe(TOPIC)
            await until(lambda: consumer.statistics().buffered_messages == 20)
            await consumer.subscribe(TOPIC, "*")
            assert consumer.statistics().buffered_messages == 20


async def test_conditions_are_filtered_by_brokers_that_can(tmp_path: Path) -> None:
    async with cluster(tmp_path, enablePropertyFilter="true") as it:
        await it.create_topic(TOPIC, queues=1)
        for amount in range(6):
            await put(it, queue(), [f"m{amount}"], properties={"amount": str(amount)})
        async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as consumer:
            await consumer.subscribe(TOPIC, Sql("amount > 3"))
            assert bodies(await poll_all(consumer, 2)) == ["m4", "m5"]
            with pytest.raises(ResponseError, match="malformed SQL"):
                await consumer.subscribe(TOPIC, Sql("amount >"))


async def test_a_broker_that_cannot_filter_by_conditions_is_found_out_when_subscribing(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        async with open_lite_pull_consumer(it.nameserver, "g") as consumer:
            with pytest.raises(ResponseError, match="SQL92"):
                await consumer.subscribe(TOPIC, Sql("amount > 3"))
            assert consumer.assignment == ()


async def test_a_new_group_starts_where_it_is_told(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        await put(it, queue(), numbered(3))
        for where, expected in ((FIRST, 0), (ConsumeFrom.TIMESTAMP, 0)):
            async with open_lite_pull_consumer(
                it.nameserver, f"g-{where.value}", consume_from=where
            ) as consumer:
                await consumer.subscribe(TOPIC)
                assert await consumer.position(queue()) == expected


# --- what is committed -----------------------------------------------------------------------


async def test_what_was_only_read_ahead_is_not_committed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        await put(it, queue(), numbered(100))
        async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as consumer:
            await consumer.subscribe(TOPIC)
            assert bodies(await poll_all(consumer, 10, max_messages=10)) == numbered(10)
            await until(lambda: consumer.statistics().buffered_messages == 90)
            assert await consumer.position(queue()) == 10
            await consumer.commit()
            assert await consumer.committed(queue()) == 10
            await consumer.poll(5, 7)
        async with open_lite_pull_consumer(it.nameserver, "g") as consumer:
            await consumer.subscribe(TOPIC)
            assert await consumer.position(queue()) == 17, "leaving the block is coming back"
            assert bodies(await poll_all(consumer, 83)) == numbered(83, first=17)


async def test_who_fails_gets_the_last_messages_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        await put(it, queue(), numbered(10))

        async def fail() -> None:
            async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as consumer:
                await consumer.subscribe(TOPIC)
                assert bodies(await consumer.poll(5, 4)) == numbered(4)
                assert bodies(await consumer.poll(5, 3)) == numbered(3, first=4)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        async with open_lite_pull_consumer(it.nameserver, "g") as consumer:
            await consumer.subscribe(TOPIC)
            assert bodies(await poll_all(consumer, 6)) == numbered(6, first=4)


async def test_who_is_cancelled_gets_the_last_messages_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        await put(it, queue(), numbered(10))
        with trio.CancelScope() as scope:
            async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as consumer:
                await consumer.subscribe(TOPIC)
                await consumer.poll(5, 4)
                await consumer.poll(5, 3)
                scope.cancel()
                await trio.sleep_forever()
        async with open_lite_pull_consumer(it.nameserver, "g") as consumer:
            await consumer.subscribe(TOPIC)
            assert await consumer.position(queue()) == 4


async def test_commits_happen_by_themselves(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=2)
        await put(it, queue(), numbered(10))
        async with open_lite_pull_consumer(
            it.nameserver, "g", consume_from=FIRST, commit_interval_s=1
        ) as consumer:
            await consumer.subscribe(TOPIC)
            await poll_all(consumer, 4, max_messages=4)
            await consumer.poll(5, 4)
            offsets = it.brokers["broker-a"].offsets
            await until(lambda: offsets.offsets("g", TOPIC) == {0: 4, 1: 0})


async def test_who_commits_himself_is_not_committed_for(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        await put(it, queue(), numbered(10))
        async with open_lite_pull_consumer(
            it.nameserver, "g", consume_from=FIRST, commits_itself=False, commit_interval_s=1
        ) as consumer:
            await consumer.subscribe(TOPIC)
            await poll_all(consumer, 10)
            await consumer.commit({queue(): 3})
            await consumer.poll(1.2)
        async with open_lite_pull_consumer(it.nameserver, "g") as consumer:
            await consumer.subscribe(TOPIC)
            assert await consumer.position(queue()) == 3
            with pytest.raises(ConfigError, match="-1 of"):
                await consumer.commit({queue(): -1})


async def test_what_is_polled_is_traced(tmp_path: Path) -> None:
    notes: list[tuple[str, list[str]]] = []

    class Notes:
        def sent(self, event: Sent) -> None: ...

        def transaction_ended(self, event: TransactionEnded) -> None: ...

        def consuming(
            self, group: str, messages: Sequence[ReceivedMessage], *, started_at_ms: int
        ) -> str:
            notes.append(("consuming", bodies(messages)))
            return f"id-{len(notes)}"

        def consumed(
            self,
            group: str,
            messages: Sequence[ReceivedMessage],
            *,
            request_id: str,
            ended_at_ms: int,
            took_ms: int,
            code: ConsumeCode,
        ) -> None:
            assert code is ConsumeCode.SUCCESS
            notes.append((request_id, bodies(messages)))

    async with cluster(tmp_path) as it, open_client(it.nameserver) as client:
        await it.create_topic(TOPIC, queues=1)
        await put(it, queue(), numbered(2))
        config = LitePullConfig(group="g", consume_from=FIRST)
        async with lite_pulling(client, config, tracer=Notes()) as consumer:
            await consumer.subscribe(TOPIC)
            await consumer.poll(5, 1)
            assert notes == [("consuming", ["m0"])]
            async for _ in consumer:
                break
            assert notes[1:] == [("id-1", ["m0"]), ("consuming", ["m1"])]
        assert notes[3:] == [("id-3", ["m1"])]
