"""The archive on Spark: every message once, proven from the files, and readable as it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from rmq.errors import ConfigError
from rmq.model.record import NewMessage
from rmq.spark.jobs.archive.manifest import Gap, Queue, parse_manifest
from rmq.spark.jobs.archive.table import find_gaps, prove, read_archive
from rmq.spark.pipelines.archive import PIPELINE
from rmq.spark.pipelines.job import main
from rmq.spark.schema import COLUMNS
from rmq.store.config import StoreConfig
from rmq.store.core import StoreCore
from rmq.store.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TOPICS: Final = ("007", "Orders", "%RETRY%billing|x")


def _append(root: Path, first: int, count: int) -> None:
    """Add messages to three topics whose names are not all easy, in two queues each."""
    core = StoreCore(StoreConfig(root=root, segment_bytes=1 << 20))
    try:
        core.append(
            [
                NewMessage(
                    TOPICS[number % 3],
                    number // 3 % 2,
                    b"body %d" % number,
                    b"UNIQ_KEY\x01K%06d\x02TAGS\x01t" % number,
                    born_ms=1_700_000_000_000 + number,
                )
                for number in range(first, first + count)
            ]
        )
        core.flush()
    finally:
        core.close()


def _archive(
    root: Path, out: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> dict[str, object]:
    arguments = ["--from-store", str(root), "--broker-name", "b", "--out", str(out), "--json"]
    code = main(PIPELINE, [*arguments, "--topic", ",".join(TOPICS), *more])
    told: dict[str, object] = json.loads(capsys.readouterr().out)
    assert told["exit_code"] == code
    return told


def test_archives_grow_by_what_is_new(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, out = tmp_path / "store", tmp_path / "archive"
    _append(root, 0, 90)
    told = _archive(root, out, capsys, "--max-messages", "60")
    assert (told["outcome"], told["records"]) == ("holds", 60)
    assert told["facts"]["left"] == 30  # type: ignore[index]
    # A run that was killed: its files must not count.
    leftover = out / "data" / "_run-000002" / "date=2024-05-31" / "topic=Orders"
    leftover.mkdir(parents=True)
    (leftover / "part-0.parquet").write_bytes(b"PAR1")
    _append(root, 90, 30)
    told = _archive(root, out, capsys)
    assert (told["outcome"], told["records"]) == ("holds", 60)
    assert _archive(root, out, capsys)["records"] == 0
    manifest = parse_manifest(json.loads((out / "manifest.json").read_text()))
    assert (manifest.messages, manifest.last_run) == (120, 2)
    # What is read back is what is in the store, each message once.
    rows = read_archive(spark, str(out)).collect()
    with Reader(root) as reader:
        records = {
            (record.topic, record.queue_id, record.queue_offset): record
            for record in reader.records()
        }
    assert len(rows) == len(records) == 120
    for row in rows:
        record = records[row["topic"], row["queueId"], row["queueOffset"]]
        assert bytes(row["body"]) == record.body
        assert row["properties"] == record.properties
        assert row["commitLogOffset"] == record.physical_offset
        assert row["brokerName"] == "b"
    for queue, part in manifest.parts.items():
        offsets = [key[2] for key in records if key[:2] == (queue.topic, queue.queue_id)]
        assert (part.first, part.last, part.count) == (min(offsets), max(offsets), len(offsets))
    # Checksums do not depend on how many runs there were.
    proven = prove(read_archive(spark, out).coalesce(1))
    for queue, part in manifest.parts.items():
        assert (proven[queue].checksum, proven[queue].crc) == (part.checksum, part.crc)
    some = read_archive(spark, out, ["007"])
    assert some.columns == list(COLUMNS)
    assert [row["topic"] for row in some.select("topic").distinct().collect()] == ["007"]
    with pytest.raises(ConfigError, match="Payments is not in"):
        read_archive(spark, out, ["Payments"])
    with pytest.raises(ConfigError, match="holds no run"):
        read_archive(spark, tmp_path)
    # Other programs find the same in the folder, hidden files left out.
    assert spark.read.parquet(str(out / "data")).count() == 120


def test_duplicates_and_gaps_are_found(spark: SparkSession) -> None:
    offsets = [*range(32_760, 32_775), *range(65_530, 65_540), 70_000]
    rows = spark.createDataFrame(
        [("T", "b", 0, offset, b"x", {"a": "1"}, None, "id", 0, 0) for offset in offsets],
        "topic STRING, brokerName STRING, queueId INT, queueOffset BIGINT, body BINARY,"
        " properties MAP<STRING,STRING>, storeTimestamp TIMESTAMP, msgId STRING,"
        " commitLogOffset BIGINT, storeSize INT",
    ).selectExpr("* except (storeTimestamp)", "timestamp_millis(queueOffset) as storeTimestamp")
    queue = Queue("T", "b", 0)
    (part,) = prove(rows).values()
    assert (part.first, part.last, part.count) == (32_760, 70_000, len(offsets))
    assert part.last_store_ms == 70_000
    assert find_gaps(rows, queue) == (Gap(32_775, 65_529), Gap(65_540, 69_999))
    with pytest.raises(ConfigError, match="1 offsets were read twice"):
        prove(rows.unionByName(rows.filter("queueOffset = 65535")))


def test_wrong_arguments(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["--topic", "T", "--out", str(tmp_path)]
    assert main(PIPELINE, [*arguments, "--from-store", "x"]) == 2
    assert "--broker-name: is needed" in capsys.readouterr().out
    assert main(PIPELINE, [*arguments, "--from-store", "x", "-n", "y:1"]) == 2
    assert "both say what to read" in capsys.readouterr().out
    assert main(PIPELINE, [*arguments, "-n", "y:1", "--skip-corrupt"]) == 2
    assert "--skip-corrupt: is about a store" in capsys.readouterr().out
    _append(tmp_path / "store", 0, 3)
    store = ["--from-store", str(tmp_path / "store"), "--broker-name", "b"]
    assert main(PIPELINE, [*arguments, *store]) == 2
    assert "there is no topic T" in capsys.readouterr().out
