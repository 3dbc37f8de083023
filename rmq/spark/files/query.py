"""What a query over a store reads: the glue between its options, the store and the planning."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmq.errors import ConfigError
from rmq.model.names import ALWAYS_SYSTEM_TOPICS, SYSTEM_TOPIC_PREFIX
from rmq.model.offsets import PhysicalOffset
from rmq.settings.setting import nearest_word
from rmq.spark.files.planning import LogPart, bounds, gaps, parts
from rmq.spark.files.scan import Damage, Scan, check_boundary
from rmq.store.reader import Reader
from rmq.store.reader.files import FilePool
from rmq.store.verify import known_topics

if TYPE_CHECKING:
    from collections.abc import Collection

    from rmq.spark.files.planning import Bounds
    from rmq.spark.files.settings import StoreOptions

logger = logging.getLogger(__name__)


def open_store(options: StoreOptions) -> Reader:
    """Open the store of a query.

    Raises `StorageError` if there is none, and `ConfigError` for a topic that it does not know.
    """
    reader = Reader(options.root, commit_log_paths=options.log_paths)
    _require_topics(reader, options.topics)
    return reader


def _require_topics(reader: Reader, topics: Collection[str]) -> None:
    """Raise `ConfigError` for topics that the store does not know.

    Where only the log was copied, it is not known which ones there are. Topics of the system are
    there always.
    """
    if not topics:
        return
    known = {*reader.topics(), *(known_topics(reader.root) or ())}
    unknown = sorted(name for name in topics if name not in known and not _is_of_brokers(name))
    if not known or not unknown:
        return
    near = [word for name in unknown if (word := nearest_word(name, known))]
    advice = f"did you mean {', '.join(near)}? " if near else ""
    raise ConfigError(
        "topics",
        f"{reader.root} knows no topic {', '.join(unknown)}",
        hint=f"{advice}records of a deleted topic are read without `topics`, with a filter on the"
        " column topic",
    )


def _is_of_brokers(topic: str) -> bool:
    return topic in ALWAYS_SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def plan(reader: Reader, options: StoreOptions) -> list[LogPart]:
    """Return what the tasks of a query read."""
    damage = Damage(skips=options.skips_corrupt)
    log = reader.log
    wanted = bounds(options, reader.min_offset, reader.end_offset)
    if wanted.lost_bytes:
        _raise_or_log_loss(wanted, options)
    elif options.from_offset is not None:
        _check_start(reader, options, damage)
    for gap in gaps(log.segments, log.segment_bytes, wanted.start, wanted.stop):
        damage.report(gap)
    return list(
        parts(
            log.segments,
            log.segment_bytes,
            PhysicalOffset(wanted.start),
            PhysicalOffset(wanted.stop),
            options.split_bytes,
            log.next_sound,
        )
    )


def _raise_or_log_loss(wanted: Bounds, options: StoreOptions) -> None:
    reason = (
        f"{options.from_offset} lies {wanted.lost_bytes} bytes before the log, which begins at"
        f" {wanted.start}: retention deleted what was there"
    )
    if options.fails_on_data_loss:
        raise ConfigError(
            "fromOffset", reason, hint="failOnDataLoss=false starts where the log begins"
        )
    logger.warning("fromOffset: %s", reason)


def _check_start(reader: Reader, options: StoreOptions, damage: Damage) -> None:
    """Raise `ConfigError` if `fromOffset` is inside a record."""
    offset = options.from_offset
    assert offset is not None
    log = reader.log
    segment = log.find(PhysicalOffset(offset))
    if segment is None or offset == segment.first:
        return
    part = LogPart(
        segment.path,
        segment.first,
        log.segment_bytes,
        segment.first,
        min(segment.first + log.segment_bytes, reader.end_offset),
        is_stop_boundary=False,
    )
    files = FilePool()
    try:
        scan = Scan(files, log, part, damage, block_rows=options.batch_rows)
        check_boundary(scan, part, offset)
    finally:
        files.close()
