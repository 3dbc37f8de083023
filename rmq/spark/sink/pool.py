"""The producers of this process, kept from task to task: Spark uses its workers again.

There is one per cluster and way of sending. A worker runs one task at a time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rmq.client.blocking.producer import BlockingProducer
from rmq.errors import RmqError

if TYPE_CHECKING:
    from rmq.client.core.config import ClientConfig
    from rmq.client.core.producing.config import ProducerConfig

logger = logging.getLogger(__name__)

PRODUCERS_MAX: Final = 4

_producers: Final[dict[tuple[ClientConfig, ProducerConfig], BlockingProducer]] = {}


def take(client: ClientConfig, config: ProducerConfig) -> BlockingProducer:
    """Return an open producer, the one of an earlier task if it was given back."""
    producer = _producers.pop((client, config), None)
    return producer if producer is not None else BlockingProducer(client, config=config).open()


def give_back(client: ClientConfig, config: ProducerConfig, producer: BlockingProducer) -> None:
    """Keep a producer with nothing under way for the next task."""
    _producers[client, config] = producer
    while len(_producers) > PRODUCERS_MAX:
        drop(_producers.pop(next(iter(_producers))))


def drop(producer: BlockingProducer) -> None:
    """Close a producer: what it knows of brokers may be what made it fail."""
    try:
        if producer.client.is_open:
            # Not logged: logging may be shut down already.
            producer.client.connections.close(linger_s=0)
        producer.close()
    except RmqError as exc:
        logger.debug("a producer was not closed cleanly: %s", exc)


def close_all() -> None:
    """Close all producers that are kept."""
    while _producers:
        drop(_producers.popitem()[1])
