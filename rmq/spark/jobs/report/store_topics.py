"""How many queues topics have, as the broker of a store wrote it down.

A queue that never got a message has no files, so only config/topics.json tells that there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.errors import RmqError
from rmq.remoting.bodies import TopicConfigSerializeWrapper
from rmq.store.reader.files import translated

if TYPE_CHECKING:
    from pathlib import Path

FILE_BYTES_MAX: Final = 256 * 1024 * 1024


def topic_queues(root: Path) -> dict[str, int] | None:
    """Return for each topic how many queues can be written to; None if there is no such file.

    A file that is cut off counts as not written; brokers keep the one before it as `.bak`.
    """
    path = root / "config" / "topics.json"
    for candidate in (path, path.with_name(f"{path.name}.bak")):
        try:
            content = candidate.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as exc:
            raise translated("read", candidate, exc) from exc
        try:
            told = TopicConfigSerializeWrapper.decode(content, lenient_bytes_max=FILE_BYTES_MAX)
        except RmqError:
            continue
        return {topic: each.write_queue_nums for topic, each in told.topic_config_table.items()}
    return None
