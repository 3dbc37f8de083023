"""Lite pull among others: shares of queues, what brokers are told, and what operators ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rmq.client.core.config import ClientConfig
from rmq.client.core.consuming.config import ConsumeFrom, LitePullConfig, MessageModel
from rmq.client.tasks.lite_pull import lite_pulling
from rmq.client.trio.opening import open_client, open_lite_pull_consumer
from rmq.errors import CorruptStoreError
from rmq.remoting.bodies import (
    ConsumerRunningInfo,
    ConsumeType,
    GetConsumerStatusBody,
)
from rmq.remoting.client import open_client as open_peer
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    ResetOffsetRequest,
)
from tests.client.cluster_kit import cluster
from tests.client.pull_kit import (
    TOPIC,
    bodies,
    numbered,
    poll_all,
    put,
    queue,
    scripted_broker,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmq.client.tasks.lite_reader import Change
    from rmq.model.queues import MessageQueue

FIRST = ConsumeFrom.FIRST


async def test_members_share_queues_and_take_over_from_who_leaves(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=4)
        changes: list[Change] = []
        async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as first:
            await first.subscribe(TOPIC, on_change=changes.append)
            assert len(first.assignment) == 4
            async with open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as second:
                await second.subscribe(TOPIC)
                await until(lambda: len(first.assignment) == 2)
                await until(lambda: len(second.assignment) == 2)
                assert {*first.assignment, *second.assignment} == {queue(n) for n in range(4)}
                lost = second.assignment
                for number in range(4):
                    await put(it, queue(number), [f"q{number}"])
                mine = bodies(await poll_all(first, 2)) + bodies(await poll_all(second, 2))
                assert sorted(mine) == ["q0", "q1", "q2", "q3"]
            await until(lambda: len(first.assignment) == 4)
            for number in range(4):
                await put(it, queue(number), [f"again{number}"])
            assert sorted(bodies(await poll_all(first, 4))) == [f"again{n}" for n in range(4)]
        assert [(len(c.queues), len(c.added), len(c.removed)) for c in changes] == [
            (4, 4, 0),
            (2, 0, 2),
            (4, 2, 0),
        ]
        assert changes[1].removed == changes[2].added == lost


async def test_no_message_is_lost_while_members_come_and_go(tmp_path: Path) -> None:
    count, queues = 3_000, 4
    seen: set[str] = set()
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=queues)

        async def consume(name: str, crash_after: int | None) -> None:
            got = 0
            with trio.CancelScope() as scope:
                async with open_lite_pull_consumer(
                    it.nameserver, "g", consume_from=FIRST, commit_interval_s=1
                ) as consumer:
                    await consumer.subscribe(TOPIC)
                    while len(seen) < count:
                        messages = await consumer.poll(0.1, 20)
                        if crash_after is not None and got > crash_after:
                            # These were handed out, and nothing was done with them.
                            scope.cancel()
                            await trio.sleep_forever()
                        seen.update(bodies(messages))
                        got += len(messages)

        async def produce() -> None:
            for first in range(0, count, 250):
                await put(it, queue(first // 250 % queues), numbered(250, first=first))

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce)
                nursery.start_soon(consume, "stays", None)
                for crash_after in (100, 300, 500):
                    nursery.start_soon(consume, f"crashes after {crash_after}", crash_after)
        assert seen == set(numbered(count))


async def test_a_broken_strategy_leaves_everything_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        name = "BROKEN"

        def __call__(
            self,
            group: str,
            client_id: str,
            queues: Sequence[MessageQueue],
            client_ids: Sequence[str],
        ) -> list[MessageQueue]:
            raise ZeroDivisionError

    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        async with open_lite_pull_consumer(it.nameserver, "g", strategy=Broken()) as consumer:
            await consumer.subscribe(TOPIC)
            assert consumer.assignment == ()
        assert "failed; queues stay as they are" in caplog.text


# --- broadcasts ------------------------------------------------------------------------------


def broadcast(folder: Path) -> LitePullConfig:
    return LitePullConfig(
        group="g",
        message_model=MessageModel.BROADCASTING,
        consume_from=FIRST,
        offset_folder=folder,
    )


async def test_everybody_gets_a_broadcast_and_keeps_his_own_place(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=2)
        await put(it, queue(0), numbered(3))
        config = broadcast(tmp_path / "offsets")
        for round_number in range(2):
            for name in ("DEFAULT", "two"):
                client_config = ClientConfig(
                    nameservers=it.nameserver, instance_name=name, local_address="127.0.0.1"
                )
                async with (
                    open_client(client_config, is_stream=True) as client,
                    lite_pulling(client, config) as consumer,
                ):
                    await consumer.subscribe(TOPIC)
                    assert consumer.assignment == (queue(0), queue(1))
                    if round_number == 0:
                        assert bodies(await poll_all(consumer, 3)) == numbered(3)
                        await consumer.commit()
                    assert await consumer.committed(queue(0)) == 3
                    assert await consumer.position(queue(0)) == 3
        path = tmp_path / "offsets" / "127.0.0.1@DEFAULT@STREAM" / "g" / "offsets.json"
        assert '"queueId":0' in path.read_text()
        assert it.brokers["broker-a"].offsets.offsets("g", TOPIC) == {}


async def test_a_broken_file_of_offsets_keeps_the_consumer_from_starting(tmp_path: Path) -> None:
    client_config = ClientConfig(
        nameservers="127.0.0.1:1", instance_name="one", local_address="127.0.0.1"
    )
    path = tmp_path / "127.0.0.1@one@STREAM" / "g" / "offsets.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    async with open_client(client_config, is_stream=True) as client:
        with pytest.raises(CorruptStoreError, match="cannot be understood"):
            async with lite_pulling(client, broadcast(tmp_path)):
                pass


# --- what brokers are told -------------------------------------------------------------------


async def test_brokers_see_a_stock_lite_pull_consumer() -> None:
    async with scripted_broker(queues=2) as it:
        it.offsets[0] = 5
        async with open_lite_pull_consumer(it.address, "g") as consumer:
            await consumer.subscribe(TOPIC, "a || b")
            await until(lambda: len(it.asked_for(RequestCode.PULL_MESSAGE)) == 2)
            assert await consumer.position(queue(1)) == it.max_offset
        assert all(asked.fields["ReqT"] == "0" for asked in it.asked)
        client_id = consumer.client.client_id
        assert client_id.endswith("@STREAM")
        (first, *_) = it.heartbeats()
        assert first.client_id == client_id
        (data,) = first.consumer_data_set
        assert data.consume_type is ConsumeType.CONSUME_ACTIVELY
        assert data.message_model is MessageModel.CLUSTERING
        assert data.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
        (told,) = data.subscription_data_set
        assert (told.topic, told.sub_string) == (TOPIC, "a || b")
        assert told.tags_set == frozenset("ab")
        pulls = sorted(it.asked_for(RequestCode.PULL_MESSAGE), key=lambda a: a.fields["queueId"])
        assert pulls[0].fields == {
            "consumerGroup": "g",
            "topic": TOPIC,
            "queueId": "0",
            "queueOffset": "5",
            "maxMsgNums": "10",
            "sysFlag": str(0x16),
            "commitOffset": "0",
            "suspendTimeoutMillis": "20000",
            "subscription": "a || b",
            "subVersion": "0",
            "expressionType": "TAG",
            "bname": "broker-a",
            "ReqT": "0",
        }
        commits = it.asked_for(RequestCode.UPDATE_CONSUMER_OFFSET)
        assert all(commit.is_oneway for commit in commits)
        assert it.offsets == {0: 5, 1: it.max_offset}
        codes = [asked.code for asked in it.asked]
        assert codes.index(RequestCode.HEART_BEAT) < codes.index(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP
        )
        assert codes[-1] == RequestCode.UNREGISTER_CLIENT
        assert it.asked[-1].fields["consumerGroup"] == "g"


async def test_a_group_that_does_not_know_us_yet_is_asked_again() -> None:
    async with scripted_broker() as it:
        it.forgets_heartbeats = True
        it.members = ("somebody-else",)
        async with open_lite_pull_consumer(it.address, "g") as consumer:
            await consumer.subscribe(TOPIC)
            assert consumer.assignment == ()
            it.forgets_heartbeats = False
            it.members = ()
            await until(lambda: consumer.assignment == (queue(),))


# --- what operators ask ----------------------------------------------------------------------


async def test_operators_see_and_move_the_consumer(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic(TOPIC, queues=1)
        await put(it, queue(), numbered(5))
        async with (
            open_lite_pull_consumer(it.nameserver, "g", consume_from=FIRST) as consumer,
            open_peer() as peer,
        ):
            await consumer.subscribe(TOPIC)
            await poll_all(consumer, 5)
            await consumer.commit()
            client_id = consumer.client.client_id
            answer = await peer.request(
                it.address(),
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                GetConsumerRunningInfoRequest(consumer_group="g", client_id=client_id),
            )
            info = ConsumerRunningInfo.decode(answer.body)
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
            assert info.properties["PROP_NAMESERVER_ADDR"] == f"{it.nameserver};"
            assert [data.topic for data in info.subscription_set] == [TOPIC]
            assert info.mq_table[queue()].commit_offset == 5

            answer = await peer.request(
                it.address(),
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                GetConsumerStatusRequest(topic=TOPIC, group="g"),
            )
            status = GetConsumerStatusBody.decode(answer.body)
            assert status.consumer_table == {client_id: {queue(): 5}}

            answer = await peer.request(
                it.address(),
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                ResetOffsetRequest(topic=TOPIC, group="g", timestamp=0, is_force=True),
            )
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            again = await poll_all(consumer, 5)
            assert bodies(again) == numbered(5)

            answer = await peer.request(
                it.address(),
                RequestCode.CONSUME_MESSAGE_DIRECTLY,
                ConsumeMessageDirectlyRequest(
                    consumer_group="g",
                    client_id=client_id,
                    msg_id=again[0].offset_message_id,
                ),
            )
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "it has no listener" in str(answer.remark)
