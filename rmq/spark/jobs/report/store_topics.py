"""How many queues topics have, as the broker of a store wrote it down.

A queue that never got a message has no files, so only config/topics.json tells that there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.errors import CorruptStoreError
from rmq.remoting.bodies import TopicConfigSerializeWrapper
from rmq.spark.jobs.store_offsets import read_table

if TYPE_CHECKING:
    from pathlib import Path


def topic_queues(root: Path) -> dict[str, int] | None:
    """Return for each topic how many queues can be written to; None if there is no such file.

    A file that is cut off counts as not written; brokers keep the one before it as `.bak`.
    """
    try:
        told = read_table(root / "config" / "topics.json", TopicConfigSerializeWrapper)
    except CorruptStoreError:
        return None
    if told is None:
        return None
    return {topic: each.write_queue_nums for topic, each in told.topic_config_table.items()}
