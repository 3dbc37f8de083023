"""The client without a loop: plain sockets, no trio, no threads of its own, any number of yours.

For web applications with threads, scripts and Spark workers.

    with BlockingProducer("10.0.0.5:9876", group="orders") as producer:
        producer.send(Message("Orders", b"..."))

Requests and the rules of repeating them are those of `rmq.client`: all clients are built on
`rmq.client.core`, and `tests/client/contract` runs the same cases against each. What this one does
not have: push consumers, queues shared within a group and broadcasting, raw pulls and sending back,
transactions, request and reply, message trace, sends with callbacks or futures. Heartbeats are sent
and brokers are answered only while the client is called. docs/client.md has the whole list.

Reading order: `stream` and `connection` (bytes and frames), `connections` (where a process waits),
`monitor` (how threads share it), `runner` (flows), `client` (routes and heartbeats), then
`producer` with `sending`, `consumer` with `reading` and `ranges`, and `admin`.
"""

from rmq.client.blocking.admin import BlockingAdmin
from rmq.client.blocking.client import BlockingClient
from rmq.client.blocking.consumer import BlockingConsumer
from rmq.client.blocking.producer import BlockingProducer
from rmq.client.core.consuming.config import BlockingConsumerConfig

__all__ = [
    "BlockingAdmin",
    "BlockingClient",
    "BlockingConsumer",
    "BlockingConsumerConfig",
    "BlockingProducer",
]
