"""Members that each get all messages, and keep their offsets in a file of their machine."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rmq.client.core.consuming.config import ConsumeFrom, MessageModel
from rmq.client.core.consuming.results import ConsumeResult
from rmq.errors import CorruptStoreError
from rmq.model.offsets import QueueOffset
from tests.client.cluster_kit import cluster
from tests.client.pull_kit import numbered, put, queue, until
from tests.client.push_kit import GROUP, Collector, committed, consumer, members, quick_client

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from rmq.client.tasks.listener_pool import Listener
    from rmq.client.tasks.push_consumer import PushConsumer
    from tests.client.cluster_kit import Cluster


def receiver(
    it: Cluster,
    listener: Listener,
    *,
    name: str = "DEFAULT",
    consume_from: ConsumeFrom = ConsumeFrom.FIRST,
    consume_from_ms: int | None = None,
    is_orderly: bool = False,
) -> AbstractAsyncContextManager[PushConsumer]:
    return consumer(
        it,
        listener,
        client=replace(quick_client(it), instance_name=name, local_address="10.0.0.7"),
        message_model=MessageModel.BROADCASTING,
        offset_folder=it.root / "offsets",
        consume_from=consume_from,
        consume_from_ms=consume_from_ms,
        is_orderly=is_orderly,
    )


@pytest.mark.parametrize("is_orderly", [False, True], ids=["concurrent", "orderly"])
async def test_every_member_gets_everything(tmp_path: Path, is_orderly: bool) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=3)
        one, two = Collector(), Collector()
        async with (
            receiver(it, one, name="one", is_orderly=is_orderly) as first,
            receiver(it, two, name="two", is_orderly=is_orderly) as second,
        ):
            for number in range(3):
                await put(it, queue(number), numbered(50, first=50 * number))
            await one.wait(*numbered(150))
            await two.wait(*numbered(150))
            assert first.queues == second.queues
            # There is no retry topic: nothing is sent back.
            assert {each.topic for each in first.queues} == {"Orders"}
            assert len(members(it)) == 2
            assert len(it.brokers["broker-a"].locks) == 0
        assert (one.repeated, two.repeated) == (0, 0)
        # The group has no offset at the broker.
        assert committed(it) == {}


async def test_the_next_process_goes_on_by_the_file(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=2)
        await put(it, queue(0), numbered(20))
        first = Collector()
        async with receiver(it, first):
            await first.wait(*numbered(20))
        file = tmp_path / "offsets" / "10.0.0.7@DEFAULT" / GROUP / "offsets.json"
        assert '"queueId":0' in file.read_text().replace(" ", "")
        second = Collector()
        async with receiver(it, second):
            await put(it, queue(1), ["next"])
            await second.wait("next")
        assert second.bodies == ["next"]


async def test_a_file_that_means_nothing_is_not_guessed_at(tmp_path: Path) -> None:
    folder = tmp_path / "offsets" / "10.0.0.7@DEFAULT" / GROUP
    folder.mkdir(parents=True)
    (folder / "offsets.json").write_text(json.dumps(["what"]))
    async with cluster(tmp_path) as it:
        with pytest.raises(CorruptStoreError):
            async with receiver(it, Collector()):
                pytest.fail("nobody knows where to go on")
        assert members(it) == ()


async def test_what_fails_is_not_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        await put(it, queue(), numbered(3))
        seen = Collector(None, ConsumeResult.LATER, ValueError("no"))
        async with receiver(it, seen) as running:
            await seen.wait(*numbered(3))
            await until(lambda: running.unfinished == 0)
        assert seen.bodies == numbered(3)
        assert "given up" in caplog.text


async def test_where_a_first_start_begins(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=1)
        await put(it, queue(), ["old"])
        old_ms = time.time_ns() // 1_000_000 + 2
        await until(lambda: time.time_ns() // 1_000_000 > old_ms)
        await put(it, queue(), ["new"])
        # Brokers begin with the message stored nearest to a time.
        new_ms = it.brokers["broker-a"].store.reads.store_time("Orders", 0, QueueOffset(1))
        last, by_time = Collector(), Collector()
        async with (
            receiver(it, last, name="last", consume_from=ConsumeFrom.LAST) as late,
            receiver(
                it,
                by_time,
                name="time",
                consume_from=ConsumeFrom.TIMESTAMP,
                consume_from_ms=new_ms,
            ),
        ):
            await by_time.wait("new")
            await until(lambda: late.queues)
            await put(it, queue(), ["newest"])
            await last.wait("newest")
            await by_time.wait("newest")
        assert last.bodies == ["newest"]
        assert by_time.bodies == ["new", "newest"]
