"""`rmq bench`: sends one by one, sends many at a time, and reads everything back."""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from rmq.cli.admin.session import Cluster, open_cluster, print_found
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.tables import BAD, GOOD, Cell, Styled, print_facts
from rmq.cli.common.usage import UsageError
from rmq.client.blocking.consumer import BlockingConsumer
from rmq.client.blocking.producer import BlockingProducer
from rmq.client.core.admin.messages import TOOLS_GROUP
from rmq.client.core.admin.topics import create_topic, delete_topic
from rmq.client.core.messages import Message
from rmq.errors import IllegalMessageError, NoRouteError, RmqError

if TYPE_CHECKING:
    from argparse import Namespace

    from rmq.client.core.messages import SendResult

GROUP: Final = "rmq_bench"
_WARM_UP: Final = 20
"""Sends that are not measured: they connect, and make queues."""


def run(args: Namespace) -> int:
    """Measure, print and clean up."""
    try:
        message = Message(args.topic, os.urandom(args.size))
    except IllegalMessageError as exc:
        raise UsageError(exc.reason) from None
    with open_cluster(args) as cluster:
        is_new = _create(cluster, args)
        try:
            found = _measured(cluster, args, message)
        finally:
            if is_new and not args.keep:
                cluster.run(delete_topic(cluster.nameservers, args.topic, cluster=args.cluster))
    code = print_found(args, found, lambda: print_facts(_facts(found)))
    return code if found["is_complete"] else ExitCode.FAILURE


def _create(cluster: Cluster, args: Namespace) -> bool:
    """Create the topic, unless it is there; return whether it was created."""
    try:
        cluster.run(cluster.nameservers.route(args.topic))
    except NoRouteError:
        cluster.run(
            create_topic(cluster.nameservers, args.topic, queues=args.queues, cluster=args.cluster)
        )
        return True
    return False


def _measured(cluster: Cluster, args: Namespace, message: Message) -> dict[str, Any]:
    client = cluster.admin.client
    with (
        BlockingProducer(client, GROUP) as producer,
        BlockingConsumer(client, TOOLS_GROUP) as consumer,
    ):
        for _ in range(_WARM_UP):
            producer.send(message)
        before = consumer.end_offsets(consumer.queues(args.topic))
        times_ms, outcomes = _singles(producer, message, args.singles)
        started = time.perf_counter()
        many = producer.send_stream(repeat(message, args.messages), args.in_flight)
        outcomes += Counter(map(_name_of, many))
        sending_s = time.perf_counter() - started
        after = consumer.end_offsets(before)
        started = time.perf_counter()
        read = sum(
            len(batch)
            for queue, end in after.items()
            for batch in consumer.read_batches(queue, before[queue], end)
        )
        reading_s = time.perf_counter() - started
    stored = outcomes.total() - outcomes["failed"]
    return {
        "topic": args.topic,
        "body_bytes": args.size,
        "in_flight": args.in_flight,
        "outcomes": dict(outcomes),
        "single_ms": {
            "p50": round(statistics.median(times_ms), 3),
            "p99": round(_percentile(times_ms, 0.99), 3),
            "max": round(max(times_ms), 3),
        },
        "sent_per_second": round(args.messages / sending_s),
        "sent_mib_per_second": round(args.messages * args.size / sending_s / 2**20, 2),
        "read": read,
        "read_per_second": round(read / reading_s) if reading_s else 0,
        # Others may send to the topic, too.
        "is_complete": outcomes["failed"] == 0 and read >= stored,
    }


def _singles(
    producer: BlockingProducer, message: Message, count: int
) -> tuple[list[float], Counter[str]]:
    times_ms: list[float] = []
    outcomes: Counter[str] = Counter()
    for _ in range(count):
        started = time.perf_counter()
        try:
            outcomes[_name_of(producer.send(message))] += 1
        except RmqError as exc:
            outcomes[_name_of(exc)] += 1
        times_ms.append((time.perf_counter() - started) * 1000)
    return times_ms, outcomes


def _name_of(outcome: SendResult | RmqError) -> str:
    return "failed" if isinstance(outcome, RmqError) else outcome.status.value


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def _facts(found: dict[str, Any]) -> list[tuple[str, Cell]]:
    single = found["single_ms"]
    outcomes = ", ".join(f"{count:,} {name}" for name, count in found["outcomes"].items())
    is_good = found["is_complete"] and set(found["outcomes"]) == {"SEND_OK"}
    return [
        (
            "one by one",
            f"{single['p50']} ms median, {single['p99']} ms p99, {single['max']} ms max",
        ),
        (
            f"{found['in_flight']} at a time",
            f"{found['sent_per_second']:,} per second, {found['sent_mib_per_second']} MiB/s",
        ),
        ("outcomes", Styled(outcomes, GOOD if is_good else BAD)),
        ("read back", f"{found['read']:,} messages, {found['read_per_second']:,} per second"),
    ]
