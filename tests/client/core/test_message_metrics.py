"""What Prometheus learns of the messages of an application."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry

from rmq.client import (
    ConsumeFrom,
    Message,
    NoNameserverError,
    TransactionState,
    aio,
    open_producer,
)
from rmq.client.core.message_metrics import MessageMetrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.client import ReceivedMessage
    from rmq.testing.local_broker import LocalBroker


def test_sends_calls_and_transactions_are_counted(rmq_session_broker: LocalBroker) -> None:
    registry = CollectorRegistry()
    # The inner one stands for a tracer of the application: it is told of the same.
    inner_registry = CollectorRegistry()
    metrics = MessageMetrics(registry, tracer=MessageMetrics(inner_registry))
    nameserver = rmq_session_broker.nameserver
    rmq_session_broker.create_topic("Metered")

    async def check(_: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    async def main() -> None:
        done = asyncio.Event()
        calls = 0

        async def listener(_: Sequence[ReceivedMessage]) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise ValueError
            if calls == 3:
                done.set()

        async with aio.open_transaction_producer(
            nameserver, "metered", check, tracer=metrics
        ) as producer:
            await producer.producer.send(Message("Metered", b"a"))
            await producer.producer.send(Message("Metered", b"b"))
            await producer.send(Message("Metered", b"c"), lambda *_: TransactionState.COMMIT)
        async with aio.open_push_consumer(
            nameserver,
            "metered",
            "Metered",
            listener,
            consume_from=ConsumeFrom.FIRST,
            tracer=metrics,
        ):
            async with asyncio.timeout(20):
                await done.wait()

    asyncio.run(main())
    for each in (registry, inner_registry):
        where = {"group": "metered", "topic": "Metered"}
        assert each.get_sample_value("rmq_client_sends_total", {**where, "outcome": "SEND_OK"}) == 3
        assert each.get_sample_value("rmq_client_send_seconds_count", where) == 3
        assert (
            each.get_sample_value("rmq_client_transactions_total", {**where, "state": "COMMIT"})
            == 1
        )
        counts = {
            outcome: each.get_sample_value(
                "rmq_client_consumed_messages_total", {**where, "outcome": outcome}
            )
            for outcome in ("SUCCESS", "RAISED")
        }
        assert counts == {"SUCCESS": 2, "RAISED": 1}
        seconds = each.get_sample_value("rmq_client_consume_seconds_count", {"group": "metered"})
        assert seconds == 3


async def test_a_send_that_fails_is_counted_by_its_error() -> None:
    registry = CollectorRegistry()
    tracer = MessageMetrics(registry)
    async with open_producer("127.0.0.1:1", "failing", tracer=tracer) as producer:
        with pytest.raises(NoNameserverError):
            await producer.send(Message("T", b"x"))
    labels = {"group": "failing", "topic": "T", "outcome": "NoNameserverError"}
    assert registry.get_sample_value("rmq_client_sends_total", labels) == 1
