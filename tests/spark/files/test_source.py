"""The format `rocketmq-store` in Spark: what only Spark shows. The rest is tested without it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from rmq.spark.schema import COLUMNS
from tests.spark.files.store_files import (
    build_store,
    mixed_messages,
    offsets,
    parts_of,
    reader_rows,
)
from tests.store.golden import stores as golden
from tests.store.store_kit import SEGMENT_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

COUNT = 150


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_store(tmp_path_factory.mktemp("spark-store") / "store", mixed_messages(COUNT))


def load(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    named = {key: str(value) for key, value in options.items()}
    return spark.read.format("rocketmq-store").options(**named).load(str(path))


def collected(table: DataFrame) -> list[dict[str, Any]]:
    """Return the rows by offset; Spark gives local times without a zone, here those of UTC."""
    rows = []
    for row in table.sort("commitLogOffset").collect():
        values = row.asDict()
        for name, value in values.items():
            if isinstance(value, datetime):
                values[name] = value.astimezone(UTC)
            elif isinstance(value, bytearray):
                values[name] = bytes(value)
        rows.append(values)
    return rows


def test_all_columns_arrive_as_they_are_stored(spark: SparkSession, root: Path) -> None:
    expected = reader_rows(root)
    table = load(spark, root, includeSystemTopics=True, decompress=False, batchRows=40)
    assert [(field.name, field.dataType.simpleString().upper()) for field in table.schema] == [
        (column.name, column.spark_type) for column in COLUMNS.values()
    ]
    assert all(field.nullable for field in table.schema)
    assert collected(table) == expected
    # Small parts, other columns and two topics, in another query.
    assert len(parts_of(root)) == 5
    assert len(parts_of(root, splitBytes=2_500)) == 13
    some = load(
        spark,
        root,
        columns="commitLogOffset,topic,msgId",
        topics="Payments,%RETRY%group",
        splitBytes=2_500,
        brokerName="broker-a",
    )
    assert collected(some) == [
        {name: row[name] for name in ("topic", "commitLogOffset", "msgId")}
        for row in expected
        if row["topic"] in ("Payments", "%RETRY%group")
    ]


def test_golden_messages_are_those_the_java_client_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = load(spark, golden.unpack(golden.CLEAN_MASTER, tmp_path), topics="GoldenTopic")
    chosen = table.selectExpr("queueId", "queueOffset", "msgId", "sha2(body, 256)", "properties")
    found = {(row[0], row[1]): tuple(row[2:]) for row in chosen.collect()}
    assert found == {
        (each.queue_id, each.queue_offset): (each.message_id, each.body_sha256, each.properties)
        for each in golden.messages("clean.GoldenTopic")
    }


def test_a_table_keeps_to_what_was_there_at_its_first_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = build_store(tmp_path / "store", mixed_messages(150))
    table = load(spark, root, includeSystemTopics=True)
    assert table.count() == 150
    build_store(root, mixed_messages(50))
    assert table.count() == 150
    assert load(spark, root, includeSystemTopics=True).count() == 200
    # So it also asks for a segment that retention has deleted since.
    (root / "commitlog" / f"{0:020d}").unlink()
    with pytest.raises(PySparkException) as caught:
        table.count()
    text = str(caught.value)
    assert "the segment was deleted before offsets 0 to 8192 were read" in text
    assert "failOnDataLoss=false" in text
    assert load(spark, root, includeSystemTopics=True).count() < 200


def test_damage_is_named_in_the_error_of_the_query(spark: SparkSession, tmp_path: Path) -> None:
    root = build_store(tmp_path / "store", mixed_messages(150))
    rows = reader_rows(root)
    bad = next(row["commitLogOffset"] for row in rows if row["commitLogOffset"] > SEGMENT_BYTES)
    path = root / "commitlog" / f"{SEGMENT_BYTES:020d}"
    content = bytearray(path.read_bytes())
    content[bad - SEGMENT_BYTES + 40] ^= 1
    content[bad - SEGMENT_BYTES + 4] ^= 1
    path.write_bytes(content)
    with pytest.raises(PySparkException) as caught:
        load(spark, root, includeSystemTopics=True).count()
    assert f"{path}, physical offset {bad}: magic " in str(caught.value)
    assert "skipCorrupt=true" in str(caught.value)
    skipping = load(spark, root, includeSystemTopics=True, skipCorrupt=True)
    kept = [row.commitLogOffset for row in skipping.select("commitLogOffset").collect()]
    assert sorted(kept) == [offset for offset in offsets(rows) if offset != bad]


def test_what_cannot_be_read_is_refused_by_load(spark: SparkSession, root: Path) -> None:
    with pytest.raises(PySparkException, match=r"topic.*did you mean topics\?"):
        load(spark, root, topic="Orders")
    with pytest.raises(PySparkException, match=r"knows no topic Order \(did you mean Orders\?"):
        load(spark, root, topics="Order")
    with pytest.raises(PySparkException, match=r"there is no such directory.*storePathRootDir"):
        load(spark, root / "nowhere")
    with pytest.raises(PySparkException, match="choose among them with the option columns"):
        spark.read.schema("topic STRING, body STRING").format("rocketmq-store").load(
            str(root)
        ).count()


def test_a_store_without_records_is_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    empty = build_store(tmp_path / "store", [])
    assert load(spark, empty).collect() == []
