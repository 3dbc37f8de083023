"""The archive of a store: copies that are not of one moment, of other brokers, and damaged ones."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest

from rmq.errors import CorruptStoreError
from rmq.spark.jobs.archive.manifest import Queue
from rmq.spark.jobs.archive.plan import Plan, Span
from rmq.spark.jobs.archive.sources import StoreSource
from rmq.spark.jobs.archive.table import read_archive
from rmq.spark.pipelines.archive import PIPELINE
from rmq.spark.pipelines.job import main
from rmq.store.reader import Reader
from tests.spark.files.store_files import build_store
from tests.store.store_kit import HEAD_BYTES, message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    Archive = Callable[..., dict[str, Any]]

FIRST: Final = "A"
SECOND: Final = "B"
BODY_AT: Final = HEAD_BYTES
"""Where the body begins in a record."""


def _grow(root: Path, *bodies: bytes) -> None:
    """Add to each of two topics a message with each of these bodies, the first topic first."""
    build_store(root, [message(body, topic=topic) for body in bodies for topic in (FIRST, SECOND)])


@pytest.fixture
def archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Archive:
    def run(store: Path, *more: str, broker: str = "b") -> dict[str, Any]:
        arguments = ["--from-store", str(store), "--broker-name", broker, "--json"]
        where = ["--topic", f"{FIRST},{SECOND}", "--out", str(tmp_path / "archive")]
        code = main(PIPELINE, [*arguments, *where, *more])
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert told["exit_code"] == code
        return told

    return run


def _damage(root: Path, *messages: tuple[str, int]) -> None:
    """Change the last byte of the bodies of messages, so that their CRC is wrong."""
    with Reader(root) as reader:
        records = {(record.topic, int(record.queue_offset)): record for record in reader.records()}
    (segment,) = (root / "commitlog").iterdir()
    content = bytearray(segment.read_bytes())
    for name in messages:
        record = records[name]
        at = content.index(record.body, record.physical_offset + BODY_AT)
        content[at + len(record.body) - 1] ^= 1
    segment.write_bytes(content)


def _offsets(spark: SparkSession, out: Path, topic: str) -> list[int]:
    rows = read_archive(spark, out, [topic]).select("queueOffset").collect()
    return sorted(row["queueOffset"] for row in rows)


def test_queues_that_were_copied_one_after_another(
    spark: SparkSession, tmp_path: Path, archive: Archive
) -> None:
    """What is behind the end of one queue lies before that of another in the log."""
    root, copy = tmp_path / "store", tmp_path / "copy"
    _grow(root, b"0", b"1")
    shutil.copytree(root / "consumequeue" / FIRST, tmp_path / "early")
    _grow(root, b"2")
    shutil.copytree(root, copy)
    shutil.rmtree(copy / "consumequeue" / FIRST)
    shutil.copytree(tmp_path / "early", copy / "consumequeue" / FIRST)
    told = archive(copy)
    assert (told["outcome"], told["records"]) == ("holds", 5)
    shutil.rmtree(copy)
    _grow(root, b"3")
    shutil.copytree(root, copy)
    told = archive(copy)
    assert (told["outcome"], told["records"], told["findings"]) == ("holds", 3, [])
    for topic in (FIRST, SECOND):
        assert _offsets(spark, tmp_path / "archive", topic) == [0, 1, 2, 3]


def test_the_store_of_another_broker_in_the_same_folder(
    spark: SparkSession, tmp_path: Path, archive: Archive
) -> None:
    root = tmp_path / "store"
    _grow(root, b"0", b"1", b"2")
    assert archive(root)["records"] == 6
    shutil.rmtree(root)
    _grow(root, b"other")
    told = archive(root, broker="c")
    assert (told["outcome"], told["records"]) == ("holds", 2), told["verdict"]
    # And once more the first one, whose log is longer.
    shutil.rmtree(root)
    _grow(root, b"0", b"1", b"2", b"3")
    told = archive(root)
    assert (told["outcome"], told["records"], told["facts"]["messages"]) == ("holds", 2, 10)


def test_each_queue_says_where_in_the_log_to_start(tmp_path: Path) -> None:
    root = tmp_path / "store"
    _grow(root, *(b"body %d" % number for number in range(5)))
    with Reader(root) as reader:
        places = {
            (each.topic, int(each.queue_offset)): each.physical_offset for each in reader.records()
        }
    first, second = Queue(FIRST, "b", 0), Queue(SECOND, "b", 0)
    source = StoreSource(root, "b", [FIRST, SECOND])

    def start(source: StoreSource, **spans: int) -> int | None:
        queues = {FIRST: first, SECOND: second}
        return source.start(Plan({queues[name]: Span(at, 5) for name, at in spans.items()}, (), 0))

    assert start(source, A=1, B=4) == places[FIRST, 1]
    assert start(source, A=4, B=1) == places[SECOND, 1]
    assert start(source, B=3) == places[SECOND, 3]
    # It cannot be told where a message is that is not there, or is another one than it should be.
    assert start(source, A=5, B=1) is None
    _damage(root, (FIRST, 2))
    with pytest.raises(CorruptStoreError, match="CRC"):
        start(source, A=2, B=3)
    skipping = StoreSource(root, "b", [FIRST, SECOND], skips_corrupt=True)
    assert start(skipping, A=2, B=3) is None
    assert start(skipping, A=3, B=3) == places[FIRST, 3]


def test_damage_is_an_error_or_a_gap(spark: SparkSession, tmp_path: Path, archive: Archive) -> None:
    root, out = tmp_path / "store", tmp_path / "archive"
    _grow(root, b"0", b"1")
    assert archive(root)["records"] == 4
    _grow(root, *(b"body %d" % number for number in range(2, 8)))
    # The first new message of one topic and two later ones; of the other all.
    _damage(root, (FIRST, 2), (FIRST, 5), (FIRST, 7), *((SECOND, at) for at in range(2, 8)))
    told = archive(root)
    assert (told["outcome"], told["facts"]["error"]) == ("unknown", "CorruptStoreError")
    assert sorted(path.name for path in (out / "data").iterdir()) == ["run=000001"]
    told = archive(root, "--skip-corrupt")
    assert (told["outcome"], told["records"]) == ("fails", 3)
    gaps = [(each["topic"], each["first"], each["last"]) for each in told["findings"]]
    assert gaps == [(FIRST, 2, 2), (FIRST, 5, 5), (FIRST, 7, 7), (SECOND, 2, 7)]
    assert told["facts"]["gap_messages"] == 9
    assert _offsets(spark, out, FIRST) == [0, 1, 3, 4, 6]
    # The next run goes on behind the damage, and needs nobody's leave for that.
    _grow(root, b"8", b"9")
    told = archive(root, "--accept-gap", "--skip-corrupt")
    assert (told["outcome"], told["records"], told["findings"]) == ("holds", 4, [])
    assert _offsets(spark, out, SECOND) == [0, 1, 8, 9]


def test_a_run_of_nothing_but_damage(spark: SparkSession, tmp_path: Path, archive: Archive) -> None:
    """With few messages per run it comes to an end, too."""
    root, out = tmp_path / "store", tmp_path / "archive"
    _grow(root, b"body 0", b"body 1")
    _damage(root, (FIRST, 0), (SECOND, 0))
    told = archive(root, "--skip-corrupt", "--max-messages", "2")
    assert (told["outcome"], told["records"], told["facts"]["gap_messages"]) == ("fails", 0, 2)
    assert read_archive(spark, out).count() == 0
    told = archive(root, "--skip-corrupt")
    assert (told["records"], told["facts"]["gap_messages"]) == (2, 2)
    assert _offsets(spark, out, FIRST) == [1]


def test_a_queue_that_the_store_has_no_longer(tmp_path: Path, archive: Archive) -> None:
    root = tmp_path / "store"
    _grow(root, b"0", b"1")
    assert archive(root)["outcome"] == "holds"
    _grow(root, b"2")
    shutil.rmtree(root / "consumequeue" / SECOND)
    told = archive(root)
    # What can be read is archived all the same.
    assert (told["outcome"], told["records"]) == ("unknown", 1)
    assert [(each["kind"], each["topic"]) for each in told["findings"]] == [("unreadable", SECOND)]
    # A store is not asked for queues of other brokers.
    told = archive(root, "--topic", FIRST, broker="c")
    assert told["findings"] == []
