"""Counts what producers and consumers do, for Prometheus. Pure.

    metrics = MessageMetrics()
    async with open_producer(nameservers, "orders", tracer=metrics) as producer:
        ...

It is a tracer, so it costs nothing where none is given. One is enough for all members of a process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from prometheus_client import REGISTRY, Counter, Histogram

from rmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client import CollectorRegistry

    from rmq.client.core.received import ReceivedMessage
    from rmq.client.core.trace import ConsumeCode, Sent, Tracer, TransactionEnded

_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
"""Upper ends of buckets; times are taken in whole milliseconds."""


@final
class MessageMetrics:
    """A tracer that counts. `docs/client.md` lists the families."""

    def __init__(
        self, registry: CollectorRegistry = REGISTRY, *, tracer: Tracer | None = None
    ) -> None:
        """`tracer` is told of everything as well: one that writes traces, say."""
        self._tracer = tracer
        group_topic = ("group", "topic")
        self._sends = Counter(
            "rmq_client_sends",
            "Sends, by their status or the error they failed with.",
            (*group_topic, "outcome"),
            registry=registry,
        )
        self._send_seconds = Histogram(
            "rmq_client_send_seconds",
            "Time from the send to its outcome.",
            group_topic,
            buckets=_SECONDS,
            registry=registry,
        )
        self._consumed = Counter(
            "rmq_client_consumed_messages",
            "Messages that a listener is done with, by what it made of them.",
            (*group_topic, "outcome"),
            registry=registry,
        )
        self._consume_seconds = Histogram(
            "rmq_client_consume_seconds",
            "Time of one call of a listener, or from one poll to the next.",
            ("group",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._transactions = Counter(
            "rmq_client_transactions",
            "Transactions that brokers were told of, by state.",
            (*group_topic, "state"),
            registry=registry,
        )

    def sent(self, event: Sent) -> None:
        outcome = event.outcome
        said = type(outcome).__name__ if isinstance(outcome, RmqError) else outcome.status.value
        self._sends.labels(event.group, event.topic, said).inc()
        self._send_seconds.labels(event.group, event.topic).observe(event.took_ms / 1000)
        if self._tracer is not None:
            self._tracer.sent(event)

    def transaction_ended(self, event: TransactionEnded) -> None:
        self._transactions.labels(event.group, event.topic, event.state.name).inc()
        if self._tracer is not None:
            self._tracer.transaction_ended(event)

    def consuming(
        self, group: str, messages: Sequence[ReceivedMessage], *, started_at_ms: int
    ) -> str:
        if self._tracer is None:
            return ""
        return self._tracer.consuming(group, messages, started_at_ms=started_at_ms)

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
        self._consume_seconds.labels(group).observe(took_ms / 1000)
        for message in messages:
            self._consumed.labels(group, message.topic, code.name).inc()
        if self._tracer is not None:
            self._tracer.consumed(
                group,
                messages,
                request_id=request_id,
                ended_at_ms=ended_at_ms,
                took_ms=took_ms,
                code=code,
            )
