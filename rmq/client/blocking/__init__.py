"""The client without a loop: plain sockets, no threads, no trio. For scripts and Spark workers.

    with BlockingProducer("10.0.0.5:9876", group="orders") as producer:
        producer.send(Message("Orders", b"..."))

What is said to nameservers and brokers is the same as in `rmq.client`: both run the same flows.
Reading order: `stream` and `connection` (bytes and frames), `connections` (where a process waits),
`runner` (flows), `client` (routes and heartbeats), then `producer` with `sending`, `consumer` with
`reading` and `ranges`, and `admin`.
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
