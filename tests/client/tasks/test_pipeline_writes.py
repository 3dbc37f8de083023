"""When the requests of a producer leave: together if there are several, else at once."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from rmq.client.core.messages import Message
from rmq.client.trio.loop import remoting_of
from rmq.client.trio.opening import open_producer
from rmq.remoting.client import RemotingClient
from tests.client.cluster_kit import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    import pytest

    from rmq.client.core.messages import SendResult
    from rmq.client.tasks.producer import Producer
    from rmq.errors import RmqError
    from rmq.remoting.awaited import Awaited
    from rmq.remoting.channel import Channel

SMALL = Message("Orders", b"x" * 16)


@asynccontextmanager
async def warm_producer(tmp_path: Path) -> AsyncIterator[tuple[Producer, Channel]]:
    """Give a producer that has sent some messages, one after the other, and its connection."""
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders")
        async with open_producer(it.nameserver, "writers", compress_above=1 << 20) as producer:
            for _ in range(3):
                await producer.send(SMALL)
            channel = remoting_of(producer.client).open_channel_to(it.address())
            assert channel is not None
            yield producer, channel


def ignore(_: SendResult | RmqError) -> None:
    """What comes of it is of no interest."""


async def test_who_sends_alone_does_not_wait_for_others(tmp_path: Path) -> None:
    async with warm_producer(tmp_path) as (producer, channel):
        producer.submit(SMALL, ignore)
        assert channel.outbox_bytes == 0


async def test_sends_of_one_step_leave_together(tmp_path: Path) -> None:
    async with warm_producer(tmp_path) as (producer, channel):
        producer.submit(SMALL, ignore)
        sizes = []
        for _ in range(3):
            producer.submit(SMALL, ignore)
            sizes.append(channel.outbox_bytes)
        assert 0 < sizes[0] < sizes[1] < sizes[2]
        await producer.send(SMALL)
        assert channel.outbox_bytes == 0


async def test_tasks_that_are_woken_together_do_not_look_for_their_own_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    busy_wait_for = RemotingClient.busy_wait_for

    async def counted(
        self: RemotingClient, awaited: Awaited[object], is_alone: Callable[[], bool]
    ) -> None:
        nonlocal looks
        looks += 1
        await busy_wait_for(self, awaited, is_alone)

    async with warm_producer(tmp_path) as (producer, _):
        monkeypatch.setattr(RemotingClient, "busy_wait_for", counted)
        await producer.send(SMALL)
        assert looks == 1

        async def send_some() -> None:
            for _ in range(5):
                await producer.send(SMALL)

        async with trio.open_nursery() as nursery:
            for _ in range(16):
                nursery.start_soon(send_some)
    # The first of them may, and who is left at the end.
    assert looks < 10
