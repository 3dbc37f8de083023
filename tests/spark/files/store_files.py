"""Stores on disk for the tests of the format, and reading them as its tasks do, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rmq.model import flags
from rmq.model.record import NewMessage, pack_host
from rmq.spark.files.query import open_store, plan
from rmq.spark.files.reading import read_part
from rmq.spark.files.settings import store_options
from rmq.store.core import StoreCore
from rmq.store.reader import Reader
from tests.spark.decoding.oracle import row_of, rows
from tests.store.store_kit import START_MS, Clock, message, small_config

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from rmq.spark.files.planning import LogPart

V6: Final = pack_host("fe80::9", 40009)


def build_store(root: Path, messages: Iterable[NewMessage], **config: Any) -> Path:  # noqa: ANN401
    """Write a store with a segment size of 8 KiB; each message is stored 10 ms after the last."""
    clock = Clock()
    core = StoreCore(small_config(root, **config), now_ms=clock)
    for each in messages:
        core.append([each])
        clock.ms += 10
    core.flush()
    core.close()
    return root


def mixed_messages(count: int) -> list[NewMessage]:
    """Return messages of every kind: IPv6, compressed, long, tiny, of topics of the system."""
    topics = ("Orders", "Payments", "%RETRY%group", "SCHEDULE_TOPIC_XXXX", "Orders")
    return [
        message(
            b"" if number % 11 == 0 else bytes(number % 7 * 40) + b"body %d" % number,
            topic=topics[number % len(topics)],
            queue_id=number % 3,
            tags="tag" if number % 2 else "",
            unique_key=f"key{number}" if number % 3 else "",
            born_ms=START_MS - number,
            born_host=V6 if number % 13 == 0 else pack_host("10.0.0.7", 1000 + number),
            sys_flag=flags.BORN_HOST_V6 if number % 13 == 0 else 0,
        )
        for number in range(count)
    ]


def parts_of(root: Path, **options: object) -> list[LogPart]:
    """Return how a query is planned."""
    chosen = store_options({"path": str(root)} | {key: str(each) for key, each in options.items()})
    with open_store(chosen) as reader:
        return plan(reader, chosen)


def read_rows(root: Path, **options: object) -> list[dict[str, Any]]:
    """Return the rows of a query, in the order of the log."""
    chosen = store_options({"path": str(root)} | {key: str(each) for key, each in options.items()})
    with open_store(chosen) as reader:
        parts = plan(reader, chosen)
    return [row for part in parts for batch in read_part(chosen, part) for row in rows(batch)]


def offsets(table: Sequence[dict[str, Any]]) -> list[int]:
    return [row["commitLogOffset"] for row in table]


def reader_rows(root: Path) -> list[dict[str, Any]]:
    """Return what the reader of the store finds, as rows with bodies as they are stored."""
    with Reader(root) as reader:
        return [row_of(record) for record in reader.records()]
