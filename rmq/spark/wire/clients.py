"""Open clients of a process, kept from one task to the next.

Spark uses its Python processes again and again. A client that is kept has its connections and
routes already; so one is kept for each cluster and account. After an error it is closed, and the
next task opens another one.

A process that was forked goes on with connections of its own (`rmq.client.blocking.connections`).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from rmq.client.blocking import BlockingConsumer, BlockingConsumerConfig
from rmq.client.core.config import ClientConfig
from rmq.errors import RmqError
from rmq.spark.options import client_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.settings.schema import Values

logger = logging.getLogger(__name__)

CLIENTS_MAX: Final = 8
"""Of one process; the one that was not used for longest is closed."""
PAUSE_S: Final = 1.0
"""How long a broker that does not answer is left alone."""

_Key: TypeAlias = tuple[ClientConfig, BlockingConsumerConfig]
_open: Final[OrderedDict[_Key, BlockingConsumer]] = OrderedDict()


@contextmanager
def borrowed_consumer(values: Values) -> Iterator[BlockingConsumer]:
    """Lend an open consumer for the length of a block. Raises `ConfigError`.

    Several blocks may have the same one at the same time, in one thread.
    """
    key = (
        # Pulls are in flight ahead of the reader; a busy-wait for responses would take a core.
        replace(client_config(values), busy_wait_s=0.0),
        BlockingConsumerConfig(
            group=values.text("consumerGroup"),
            commits_itself=False,
            sends_heartbeats=False,
            pull_messages_max=values.integer("pullBatchSize"),
            pull_now_timeout_s=values.integer("requestTimeoutMs") / 1000,
            pull_pause_s=PAUSE_S,
            pull_retries=values.integer("pullRetries"),
        ),
    )
    consumer = _open.pop(key, None)
    if consumer is None:
        while len(_open) >= CLIENTS_MAX:
            _close(_open.popitem(last=False)[1])
        consumer = BlockingConsumer(key[0], config=key[1]).open()
    _open[key] = consumer
    try:
        yield consumer
    except Exception:
        if _open.get(key) is consumer:
            del _open[key]
        _close(consumer)
        raise


def close_clients() -> None:
    """Close all clients that are kept. Processes that end need not do that."""
    while _open:
        _close(_open.popitem()[1])


def _close(consumer: BlockingConsumer) -> None:
    try:
        if consumer.client.is_open:
            # Not logged: logging may be shut down already.
            consumer.client.connections.close(linger_s=0)
        consumer.close()
    except RmqError as exc:
        logger.debug("a client was not closed cleanly: %s", exc)
