"""When the requests of a producer leave: together if there are several, else at once."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rmq.client.messages import Message
from rmq.client.producer import open_producer
from tests.client.cluster_kit import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rmq.client.messages import SendResult
    from rmq.client.producer import Producer
    from rmq.errors import RmqError
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
            channel = producer.client.remoting.open_channel_to(it.address())
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
