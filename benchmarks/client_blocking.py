"""Our blocking client as a client process: `python -m benchmarks.client_blocking`.

It has no tasks: several sends under way are those of one `send_stream`, except in `threads`, and of
batches there is one at a time, whatever the load says.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from benchmarks.client_work import Load, Meter, serve
from rmq.client.blocking.consumer import BlockingConsumer
from rmq.client.blocking.producer import BlockingProducer
from rmq.client.core.messages import Message
from rmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.broker_load.figures import Outcome


def send(load: Load) -> Outcome:
    """Send one message after the other, or some at a time."""
    if load.at_once > 1:
        return pipeline(load)
    body = b"x" * load.body_bytes
    meter = Meter()
    with BlockingProducer(load.nameserver, load.group) as producer:
        producer.send(Message(load.topic, body))
        note = meter.latencies_s.append
        since_s = meter.start()
        end_s = since_s + load.seconds
        while since_s < end_s:
            producer.send(Message(load.topic, body))
            now_s = time.perf_counter()
            note(now_s - since_s)
            since_s = now_s
        return meter.stop(len(meter.latencies_s))


def threads(load: Load) -> Outcome:
    """Send from so many threads that share a producer, each one message after the other."""
    body = b"x" * load.body_bytes
    meter = Meter()
    with (
        BlockingProducer(load.nameserver, load.group) as producer,
        ThreadPoolExecutor(load.at_once) as pool,
    ):
        producer.send(Message(load.topic, body))

        def repeat() -> list[float]:
            took_s: list[float] = []
            since_s = time.perf_counter()
            while since_s < end_s:
                producer.send(Message(load.topic, body))
                now_s = time.perf_counter()
                took_s.append(now_s - since_s)
                since_s = now_s
            return took_s

        end_s = meter.start() + load.seconds
        for ended in [pool.submit(repeat) for _ in range(load.at_once)]:
            meter.latencies_s += ended.result()
        return meter.stop(len(meter.latencies_s))


def pipeline(load: Load) -> Outcome:
    """Send a stream of messages; results come in the order of the messages."""
    body = b"x" * load.body_bytes
    meter = Meter()
    sent = 0

    def messages() -> Iterator[Message]:
        while time.perf_counter() < end_s:
            yield Message(load.topic, body)

    with BlockingProducer(load.nameserver, load.group) as producer:
        producer.send(Message(load.topic, body))
        end_s = meter.start() + load.seconds
        for outcome in producer.send_stream(messages(), load.at_once):
            if isinstance(outcome, RmqError):
                meter.failed(outcome)
            else:
                sent += 1
        return meter.stop(sent)


def batch(load: Load) -> Outcome:
    body = b"x" * load.body_bytes
    meter = Meter()
    with BlockingProducer(load.nameserver, load.group) as producer:
        producer.send(Message(load.topic, body))
        note = meter.latencies_s.append
        since_s = meter.start()
        end_s = since_s + load.seconds
        while since_s < end_s:
            producer.send_batch([Message(load.topic, body) for _ in range(load.batch)])
            now_s = time.perf_counter()
            note(now_s - since_s)
            since_s = now_s
        return meter.stop(len(meter.latencies_s) * load.batch)


def read_range(load: Load) -> Outcome:
    """Read queue by queue, from the first message to the last."""
    meter = Meter()
    count = body_bytes = 0
    with BlockingConsumer(load.nameserver, load.group, pull_messages_max=load.batch) as consumer:
        queues = consumer.queues(load.topic)
        ends = consumer.end_offsets(queues)
        end_s = meter.start() + load.seconds
        for queue in queues:
            for messages in consumer.read_batches(queue, 0, ends[queue]):
                count += len(messages)
                body_bytes += sum([len(message.body) for message in messages])
                if time.perf_counter() > end_s:
                    break
        outcome = meter.stop(count)
    if not count or body_bytes < count:
        raise RuntimeError(f"{count} messages of {body_bytes} bytes came")
    return outcome


if __name__ == "__main__":
    works = (send, threads, pipeline, batch, read_range)
    serve({work.__name__: work for work in works})
